// The real twofold-rm, killed at its own crash points; a fake coordinator sees what is left.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/log/temporary_directory.h"
#include "tests/resource_manager/fake_peer.h"

extern char** environ;

namespace twofold {
namespace {

using test::branch_xid;
using test::client_hello;
using test::coordinator_hello;
using test::FakePeer;
using test::get;
using test::put;

// One run of the program; killed if it is still there at the end.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    std::string path = TWOFOLD_BIN_DIR "/twofold-rm";
    std::vector<std::string> owned = arguments;
    std::vector<char*> argv{path.data()};
    for (std::string& argument : owned) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int code = ::posix_spawn(&pid_, path.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    output_ = ends[0];
    if (code != 0) throw std::runtime_error("cannot start " + path);
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(output_);
  }
  Program(const Program&) = delete;

  // The address in its line "listening on …"; empty if it ended before.
  std::string address() {
    constexpr std::string_view kLine = "listening on ";
    std::size_t at = std::string::npos, end = std::string::npos;
    while (at == std::string::npos || (end = text_.find('\n', at)) == std::string::npos) {
      if (!read_more()) return "";
      at = text_.find(kLine);
    }
    return text_.substr(at + kLine.size(), end - at - kLine.size());
  }
  void signal(int number) const { ::kill(pid_, number); }
  // All it has said, and how it ended: an exit status, or minus the signal.
  std::pair<std::string, int> end() {
    while (read_more()) {
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return {text_, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)};
  }

 private:
  bool read_more() {
    std::array<char, 4096> chunk{};
    const ssize_t bytes = ::read(output_, chunk.data(), chunk.size());
    if (bytes <= 0) return false;
    text_.append(chunk.data(), static_cast<std::size_t>(bytes));
    return true;
  }

  pid_t pid_ = 0;
  int output_ = -1;
  std::string text_;
};

class Processes : public ::testing::Test {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    std::vector<std::string> all{"--kind",      "store",  "--name",       "payments",    "--listen",
                                 "127.0.0.1:0", "--data", data_.string(), "--map-bytes", "1048576"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::unique_ptr<Program> run(std::vector<std::string> more = {}) const {
    return std::make_unique<Program>(arguments(std::move(more)));
  }
  std::unique_ptr<FakePeer> connect(Program& program, wire::Hello hello) {
    const std::string address = program.address();
    EXPECT_FALSE(address.empty()) << program.end().first;
    auto peer = std::make_unique<FakePeer>(io_, parse_address(address).value(), std::move(hello));
    EXPECT_FALSE(peer->refused()) << peer->refused()->message;
    return peer;
  }

  boost::asio::io_context io_{1};
  test::TemporaryDirectory directory_;
  std::filesystem::path data_ = directory_.path() / "payments";
};

// ---- crash points
// ----------------------------------------------------------------------------------

enum class Left : std::uint8_t { nothing, in_doubt, committed };

struct Crash {
  const char* point;
  bool rolls_back = false;  // the coordinator decides abort
  bool told_vote = false;   // it has seen the vote
  bool told_end = false;
  Left left = Left::nothing;
};

void PrintTo(const Crash& crash, std::ostream* out) {
  *out << crash.point;
}

// The first forced write is the session's node record, the second the vote, the third the end.
const Crash kCrashes[] = {
    {"before:Start", false, false, false, Left::nothing},
    {"after:Run", false, false, false, Left::nothing},
    {"before:PersistPrepare", false, false, false, Left::nothing},
    {"after:PersistPrepare", false, false, false, Left::nothing},  // asked for, not forced yet
    {"before:Persisted#2", false, false, false, Left::in_doubt},
    {"after:Persisted#2", false, false, false, Left::in_doubt},
    {"before:Answer", false, false, false, Left::in_doubt},
    {"after:Answer", false, true, false, Left::in_doubt},
    {"before:Commit", false, true, false, Left::in_doubt},
    {"before:PersistCommit", false, true, false, Left::in_doubt},
    {"after:PersistCommit", false, true, false, Left::in_doubt},
    {"before:Persisted#3", false, true, false, Left::committed},
    {"after:Persisted#3", false, true, false, Left::committed},
    {"after:Answer#2", false, true, true, Left::committed},
    {"before:PersistRollback", true, true, false, Left::in_doubt},
    {"after:PersistRollback", true, true, false, Left::in_doubt},
};

class CrashPoints : public Processes, public ::testing::WithParamInterface<Crash> {};

TEST_P(CrashPoints, LeaveWhatTheirPlaceSays) {
  const Crash& crash = GetParam();
  const Xid xid = branch_xid(1);
  auto program = run({"--crash-at", crash.point});
  auto main = connect(*program, coordinator_hello(1));

  const std::optional<wire::Frame> vote =
      main->answer(main->send(FakePeer::start(xid, {put("k", 7), get("r")})));
  ASSERT_EQ(vote.has_value(), crash.told_vote);
  if (vote) {
    EXPECT_EQ(static_cast<Xa>(vote->branch_answer().code()), Xa::ok);
    const std::uint64_t request =
        main->send(crash.rolls_back ? FakePeer::rollback(xid) : FakePeer::commit(xid));
    EXPECT_EQ(main->answer(request).has_value(), crash.told_end);
  }
  const auto [output, status] = program->end();
  ASSERT_EQ(status, -SIGKILL) << "the point was not reached: " << output;

  auto next = run();
  main = connect(*next, coordinator_hello(2));
  const bool listed = crash.left == Left::in_doubt;
  EXPECT_EQ(main->recover(), listed ? std::vector<Xid>{xid} : std::vector<Xid>{});
  EXPECT_EQ(main->locks().entries_size(), listed ? 2 : 0);
  EXPECT_EQ(main->outcome_of(xid), listed                          ? wire::Evidence::PREPARED
                                   : crash.left == Left::committed ? wire::Evidence::COMMITTED
                                                                   : wire::Evidence::NONE);
  if (listed) {
    EXPECT_EQ(main->code(crash.rolls_back ? FakePeer::rollback(xid) : FakePeer::commit(xid)),
              Xa::ok);
  }
  const bool commits = crash.left != Left::nothing && !crash.rolls_back;
  std::map<std::string, std::int64_t> expected;
  if (commits) expected["k"] = 7;
  EXPECT_EQ(main->scan(), expected);
  EXPECT_EQ(main->locks().entries_size(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, CrashPoints, ::testing::ValuesIn(kCrashes),
                         [](const ::testing::TestParamInfo<Crash>& crash) {
                           std::string name;
                           for (const char c : std::string_view(crash.param.point)) {
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           }
                           return name;
                         });

// ---- the program
// -----------------------------------------------------------------------------------

TEST_F(Processes, SigtermEndsInOrder) {
  auto program = run();
  auto main = connect(*program, coordinator_hello(1));
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("k", 7)})), Xa::ok);
  program->signal(SIGTERM);
  main->wait_closed();
  EXPECT_NE(main->closed()->message.find("shutting down"), std::string::npos);
  EXPECT_EQ(program->end().second, 0);
  auto next = run();
  EXPECT_EQ(connect(*next, client_hello())->in_doubt().branches_size(), 1);
  next->signal(SIGINT);
  EXPECT_EQ(next->end().second, 0);
}

