// The real twofold-rm: how it starts and ends. What a kill leaves behind is tests/conformance's.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/log/temporary_directory.h"
#include "tests/resource_manager/fake_peer.h"
#include "tests/resource_manager/program.h"

namespace twofold {
namespace {

using test::branch_xid;
using test::client_hello;
using test::coordinator_hello;
using test::FakePeer;
using test::Program;
using test::put;

constexpr const char* kProgram = TWOFOLD_BIN_DIR "/twofold-rm";

class Processes : public ::testing::Test {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    std::vector<std::string> all{"--kind",      "store",  "--name",       "payments",    "--listen",
                                 "127.0.0.1:0", "--data", data_.string(), "--map-bytes", "1048576"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::unique_ptr<Program> run(std::vector<std::string> more = {}) const {
    return std::make_unique<Program>(kProgram, arguments(std::move(more)));
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
  const auto [output, status] = Program(kProgram, same).end();
  EXPECT_EQ(status, 1);
  EXPECT_NE(output.find(address), std::string::npos) << output;
}

TEST_F(Processes, TheConfigurationFileServesAndOptionsWin) {
  const std::filesystem::path file = directory_.path() / "twofold.toml";
  std::ofstream(file) << "[[resource_manager]]\nname = \"payments\"\naddress = \"127.0.0.1:1\"\n"
                         "data = \"in-file\"\nmap_bytes = 1048576\n";
  const std::filesystem::path ready = directory_.path() / "ready";
  Program program(kProgram, {"--config", file.string(), "--name", "payments", "--listen",
                             "127.0.0.1:0", "--ready-file", ready.string(), "--no-early-release"});
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
    const auto [output, status] = Program(kProgram, command_line).end();
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
  EXPECT_NE(said(kind).find("--kind store and --kind files"), std::string::npos);
}

TEST_F(Processes, CrashPointsAreListed) {
  const auto [output, status] = Program(kProgram, {"--list-crash-points"}).end();
  EXPECT_EQ(status, 0);
  EXPECT_NE(output.find("before:PersistPrepare\n"), std::string::npos);
  EXPECT_NE(output.find("after:Persisted\n"), std::string::npos);
}

}  // namespace
}  // namespace twofold
