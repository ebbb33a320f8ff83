// No room on disk, for real: the kernel lets a running process write no further (RLIMIT_FSIZE). New
// transactions are refused with a clear error, nothing that was told is lost, nothing stays locked,
// and service resumes by itself when there is room again (rule 23).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/process/fixture.h"

namespace twofold::test {
namespace {

class FullTest : public ClusterTest {
 protected:
  void limit_file_size(const std::string& name, rlim_t bytes) {
    const auto process = cluster().open_process(name);
    ASSERT_TRUE(process.has_value());
    rlimit limit{};
    ASSERT_EQ(::prlimit(process->id().pid, RLIMIT_FSIZE, nullptr, &limit), 0);
    limit.rlim_cur = bytes;
    ASSERT_EQ(::prlimit(process->id().pid, RLIMIT_FSIZE, &limit, nullptr), 0);
  }

  static client::Transaction transfer(const std::string& key) {
    const Operation put{"put", {{"key", Value{key}}, {"value", Value{std::int64_t{1}}}}};
    client::Transaction transaction;
    transaction.branches = {{"orders", {put}}, {"payments", {put}}};
    return transaction;
  }

  client::Options one_try() const {
    client::Options options = client_options();
    options.retries = 0;
    return options;
  }

  void expect_refused_then_resumed(const std::string& name) {
    client::Client once(one_try()), patient(client_options());
    EXPECT_EQ(patient.submit(transfer("before")).outcome.verdict, Verdict::committed);
    expect_quiet();
    limit_file_size(name, 0);
    const Outcome refused = once.submit(transfer("without-room")).outcome;
    EXPECT_EQ(refused.verdict == Verdict::committed, false);
    EXPECT_EQ(refused.reason, Reason::space) << refused.detail;
    EXPECT_THAT(refused.detail, ::testing::HasSubstr("larger map"));

    limit_file_size(name, RLIM_INFINITY);
    EXPECT_EQ(patient.submit(transfer("after")).outcome.verdict, Verdict::committed);
    expect_quiet();
    for (const char* rm : {"orders", "payments"}) {
      EXPECT_EQ(integers(rm), (std::map<std::string, std::int64_t>{{"after", 1}, {"before", 1}}));
    }
  }
};

TEST_F(FullTest, LogWithoutRoom) {
  expect_refused_then_resumed("coordinator");
}

TEST_F(FullTest, StoreWithoutRoom) {
  expect_refused_then_resumed("payments");
}

TEST_F(FullTest, CommitsThatAreDecidedWaitForRoomInTheStore) {
  client::Client once(one_try());
  // Holds the coordinator between the decision and the commits, so that the store fills in between.
  ASSERT_TRUE(cluster().kill("coordinator").has_value());
  lab::StartOptions options;
  options.arguments = {"--crash-at", "before:Commit"};
  ASSERT_TRUE(cluster().start("coordinator", options).has_value());
  client::Options unsure = client_options();
  unsure.give_up = std::chrono::milliseconds{3'000};
  EXPECT_EQ(client::Client(unsure).submit(transfer("decided")).outcome.verdict, Verdict::unknown);
  limit_file_size("payments", 0);
  ASSERT_TRUE(cluster().start("coordinator").has_value());
  // The store cannot even record the coordinator's new epoch; what is decided waits, and nothing
  // else.
  const Outcome refused = once.submit(transfer("refused")).outcome;
  EXPECT_EQ(refused.verdict == Verdict::committed, false);
  EXPECT_TRUE(retryable(refused.reason)) << refused.detail;
  EXPECT_EQ(integers("payments").count("decided"), 0u);
  limit_file_size("payments", RLIM_INFINITY);
  expect_quiet();
  EXPECT_EQ(integers("payments").at("decided"), 1);
  EXPECT_EQ(integers("orders").at("decided"), 1);
}

TEST_F(FullTest, PreparedBranchWithoutItsCoordinatorKeepsItsLocks) {
  ASSERT_NO_FATAL_FAILURE(read_from({"orders", "payments", "dispatch", "kitchen"}));
  ASSERT_TRUE(cluster().kill("coordinator").has_value());
  lab::StartOptions options;
  options.arguments = {"--crash-at", "before:Durable"};
  ASSERT_TRUE(cluster().start("coordinator", options).has_value());
  client::Options unsure = client_options();
  unsure.give_up = std::chrono::milliseconds{3'000};
  EXPECT_EQ(client::Client(unsure).submit(transfer("held")).outcome.verdict, Verdict::unknown);
  wire::Frame in_doubt;
  in_doubt.mutable_in_doubt();
  EXPECT_EQ(call("payments", in_doubt).in_doubt_answer().branches_size(), 1);
  wire::Frame locks;
  locks.mutable_locks()->set_entries_max(10);
  const auto held = call("payments", locks).locks_answer();
  ASSERT_EQ(held.entries_size(), 1);
  EXPECT_EQ(held.entries(0).key(), "held");
  EXPECT_TRUE(held.entries(0).holders(0).prepared());
  ASSERT_TRUE(cluster().start("coordinator").has_value());
  expect_quiet();
  EXPECT_EQ(integers("payments").at("held"), 1);  // the record was durable
}

}  // namespace
}  // namespace twofold::test
