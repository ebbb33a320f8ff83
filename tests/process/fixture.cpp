#include "tests/process/fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

namespace twofold::test {

namespace {

constexpr std::chrono::milliseconds kCallTimeout{5'000};
constexpr std::chrono::milliseconds kPollPause{20};

void redirect(const std::filesystem::path& file, int descriptor) {
  const int target = ::creat(file.c_str(), 0600);
  if (target >= 0) ::dup2(target, descriptor);
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "twofold-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Ran run(const std::string& program, const std::vector<std::string>& arguments) {
  TemporaryDirectory directory;
  const auto path = std::filesystem::path(TWOFOLD_BIN_DIR) / program;
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    redirect(directory.path() / "out", STDOUT_FILENO);
    redirect(directory.path() / "err", STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          read_file(directory.path() / "out"), read_file(directory.path() / "err")};
}

void ClusterTest::SetUp() {
  lab::ClusterOptions options;
  options.directory = directory_.path();
  if (const std::string text = configuration(); !text.empty()) {
    options.configuration = scratch("cluster.toml");
    std::ofstream(options.configuration) << text;
  }
  options.programs = TWOFOLD_BIN_DIR;
  options.kill_at_end = true;
  auto made = lab::Cluster::create(options);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  cluster_.emplace(std::move(*made));
  const auto started = cluster_->start_all();
  ASSERT_TRUE(started.has_value()) << started.error().message;
}

void ClusterTest::TearDown() {
  if (!cluster_) return;
  expect_no_sanitizer_reports();
  if (HasFailure()) tell_logs();
}

// A server that a sanitizer has found something in may well go on, or be killed by us.
void ClusterTest::expect_no_sanitizer_reports() const {
  for (const std::string& name : cluster_->names()) {
    const std::string log = read_file(cluster_->log_file(name));
    for (const char* report : {"Sanitizer:", "runtime error:"}) {
      EXPECT_EQ(log.find(report), std::string::npos) << name << "'s log has \"" << report << "\"";
    }
  }
}

void ClusterTest::tell_logs() const {
  for (const std::string& name : cluster_->names()) {
    std::cerr << "---- " << name << "\n" << read_file(cluster_->log_file(name));
  }
}

client::Options ClusterTest::client_options() const {
  client::Options options;
  options.coordinator = address("coordinator");
  options.retries = 1'000;
  options.retry_max = std::chrono::milliseconds{200};
  options.give_up = std::chrono::milliseconds{120'000};
  return options;
}

void ClusterTest::read_from(const std::vector<std::string>& rms) const {
  client::Transaction transaction;
  for (const std::string& rm : rms) {
    transaction.branches.push_back({rm, {{"get", {{"key", Value{"nothing"}}}}}});
  }
  transaction.wait_for_end = true;
  const Outcome outcome = client::Client(client_options()).submit(std::move(transaction)).outcome;
  ASSERT_EQ(outcome.verdict, Verdict::committed) << outcome.detail;
}

Address ClusterTest::address(const std::string& name) const {
  return cluster_->address(name).value();
}

wire::Frame ClusterTest::call(const std::string& name, const wire::Frame& request) const {
  auto answer = client::call_once(address(name), request, kCallTimeout);
  EXPECT_TRUE(answer.has_value()) << name << ": " << answer.error().message;
  return answer.has_value() ? *answer : wire::Frame{};
}

std::map<std::string, std::int64_t> ClusterTest::integers(const std::string& rm) const {
  wire::Frame request;
  request.mutable_scan();
  std::map<std::string, std::int64_t> found;
  const wire::Frame answer = call(rm, request);
  EXPECT_FALSE(answer.scan_answer().truncated());
  for (const auto& entry : answer.scan_answer().entries()) {
    if (entry.value().has_integer()) found[entry.key()] = entry.value().integer();
  }
  return found;
}

std::int64_t ClusterTest::coordinator_number(const std::string& name) const {
  wire::Frame request;
  request.mutable_stats();
  const wire::Frame answer = call("coordinator", request);
  for (const auto& number : answer.stats_answer().numbers()) {
    if (number.name() == name) return number.value();
  }
  ADD_FAILURE() << "the coordinator has no number called " << name;
  return -1;
}

std::string ClusterTest::left_over() const {
  std::ostringstream left;
  wire::Frame list;
  list.mutable_list();
  const wire::Frame listed = call("coordinator", list);
  for (const auto& transaction : listed.list_answer().transactions()) {
    left << "coordinator: " << gtrid_text(transaction.gtrid()) << " " << transaction.phase()
         << "\n";
  }
  for (const auto& rm : cluster_->configuration().resource_managers) {
    wire::Frame in_doubt, locks;
    in_doubt.mutable_in_doubt();
    locks.mutable_locks()->set_entries_max(10);
    const wire::Frame doubts = call(rm.name, in_doubt), locked = call(rm.name, locks);
    for (const auto& branch : doubts.in_doubt_answer().branches()) {
      left << rm.name << ": in doubt " << gtrid_text(branch.xid().gtrid()) << "\n";
    }
    for (const auto& entry : locked.locks_answer().entries()) {
      left << rm.name << ": locked " << entry.key() << "\n";
    }
  }
  return left.str();
}

void ClusterTest::expect_quiet(std::chrono::seconds patience) const {
  const auto give_up = std::chrono::steady_clock::now() + patience;
  std::string left = left_over();
  while (!left.empty() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(kPollPause);
    left = left_over();
  }
  EXPECT_EQ(left, "");
}

}  // namespace twofold::test