TEST_F(Processes, ASecondProcessIsKeptOut) {
  auto program = run();
  ASSERT_FALSE(program->address().empty());
  const auto [output, status] = run()->end();
  EXPECT_EQ(status, 1);
  EXPECT_NE(output.find("is in use by process"), std::string::npos) << output;
}

TEST_F(Processes, DamagedDataIsRefused) {
  {
    auto program = run();
    ASSERT_FALSE(program->address().empty());
  }
  std::filesystem::resize_file(data_ / "data.mdb", 9'000);
  const auto [output, status] = run()->end();
  EXPECT_EQ(status, 1);
  EXPECT_NE(output.find("is damaged"), std::string::npos) << output;
}

TEST_F(Processes, AnOccupiedAddressIsTold) {
  auto program = run();
  const std::string address = program->address();
  data_ = directory_.path() / "other";
  std::vector<std::string> same = arguments();
  *std::find(same.begin(), same.end(), "127.0.0.1:0") = address;
  const auto [output, status] = Program(same).end();
  EXPECT_EQ(status, 1);
  EXPECT_NE(output.find(address), std::string::npos) << output;
}

TEST_F(Processes, TheConfigurationFileServesAndOptionsWin) {
  const std::filesystem::path file = directory_.path() / "twofold.toml";
  std::ofstream(file) << "[[resource_manager]]\nname = \"payments\"\naddress = \"127.0.0.1:1\"\n"
                         "data = \"in-file\"\nmap_bytes = 1048576\n";
  const std::filesystem::path ready = directory_.path() / "ready";
  Program program({"--config", file.string(), "--name", "payments", "--listen", "127.0.0.1:0",
                   "--ready-file", ready.string(), "--no-early-release"});
  auto client = connect(program, client_hello());
  EXPECT_EQ(client->welcome().name(), "payments");
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "in-file" / "data.mdb"));
  client->stats();  // an answer: whatever comes before serving has been done
  std::ifstream written(ready);
  std::string address;
  EXPECT_TRUE(std::getline(written, address));
  EXPECT_TRUE(address.starts_with("127.0.0.1:"));
}

TEST_F(Processes, WrongCommandLinesSayWhatToDo) {
  auto said = [](const std::vector<std::string>& command_line) {
    const auto [output, status] = Program(command_line).end();
    EXPECT_NE(status, 0);
    return output;
  };
  EXPECT_NE(said({"--name", "x"}).find("--listen"), std::string::npos);
  EXPECT_NE(said(arguments({"--crash-at", "before:Nothing"})).find("PersistPrepare"),
            std::string::npos);
  EXPECT_NE(said(arguments({"--frame-bytes-max", "1"})).find("frame_bytes_max must be"),
            std::string::npos);
  std::vector<std::string> kind = arguments();
  kind[1] = "database";
  EXPECT_NE(said(kind).find("--kind store"), std::string::npos);
}

TEST_F(Processes, CrashPointsAreListed) {
  const auto [output, status] = Program({"--list-crash-points"}).end();
  EXPECT_EQ(status, 0);
  EXPECT_NE(output.find("before:PersistPrepare\n"), std::string::npos);
  EXPECT_NE(output.find("after:Persisted\n"), std::string::npos);
}

}  // namespace
}  // namespace twofold
