// begin, work, commit by hand, a process each: nothing that was asked for is left out of a commit,
// whatever became of the process that asked (rule 10).
#include <gmock/gmock.h>

#include <utility>
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

TEST_F(CliInteractiveTest, BeginSaysTheTimeThatItReallyHas) {
  const Ran long_one = run("begin --timeout-ms 9999999 @");
  EXPECT_THAT(long_one.err, HasSubstr("has 10 min to commit, the most that the coordinator gives"));
  EXPECT_EQ(run("begin --timeout-ms 9999999 --json @").parsed().at("timeout_ms"), 600'000);
  const Ran plain = run("begin --timeout-ms 5000 @");
  EXPECT_THAT(plain.err, HasSubstr("has 5.0 s to commit: "));
  for (const char* wrong : {"0", "-5", "99999999999", "99999999999999999999", "x"}) {
    const Ran refused = run(std::string("begin --timeout-ms ") + wrong + " @");
    EXPECT_EQ(refused.status, 2) << wrong;
    EXPECT_EQ(refused.out, "");
    EXPECT_THAT(refused.err, HasSubstr("--timeout-ms")) << wrong;
  }
}

// Also of what an earlier process of the coordinator began.
TEST_F(CliInteractiveTest, AnIdAndItsGtridAreToldTheSame) {
  const std::string committed = begin(), open = begin(), back = begin();
  std::vector<std::pair<std::string, std::string>> names;
  for (const std::string& id : {committed, open, back}) {
    ASSERT_EQ(work(id, "payments", put("key-" + id, 1)).status, 0);
    names.emplace_back(id, run("show " + id + " --json @").parsed().at("gtrid").as_string());
  }
  ASSERT_EQ(run("commit " + committed + " --wait @").status, 0);
  ASSERT_EQ(run("rollback " + back + " @").status, 0);
  for (const bool restarted : {false, true}) {
    if (restarted) {
      ASSERT_EQ(run("kill coordinator @").status, 0);
      ASSERT_EQ(run("start coordinator @").status, 0);
    }
    for (const auto& [id, gtrid] : names) {
      if (id == open && !restarted) continue;
      const std::string word = id == committed ? "committed" : "aborted";
      for (const std::string& name : {id, gtrid}) {
        const Ran commit = run("commit " + name + " @"), rollback = run("rollback " + name + " @");
        EXPECT_THAT(commit.out, HasSubstr(id + " " + word)) << commit.err;
        EXPECT_EQ(rollback.out, commit.out);
        const Ran shown = run("show " + name + " @");
        EXPECT_THAT(shown.out, HasSubstr("outcome      " + word)) << shown.err;
        const Ran enlist = run("enlist " + name + " payments @");
        EXPECT_EQ(enlist.status, 1);
        EXPECT_THAT(enlist.err, HasSubstr(name + " takes no more work: " + word));
        const Ran worked = work(name, "payments", put("k", 1));
        EXPECT_EQ(worked.status, 1);
        EXPECT_THAT(worked.err,
                    HasSubstr(id == committed ? "XAER_PROTO: the transaction has committed"
                                              : "XA_RBROLLBACK: rolled back"));
      }
    }
  }
}

TEST_F(CliInteractiveTest, ACommitWithoutItsCoordinatorSaysThatItWaitsAndHowToGoOn) {
  const std::string id = begin();
  ASSERT_EQ(work(id, "payments", add()).status, 0);
  const std::string gtrid(run("show " + id + " --json @").parsed().at("gtrid").as_string());
  ASSERT_EQ(run("kill coordinator @").status, 0);
  const Ran lost = run("commit " + gtrid + " --give-up 1 @");
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.out, HasSubstr(id + " unknown"));
  EXPECT_THAT(lost.err, HasSubstr("waiting up to 1 s for the coordinator: "));
  EXPECT_THAT(lost.err, HasSubstr("twofold start coordinator"));
  EXPECT_THAT(lost.err, HasSubstr("twofold commit " + gtrid));
  const Ran by_id = run("commit " + id + " @");
  EXPECT_EQ(by_id.status, 1);
  EXPECT_THAT(by_id.err, HasSubstr("Start it"));
  EXPECT_THAT(by_id.err, HasSubstr("twofold commit " + id));
  ASSERT_EQ(run("start coordinator @").status, 0);
  EXPECT_THAT(run("commit " + gtrid + " @").out, HasSubstr(id + " aborted"));
}

TEST_F(CliInteractiveTest, AVictimIsToldWhy) {
  const std::string older = begin(), younger = begin();
  ASSERT_EQ(work(older, "payments", add()).status, 0);
  ASSERT_EQ(work(younger, "payments", put("y", 1)).status, 0);
  lab::Process waiting = work_beside(older, "payments", put("y", 1));
  wait_for_waiter();
  const Ran victim = work(younger, "payments", add());
  EXPECT_EQ(victim.status, 1);
  EXPECT_THAT(victim.err, HasSubstr("deadlock: it waits for key \"x\", held by " + older + " ("));
  ASSERT_TRUE(waiting.wait_for_end(10s));
  waiting.reap();
  EXPECT_EQ(run("rollback " + older + " @").status, 0);

  const std::string failed = begin();
  const Ran refused = run("work " + failed + R"( payments '{"op":"erase","key":1}' --json @)");
  EXPECT_THAT(std::string(refused.parsed().at("reason").as_string()), HasSubstr("key"));
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
