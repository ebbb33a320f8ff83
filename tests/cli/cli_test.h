// The command as a person uses it: the real program in a shell, against real processes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lab/cluster/cluster.h"
#include "lab/workflows/generate.h"

namespace twofold {

namespace json = boost::json;
using namespace std::chrono_literals;

struct Ran {
  int status = -1;
  std::string out;
  std::string err;
  json::value parsed() const {
    boost::system::error_code failed;
    auto value = json::parse(out, failed);
    EXPECT_FALSE(failed) << out << err;
    return value;
  }
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "cli-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = std::filesystem::canonical(name);
    data_ = folder_ / "data";
  }
  void TearDown() override {
    if (up_ && !up_->wait_for_end(0ms)) {
      up_->signal(SIGKILL);
      up_->wait_for_end(10s);
    }
    if (up_) up_->reap();
    if (auto cluster = lab::Cluster::open(data_, programs_)) {
      for (const auto& member : cluster->names()) (void)cluster->kill(member);
    }
    if (HasFailure()) std::fprintf(stderr, "%s\n", read_file(up_log()).c_str());
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path up_log() const { return folder_ / "up.out"; }

  // Runs `twofold ARGUMENTS` in a shell; @ stands for --data DIR.
  Ran run(std::string arguments, const std::string& input = "/dev/null") {
    if (const auto at = arguments.find('@'); at != std::string::npos) {
      arguments.replace(at, 1, "--data " + data_.string());
    }
    return run_line((programs_ / "twofold").string() + " " + arguments, input);
  }

  // Any command line.
  Ran run_line(const std::string& command, const std::string& input = "/dev/null") {
    const auto err = folder_ / "err";
    const std::string line = command + " 2> " + err.string() + " < " + input;
    Ran ran;
    std::FILE* pipe = ::popen(line.c_str(), "r");
    if (!pipe) return ran;
    std::array<char, 4096> buffer;
    while (const auto count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      ran.out.append(buffer.data(), count);
    }
    const int status = ::pclose(pipe);
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ran.err = read_file(err);
    return ran;
  }

  void start_up(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"up", "--data", data_.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto follower = lab::LogFollower::open(up_log());
    ASSERT_TRUE(follower) << follower.error().message;
    auto started = lab::spawn(programs_ / "twofold", arguments, up_log());
    ASSERT_TRUE(started) << started.error().message;
    up_.emplace(std::move(*started));
    ASSERT_TRUE(follower->wait_for_line("Stop it with", *up_, 60s)) << follower->text();
  }

  // Makes a shop's files and loads it.
  void make_shop(std::size_t orders, std::uint64_t seed) {
    shop_ = lab::generate_orders({seed, orders});
    std::ofstream(folder_ / "world.json") << lab::to_json_text(shop_.world);
    std::ofstream lines(folder_ / "orders.jsonl");
    for (const auto& line : shop_.lines) lines << line << '\n';
  }
  std::string order_command(const std::string& more) const {
    return "order " + (folder_ / "orders.jsonl").string() + " --world " +
           (folder_ / "world.json").string() + " --json @ " + more;
  }
  static std::string run_id(const std::string& text) {
    const auto begin = text.find("run ") + 4;
    return text.substr(begin, text.find_first_of(" \n", begin) - begin);
  }

  std::filesystem::path folder_, data_;
  std::filesystem::path programs_ = TWOFOLD_BIN_DIR;
  std::optional<lab::Process> up_;
  lab::GeneratedOrders shop_;
};

}  // namespace twofold
