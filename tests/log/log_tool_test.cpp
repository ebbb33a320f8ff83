// The program twofold-log, run as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <boost/json.hpp>
#include <filesystem>
#include <string>

#include "log/decision_store.h"
#include "log/record_codec.h"
#include "tests/log/sample_records.h"
#include "tests/log/temporary_directory.h"

namespace twofold {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace test;
namespace fs = std::filesystem;

struct Run {
  int status = -1;
  std::string output;  // stdout and stderr
};

Run run(const std::string& arguments, const std::string& before = "") {
  const auto command = before + TWOFOLD_BIN_DIR + "/twofold-log " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  Run result;
  char bytes[4096];
  for (std::size_t got = 0; (got = ::fread(bytes, 1, sizeof(bytes), pipe)) > 0;) {
    result.output.append(bytes, got);
  }
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

class LogTool : public ::testing::Test {
 protected:
  std::string directory() const { return (root_.path() / "log").string(); }

  // One record of each kind, and `extra`.
  void fill(std::vector<Mutation> extra = {}) {
    ASSERT_EQ(run("init " + directory() + " --node main --map-mib 1").status, 0);
    auto store = LmdbDecisionStore::open(directory());
    ASSERT_TRUE(store.has_value());
    const auto epoch = (*store)->open_epoch();
    ASSERT_TRUE(epoch.has_value());
    const Origin origin{"main", epoch->log_id, epoch->current.nonce};
    std::vector<Write> writes;
    for (const LogRecord& record :
         {LogRecord{intent_record({1, 1}, origin)}, LogRecord{commit_record({1, 2}, origin)},
          LogRecord{refusal_record({1, 3}, origin)}, LogRecord{end_record({1, 4}, origin)},
          LogRecord{heuristic_record({1, 4}, origin)}}) {
      writes.push_back({0, mutations(record)});
    }
    writes.push_back({0, std::move(extra)});
    GroupCommit commit((*store)->target(), {}, [](const GroupResult&) {});
    commit.submit(std::move(writes));
    ASSERT_TRUE(commit.drain());
  }

  TemporaryDirectory root_;
};

TEST_F(LogTool, HelpExplains) {
  const auto help = run("--help");
  EXPECT_EQ(help.status, 0);
  for (const char* word : {"init", "backup", "dump", "verify", "Exit status"}) {
    EXPECT_THAT(help.output, HasSubstr(word));
  }
  EXPECT_THAT(run("init --help").output, HasSubstr("--map-mib"));
}

TEST_F(LogTool, WrongUsageHasItsOwnStatus) {
  EXPECT_EQ(run("").status, 2);
  EXPECT_EQ(run("melt " + directory()).status, 2);
  EXPECT_EQ(run("init " + directory()).status, 2);
  EXPECT_EQ(run("init " + directory() + " --node main --map-mib 0").status, 2);
}

TEST_F(LogTool, InitMakesALogOnce) {
  const auto made = run("init " + directory() + " --node main --map-mib 1");
  EXPECT_EQ(made.status, 0) << made.output;
  EXPECT_THAT(made.output, HasSubstr("node main"));
  const auto again = run("init " + directory() + " --node main");
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.output, HasSubstr("nothing was changed"));
  EXPECT_EQ(run("verify " + directory()).status, 0);
}

TEST_F(LogTool, AMissingLogSaysHowToMakeOne) {
  for (const char* command : {"dump ", "verify "}) {
    const auto result = run(command + directory());
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, HasSubstr("twofold-log init " + directory() + " --node NAME"));
  }
}

TEST_F(LogTool, InitWithoutRoomSaysSo) {
  const auto result = run("init " + directory() + " --node main --map-mib 1", "ulimit -f 8; ");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("make room on that file system"));
  EXPECT_TRUE(fs::is_empty(root_.path()));
}

TEST_F(LogTool, DumpShowsEverything) {
  fill();
  const auto dump = run("dump " + directory());
  EXPECT_EQ(dump.status, 0) << dump.output;
  for (const char* text :
       {"log of node main", "epochs (1)", "transactions (4)", "1.1          intent",
        "1.2          commit", "1.3          refusal", "1.4          end", "request request 1.2",
        "payments", "customer/c-1", "heuristics (1)", "XA_HEURRB where commit was decided"}) {
    EXPECT_THAT(dump.output, HasSubstr(text));
  }
}

