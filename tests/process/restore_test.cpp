// A backup of the decision log in place of the log (rule 2): it is refused until the operator says
// --restored; then what it recorded is carried out, what it can be certain of is rolled back, what
// was decided after it is left alone and reported, and new transactions run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "tests/process/fixture.h"

namespace twofold::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Keys = std::map<std::string, std::int64_t>;

constexpr std::chrono::seconds kPatience{30};

class RestoreTest : public ClusterTest {
 protected:
  fs::path log() const { return fs::path(data()) / "coordinator" / "log"; }

  // One key in each of two stores.
  Verdict submit(const std::string& key, const std::string& one = "orders",
                 const std::string& other = "payments",
                 std::chrono::milliseconds give_up = kPatience) {
    const Operation put{"put", {{"key", Value{key}}, {"value", Value{std::int64_t{1}}}}};
    client::Transaction transaction;
    transaction.branches = {{one, {put}}, {other, {put}}};
    transaction.wait_for_end = true;  // the stores show it by then
    client::Options options = client_options();
    options.give_up = give_up;
    return client::Client(options).submit(std::move(transaction)).outcome.verdict;
  }
  // The coordinator dies at its crash point while it carries this out.
  void submit_and_crash(const std::string& key, const std::string& one = "orders",
                        const std::string& other = "payments") {
    EXPECT_EQ(submit(key, one, other, std::chrono::milliseconds{1'000}), Verdict::unknown);
    EXPECT_TRUE(cluster().wait_for_end("coordinator", kPatience));
  }

  Result<void> start(std::vector<std::string> arguments = {},
                     const std::string& name = "coordinator") {
    lab::StartOptions options;
    options.arguments = std::move(arguments);
    return cluster().start(name, options);
  }
  void must_start(std::vector<std::string> arguments = {},
                  const std::string& name = "coordinator") {
    const auto started = start(std::move(arguments), name);
    ASSERT_TRUE(started) << started.error().message;
  }
  void kill(const std::string& name = "coordinator") {
    const auto killed = cluster().kill(name);
    ASSERT_TRUE(killed) << killed.error().message;
  }
  void must_refuse(const std::string& why) {
    const auto refused = start();
    ASSERT_TRUE(refused.has_error());
    EXPECT_THAT(refused.error().message, HasSubstr(why));
    EXPECT_THAT(refused.error().message, HasSubstr("--restored"));
  }

  void back_up() {
    const Ran ran = run("twofold-log", {"backup", log().string(), scratch("backup").string()});
    ASSERT_EQ(ran.status, 0) << ran.err;
  }
  void put_in_place(const fs::path& copy) {
    fs::remove_all(log());
    fs::copy(copy, log(), fs::copy_options::recursive);
  }

  int in_doubt(const std::string& rm) {
    wire::Frame question;
    question.mutable_in_doubt();
    return call(rm, question).in_doubt_answer().branches_size();
  }
  void until(const std::function<bool()>& happened) {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (!happened()) {
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "it did not happen";
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
  }
  void until_logged(const std::string& words) {
    until([&] {
      return read_file(cluster().log_file("coordinator")).find(words) != std::string::npos;
    });
  }
};

TEST_F(RestoreTest, ABackupThatWasMadeBesideTheCoordinator) {
  ASSERT_NO_FATAL_FAILURE(read_from({"orders", "payments", "dispatch", "kitchen"}));
  // Left in doubt by an epoch of which the backup will know everything: no record, so aborted.
  kill();
  must_start({"--crash-at", "before:Persist"});
  submit_and_crash("undecided", "dispatch", "kitchen");
  kill("kitchen");
  // Decided after the backup: one participant is told, the other is not.
  must_start({"--crash-at", "after:Commit@orders#2"});
  EXPECT_EQ(submit("before"), Verdict::committed);
  back_up();
  submit_and_crash("lost");
  EXPECT_EQ(integers("orders"), (Keys{{"before", 1}, {"lost", 1}}));
  EXPECT_EQ(in_doubt("payments"), 1);

  put_in_place(scratch("backup"));
  must_start({}, "kitchen");
  EXPECT_EQ(in_doubt("kitchen"), 1);
  must_refuse("is marked as a backup");
  must_start({"--restored"});
  until_logged("may have been decided after the backup");
  until([&] { return in_doubt("kitchen") == 0; });
  EXPECT_EQ(integers("kitchen"), Keys{});
  EXPECT_EQ(submit("new"), Verdict::committed);

  // Later starts need no word of the operator, and still leave it alone.
  kill();
  must_start();
  EXPECT_EQ(submit("newer"), Verdict::committed);
  EXPECT_EQ(integers("orders"), (Keys{{"before", 1}, {"lost", 1}, {"new", 1}, {"newer", 1}}));
  EXPECT_EQ(integers("payments"), (Keys{{"before", 1}, {"new", 1}, {"newer", 1}}));
  EXPECT_EQ(in_doubt("payments"), 1);
  EXPECT_EQ(coordinator_number("heuristics"), 0);
}

TEST_F(RestoreTest, CommitsThatTheBackupRecordedAreCarriedOut) {
  kill();
  must_start({"--crash-at", "before:Commit"});
  submit_and_crash("decided");
  back_up();
  put_in_place(scratch("backup"));
  must_start({"--restored"});
  expect_quiet();
  for (const char* rm : {"orders", "payments"}) EXPECT_EQ(integers(rm), (Keys{{"decided", 1}}));
  EXPECT_EQ(coordinator_number("heuristics"), 0);
}

// They ended, and the low-water mark passed them, before the backup took the log's place.
TEST_F(RestoreTest, CommitsThatEndedSinceTheBackupAreNoHeuristics) {
  kill();
  must_start({"--crash-at", "before:Commit"});
  submit_and_crash("decided");
  back_up();
  must_start();
  EXPECT_EQ(submit("later"), Verdict::committed);
  expect_quiet();
  kill();
  put_in_place(scratch("backup"));
  must_start({"--restored"});
  EXPECT_EQ(submit("new"), Verdict::committed);
  expect_quiet();
  for (const char* rm : {"orders", "payments"}) {
    EXPECT_EQ(integers(rm), (Keys{{"decided", 1}, {"later", 1}, {"new", 1}}));
  }
  EXPECT_EQ(coordinator_number("heuristics"), 0);
}

// A plain copy bears no mark. A resource manager knows an epoch that the copy did not record,
// however often the copy was started meanwhile.
TEST_F(RestoreTest, APlainCopyIsFoundOutByTheResourceManagers) {
  EXPECT_EQ(submit("before"), Verdict::committed);
  expect_quiet();
  kill();
  fs::copy(log(), scratch("copy"), fs::copy_options::recursive);
  must_start({"--crash-at", "after:Commit@orders"});
  submit_and_crash("lost");
  const std::vector<std::string> stores{"orders", "payments", "dispatch", "kitchen"};
  for (const std::string& rm : stores) kill(rm);

  put_in_place(scratch("copy"));
  for (int starts = 0; starts < 3; ++starts) {
    must_start();  // nobody is there to tell it
    kill();
  }
  for (const std::string& rm : stores) must_start({}, rm);
  EXPECT_EQ(integers("orders"), (Keys{{"before", 1}, {"lost", 1}}));
  start();  // it may be found out before it is ready
  EXPECT_TRUE(cluster().wait_for_end("coordinator", kPatience));
  until_logged("is not the newest copy of itself");
  EXPECT_EQ(in_doubt("payments"), 1);
  must_refuse("knows a later epoch of it");

  must_start({"--restored"});
  until_logged("in an epoch that this log did not record");
  EXPECT_EQ(submit("new"), Verdict::committed);
  EXPECT_EQ(in_doubt("payments"), 1);
  EXPECT_EQ(integers("orders"), (Keys{{"before", 1}, {"lost", 1}, {"new", 1}}));
}

}  // namespace
}  // namespace twofold::test
