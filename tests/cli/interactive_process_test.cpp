// begin, work, commit by hand, a process each: nothing that was asked for is left out of a commit,
// whatever became of the process that asked (rule 10).
#include <gmock/gmock.h>

#include <vector>

#include "tests/cli/cli_test.h"

namespace twofold {
namespace {

using testing::HasSubstr;

class CliInteractiveTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    start_up();
    const std::string id = begin();
    ASSERT_EQ(work(id, "payments", put("x", 0)).status, 0);
    ASSERT_EQ(run("commit " + id + " --wait @").status, 0);
  }

  static std::string put(const std::string& key, int value) {
    return R"('{"op":"put","key":")" + key + R"(","value":)" + std::to_string(value) + "}'";
  }
  static std::string add() { return R"('{"op":"add","key":"x","by":1}')"; }

  std::string begin() {
    const Ran begun = run("begin @");
    EXPECT_EQ(begun.status, 0) << begun.err;
    return begun.out.substr(0, begun.out.find('\n'));
  }
  Ran work(const std::string& id, const std::string& rm, const std::string& what) {
    return run("work " + id + " " + rm + " " + what + " @");
  }
  // The command in the background.
  lab::Process work_beside(const std::string& id, const std::string& rm, std::string what) {
    what = what.substr(1, what.size() - 2);  // no shell
    auto started = lab::spawn(TWOFOLD_BIN_DIR "/twofold",
                              {"work", id, rm, what, "--data", data_.string()}, folder_ / "beside");
    EXPECT_TRUE(started) << started.error().message;
    return std::move(*started);
  }
  void wait_for_waiter() {
    for (int i = 0; i < 1000; ++i) {
      if (run("locks payments --json @").out.find("\"waiters\":[{") != std::string::npos) return;
    }
    FAIL() << run("locks payments --json @").out;
  }
  std::string value_of_x() { return run("scan payments --prefix x --json @").out; }
};

TEST_F(CliInteractiveTest, WorksOfManyProcessesAtOnceAreAllCounted) {
  const std::string id = begin();
  std::vector<lab::Process> processes;
  for (int i = 0; i < 12; ++i) processes.push_back(work_beside(id, "payments", add()));
  for (auto& process : processes) {
    ASSERT_TRUE(process.wait_for_end(30s));
    process.reap();
  }
  const Ran committed = run("commit " + id + " @");
  EXPECT_EQ(committed.status, 0) << committed.out << committed.err;
  EXPECT_THAT(value_of_x(), HasSubstr("12"));
}

TEST_F(CliInteractiveTest, AWorkThatFailedIsNotLeftOut) {
  auto cluster = lab::Cluster::open(data_, TWOFOLD_BIN_DIR);
  ASSERT_TRUE(cluster);
  for (const bool down : {false, true}) {
    const std::string id = begin();
    ASSERT_EQ(work(id, "payments", add()).status, 0);
    if (down) {
      ASSERT_TRUE(cluster->kill("kitchen"));
    }
    const Ran failed = work(id, down ? "kitchen" : "kitschen", add());
    EXPECT_EQ(failed.status, 1);
    EXPECT_THAT(failed.err, HasSubstr("can only be rolled back now"));
    const Ran committed = run("commit " + id + " @");
    EXPECT_EQ(committed.status, 1);
    EXPECT_THAT(committed.out, HasSubstr("aborted"));
    EXPECT_THAT(committed.out, HasSubstr(down ? "kitchen" : "unknown resource manager"));
  }
}

TEST_F(CliInteractiveTest, AWorkThatWasInterruptedIsNotLeftOut) {
  for (const int signal : {SIGINT, SIGKILL}) {
    const std::string holder = begin(), id = begin();
    ASSERT_EQ(work(holder, "payments", add()).status, 0);
    ASSERT_EQ(work(id, "orders", put("order", signal)).status, 0);
    lab::Process waiting = work_beside(id, "payments", add());
    wait_for_waiter();
    // Not yet: nobody can say what will come of it.
    const Ran early = run("commit " + id + " @");
    EXPECT_EQ(early.status, 1);
    EXPECT_THAT(early.err, HasSubstr("a work of this transaction is under way"));
    waiting.signal(signal);
    ASSERT_TRUE(waiting.wait_for_end(10s));
    waiting.reap();
    const Ran committed = run("commit " + id + " @");
    EXPECT_EQ(committed.status, 1) << committed.out;
    EXPECT_THAT(committed.out, HasSubstr("interrupted before its answer"));
    EXPECT_EQ(run("rollback " + holder + " @").status, 0);
  }
  EXPECT_EQ(run("scan orders --prefix order --json @").out.find("order"), std::string::npos);
  EXPECT_THAT(value_of_x(), HasSubstr("0"));
}

TEST_F(CliInteractiveTest, WithoutItsLedgerNothingIsCommittedByHalves) {
  const std::string id = begin();
  ASSERT_EQ(work(id, "payments", add()).status, 0);
  const auto ledger = data_ / "interactive" / (id + ".jsonl");
  ASSERT_TRUE(std::filesystem::exists(ledger));
  std::ofstream(ledger, std::ios::app) << "{\"rm\":\"pay";  // as a full disk leaves it
  const Ran damaged = run("commit " + id + " @");
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.out, HasSubstr("damaged"));
  EXPECT_FALSE(std::filesystem::exists(ledger));

  const std::string other = begin();
  ASSERT_EQ(work(other, "payments", add()).status, 0);
  std::filesystem::remove(data_ / "interactive" / (other + ".jsonl"));
  EXPECT_EQ(run("commit " + other + " @").status, 1);
  EXPECT_THAT(value_of_x(), HasSubstr("0"));
}

}  // namespace
}  // namespace twofold