TEST_F(LogTool, DumpAsJsonIsOneObject) {
  fill();
  const auto dump = run("dump --json " + directory());
  EXPECT_EQ(dump.status, 0);
  const auto json = boost::json::parse(dump.output).as_object();
  EXPECT_EQ(json.at("node"), "main");
  EXPECT_EQ(json.at("log_id").as_string().size(), 16u);
  EXPECT_EQ(json.at("group"), 3);
  EXPECT_EQ(json.at("epochs").as_array().size(), 1u);
  const auto& transactions = json.at("transactions").as_array();
  ASSERT_EQ(transactions.size(), 4u);
  EXPECT_EQ(transactions[1].at("kind"), "commit");
  EXPECT_EQ(transactions[1].at("branches").at(1).at("rm"), "payments");
  EXPECT_EQ(transactions[2].at("refusals").at(1).at("key"), "k\\x00\\xff");
  EXPECT_EQ(json.at("heuristics").at(0).at("code"), "XA_HEURRB");
  EXPECT_TRUE(json.at("problems").as_array().empty());
}

TEST_F(LogTool, DumpAndVerifyWorkBesideAnOpenLog) {
  fill();
  auto store = LmdbDecisionStore::open(directory());
  ASSERT_TRUE(store.has_value());
  EXPECT_EQ(run("dump " + directory()).status, 0);
  EXPECT_EQ(run("verify " + directory()).status, 0);
  EXPECT_TRUE((*store)->open_epoch().has_value());  // and the log is as usable as before
}

TEST_F(LogTool, BackupCopiesBesideAnOpenLogAndTheMarkIsShown) {
  fill();
  auto store = LmdbDecisionStore::open(directory());
  ASSERT_TRUE(store.has_value());
  const auto copy = (root_.path() / "copy").string();
  const auto made = run("backup " + directory() + " " + copy);
  EXPECT_EQ(made.status, 0) << made.output;
  EXPECT_THAT(made.output, HasSubstr("--restored"));
  EXPECT_TRUE((*store)->open_epoch().has_value());  // and the log is as usable as before

  const auto verified = run("verify " + copy);
  EXPECT_EQ(verified.status, 0) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("marked as a backup, made by twofold-log backup at 20"));
  const auto dump = run("dump " + copy);
  EXPECT_EQ(dump.status, 0) << dump.output;
  EXPECT_THAT(dump.output, HasSubstr("BACKUP, made by"));
  EXPECT_THAT(dump.output, HasSubstr("transactions (4)"));
  const auto json = boost::json::parse(run("dump --json " + copy).output).as_object();
  EXPECT_EQ(json.at("backup").at("known_by"), "");
  EXPECT_THAT(run("verify " + directory()).output, Not(HasSubstr("backup")));

  const auto again = run("backup " + directory() + " " + copy);
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.output, HasSubstr("nothing was changed"));
  // A backup of a backup is one.
  EXPECT_EQ(run("backup " + copy + " " + copy + "2").status, 0);
  EXPECT_THAT(run("verify " + copy + "2").output, HasSubstr("marked as a backup"));
}

TEST_F(LogTool, ARestoredLogShowsWhatItWas) {
  fill();
  LogId before;
  {
    auto store = LmdbDecisionStore::open(directory());
    ASSERT_TRUE(store.has_value());
    before = (*store)->info().log_id;
    ASSERT_TRUE((*store)->restore());
  }
  char id[20];
  std::snprintf(id, sizeof(id), "%016llx", static_cast<unsigned long long>(before.value));
  const auto dump = run("dump " + directory());
  EXPECT_EQ(dump.status, 0) << dump.output;  // rows of the former log id are the log's own
  EXPECT_THAT(dump.output, HasSubstr(std::string("restored from log id ") + id));
  const auto json = boost::json::parse(run("dump --json " + directory()).output).as_object();
  EXPECT_EQ(json.at("former").at(0).at("log_id"), id);
}

TEST_F(LogTool, VerifyNamesDamagedRows) {
  fill({{Mutation::Kind::put, 2, transaction_key({1, 9}), "\1\5broken"}});
  const auto verified = run("verify " + directory());
  EXPECT_EQ(verified.status, 3);
  EXPECT_THAT(verified.output, HasSubstr("row 1.9 of transactions: its checksum is wrong"));
  EXPECT_THAT(verified.output, HasSubstr("1 problems in 8 rows"));
  const auto dump = run("dump " + directory());
  EXPECT_EQ(dump.status, 3);
  EXPECT_THAT(dump.output, HasSubstr("problems (1)"));
  EXPECT_THAT(dump.output, HasSubstr("1.2          commit"));  // the rest is shown all the same
}

TEST_F(LogTool, VerifyNamesDamagedPages) {
  fill();
  fs::resize_file(root_.path() / "log" / "data.mdb", 3 * 4096);
  const auto verified = run("verify " + directory());
  EXPECT_EQ(verified.status, 3) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("data.mdb is damaged: page "));
}

}  // namespace
}  // namespace twofold
