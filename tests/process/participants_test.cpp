// Participants that go: one that may hold branches is not left out of the configuration and does
// not come back with another store, until it is drained (docs/participants.md). By the programs, as
// an operator does it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "client/interactive.h"
#include "tests/process/fixture.h"

namespace twofold::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kPatience{30};

class ParticipantsTest : public ClusterTest {
 protected:
  Outcome submit(std::vector<std::string> rms, std::chrono::milliseconds give_up = kPatience,
                 unsigned retries = 1'000) {
    client::Transaction transaction;
    for (std::string& rm : rms) {
      transaction.branches.push_back(
          {std::move(rm), {{"put", {{"key", Value{"k"}}, {"value", Value{std::int64_t{1}}}}}}});
    }
    transaction.wait_for_end = true;
    client::Options options = client_options();
    options.give_up = give_up;
    options.retries = retries;
    return client::Client(options).submit(std::move(transaction)).outcome;
  }
  Ran twofold(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--data", data()});
    return run("twofold", arguments);
  }
  void start(const std::string& name, std::vector<std::string> arguments = {}) {
    lab::StartOptions options;
    options.arguments = std::move(arguments);
    const auto started = cluster().start(name, options);
    ASSERT_TRUE(started) << started.error().message;
  }
  // The coordinator dies between the votes and its decision, which the log then has no trace of.
  void leave_in_doubt_at_kitchen() {
    ASSERT_TRUE(cluster().kill("coordinator"));
    start("coordinator", {"--crash-at", "after:Voted@kitchen"});
    EXPECT_EQ(submit({"orders", "kitchen"}, std::chrono::seconds{2}).verdict, Verdict::unknown);
    ASSERT_TRUE(cluster().wait_for_end("coordinator", kPatience));
  }
  // A configuration without that participant.
  fs::path configuration_without(const std::string& name) {
    const std::string text = read_file(cluster().configuration_file());
    const auto named = text.find("name = \"" + name + "\"");
    const auto named_so = named != std::string::npos ? named : text.find("name = '" + name + "'");
    EXPECT_NE(named_so, std::string::npos) << text;
    const auto begin = text.rfind("[[resource_manager]]", named_so);
    const auto end = std::min(text.find("[[resource_manager]]", named_so), text.size());
    const fs::path file = scratch("without.toml");
    std::ofstream(file) << text.substr(0, begin) << text.substr(end);
    return file;
  }
  Result<lab::Cluster> lay_out(const fs::path& configuration) {
    lab::ClusterOptions options;
    options.directory = data();
    options.configuration = configuration;
    options.programs = TWOFOLD_BIN_DIR;
    options.kill_at_end = true;
    return lab::Cluster::create(options);
  }
  std::string standing(const std::string& rm) {
    const Ran ran = twofold({"stats", "coordinator"});
    const auto at = ran.out.find(rm + ".participant");
    return at == std::string::npos ? ran.out : ran.out.substr(at, ran.out.find('\n', at) - at);
  }
  void wait_for_standing(const std::string& rm, const std::string& wanted) {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (standing(rm).find(wanted) == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << standing(rm);
    }
  }
};

TEST_F(ParticipantsTest, OneThatWasNotDrainedIsNotLeftOut) {
  ASSERT_EQ(submit({"orders", "kitchen"}).verdict, Verdict::committed);
  leave_in_doubt_at_kitchen();
  cluster().stop_all();
  const std::string before = read_file(cluster().configuration_file());
  const fs::path without = configuration_without("kitchen");
  const auto refused = lay_out(without);
  ASSERT_TRUE(refused.has_error());
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("leaves out kitchen"), HasSubstr("twofold drain kitchen")));
  EXPECT_EQ(read_file(cluster().configuration_file()), before) << "it can be started as it was";

  ASSERT_TRUE(cluster().start_all());
  const Ran drained = twofold({"drain", "kitchen"});
  EXPECT_EQ(drained.status, 0) << drained.err;
  EXPECT_THAT(drained.out, HasSubstr("kitchen is drained"));
  EXPECT_THAT(twofold({"in-doubt"}).out, HasSubstr("nothing is in doubt"));
  EXPECT_EQ(submit({"orders", "kitchen"}, kPatience, 0).reason, Reason::unavailable);
  cluster().stop_all();

  auto smaller = lay_out(without);
  ASSERT_TRUE(smaller) << smaller.error().message;
  ASSERT_TRUE(smaller->start_all());
  EXPECT_EQ(submit({"orders", "payments"}).verdict, Verdict::committed);
  EXPECT_EQ(submit({"orders", "kitchen"}).reason, Reason::invalid);
  smaller->stop_all();
}

TEST_F(ParticipantsTest, WhatIsDecidedAndNotEndedIsListed) {
  ASSERT_TRUE(cluster().kill("coordinator"));
  start("coordinator", {"--crash-at", "before:Commit@kitchen"});
  EXPECT_EQ(submit({"orders", "kitchen"}, std::chrono::seconds{2}).verdict, Verdict::unknown);
  ASSERT_TRUE(cluster().wait_for_end("coordinator", kPatience));
  const fs::path without = configuration_without("kitchen");
  const Ran check =
      run("twofold-coordinator", {"--config", without.string(), "--log",
                                  (fs::path(data()) / "coordinator" / "log").string(), "--check"});
  EXPECT_EQ(check.status, 1);
  EXPECT_THAT(check.err, HasSubstr("Known to be open: 2.1 at kitchen"));
  start("coordinator");
  expect_quiet();
}

TEST_F(ParticipantsTest, ACheckTellsWhatAStartWould) {
  const std::string log = (fs::path(data()) / "coordinator" / "log").string();
  const std::string copy = scratch("copy").string();
  ASSERT_EQ(run("twofold-log", {"backup", log, copy}).status, 0);
  const auto check = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"--config", cluster().configuration_file().string(),
                                       "--check"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("twofold-coordinator", arguments);
  };
  EXPECT_EQ(check({}).status, 0) << "beside the one that runs";
  const Ran marked = check({"--log", copy});
  EXPECT_EQ(marked.status, 1);
  EXPECT_THAT(marked.err, AllOf(HasSubstr("is marked as a backup"), HasSubstr("--restored")));
  EXPECT_EQ(check({"--log", copy, "--restored"}).status, 0);
  // A configuration elsewhere names a log there.
  const fs::path elsewhere = scratch("elsewhere.toml");
  fs::copy_file(cluster().configuration_file(), elsewhere);
  const Ran missing = run("twofold-coordinator", {"--config", elsewhere.string(), "--check"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("there is no log in "), HasSubstr("--log DIR"),
                                 Not(HasSubstr("twofold-log init"))));
}

// From another terminal: who waits for the drain does not begin it again.
TEST_F(ParticipantsTest, ADrainThatIsTakenBackStaysTakenBack) {
  ASSERT_EQ(submit({"payments"}).verdict, Verdict::committed);
  client::Client client(client_options());
  auto begun = client.begin({std::chrono::seconds{60}, {}});
  ASSERT_TRUE(begun) << begun.error().message;
  begun->work("payments", {{"put", {{"key", Value{"k"}}, {"value", Value{std::int64_t{7}}}}}});
  Ran waited;
  std::thread waiter([&] { waited = twofold({"drain", "payments"}); });
  wait_for_standing("payments", "draining, serving");
  const Ran taken_back = twofold({"drain", "payments", "--cancel"});
  EXPECT_THAT(taken_back.out, HasSubstr("payments is active")) << taken_back.err;
  waiter.join();
  EXPECT_EQ(waited.status, 1);
  EXPECT_THAT(waited.err, HasSubstr("payments is active again"));
  EXPECT_THAT(standing("payments"), HasSubstr("active, serving"));
  EXPECT_EQ(begun->commit().verdict, Verdict::committed);
  EXPECT_EQ(submit({"payments"}).verdict, Verdict::committed);
}

// Given up, with a hazard on record, and then found again: what it held in doubt ends as was
// decided.
TEST_F(ParticipantsTest, ALostStoreThatTurnsUpEndsItsBranchesAsDecided) {
  ASSERT_TRUE(cluster().kill("coordinator"));
  start("coordinator", {"--crash-at", "before:Commit@kitchen"});
  EXPECT_EQ(submit({"orders", "kitchen"}, std::chrono::seconds{2}).verdict, Verdict::unknown);
  ASSERT_TRUE(cluster().wait_for_end("coordinator", kPatience));
  const fs::path store = fs::path(data()) / "kitchen";
  ASSERT_TRUE(cluster().kill("kitchen"));
  fs::rename(store, scratch("lost"));
  start("kitchen");
  start("coordinator", {"--accept-store", "kitchen"});
  wait_for_standing("kitchen", "active, serving");
  ASSERT_EQ(twofold({"drain", "kitchen"}).status, 0);
  EXPECT_EQ(coordinator_number("heuristics"), 1);

  ASSERT_TRUE(cluster().kill("kitchen"));
  fs::remove_all(store);
  fs::rename(scratch("lost"), store);
  start("kitchen");
  const std::map<std::string, std::int64_t> committed{{"k", 1}};
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (integers("kitchen") != committed) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "rolled back, or forgotten";
  }
  expect_quiet();
  EXPECT_EQ(coordinator_number("heuristics"), 1) << "it is still for a person to look at";
}

TEST_F(ParticipantsTest, DrainingWaitsForWhatRunsAndIsTakenBack) {
  ASSERT_EQ(submit({"payments"}).verdict, Verdict::committed);
  client::Client client(client_options());
  auto begun = client.begin({std::chrono::seconds{60}, {}});
  ASSERT_TRUE(begun) << begun.error().message;
  begun->work("payments", {{"put", {{"key", Value{"k"}}, {"value", Value{std::int64_t{7}}}}}});
  const Ran begins = twofold({"drain", "payments", "--no-wait"});
  EXPECT_THAT(begins.out, HasSubstr("payments is draining: 1 open transaction")) << begins.err;
  EXPECT_EQ(submit({"payments"}, kPatience, 0).reason, Reason::unavailable);
  EXPECT_EQ(begun->commit().verdict, Verdict::committed) << "what runs there goes on";
  const Ran drained = twofold({"drain", "payments", "--json"});
  EXPECT_THAT(drained.out, HasSubstr(R"("state":"drained")")) << drained.err;

  ASSERT_TRUE(cluster().kill("coordinator"));
  start("coordinator");
  wait_for_standing("payments", "drained, serving");
  EXPECT_EQ(submit({"payments"}, kPatience, 0).reason, Reason::unavailable);
  const Ran taken_back = twofold({"drain", "payments", "--cancel"});
  EXPECT_THAT(taken_back.out, HasSubstr("payments is active")) << taken_back.err;
  EXPECT_EQ(submit({"payments"}).verdict, Verdict::committed);
  EXPECT_THAT(twofold({"drain", "bakery"}).err, HasSubstr("unknown resource manager"));
}

// Killed on the way: the next one goes on, or is told again.
TEST_F(ParticipantsTest, ACoordinatorThatDiesWhileItDrains) {
  ASSERT_EQ(submit({"orders", "kitchen"}).verdict, Verdict::committed);
  for (const char* point : {"before:Drain", "after:Drain", "before:DrainTold"}) {
    ASSERT_TRUE(cluster().kill("coordinator"));
    start("coordinator", {"--crash-at", point});
    EXPECT_NE(twofold({"drain", "kitchen"}).status, 0);
    ASSERT_TRUE(cluster().wait_for_end("coordinator", kPatience)) << point;
    start("coordinator");
    EXPECT_EQ(twofold({"drain", "kitchen"}).status, 0) << point;
    EXPECT_EQ(twofold({"drain", "kitchen", "--cancel"}).status, 0) << point;
    EXPECT_EQ(submit({"orders", "kitchen"}).verdict, Verdict::committed) << point;
  }
}

// As if its address led to a new one, or its disk had been replaced.
TEST_F(ParticipantsTest, AnotherStoreInItsPlaceIsNotUsedUntilTheOperatorSaysSo) {
  ASSERT_EQ(submit({"orders", "kitchen"}).verdict, Verdict::committed);
  const fs::path store = fs::path(data()) / "kitchen";
  ASSERT_TRUE(cluster().kill("kitchen"));
  fs::rename(store, scratch("former"));
  start("kitchen");
  wait_for_standing("kitchen", "active, barred");
  const Outcome refused = submit({"orders", "kitchen"}, kPatience, 0);
  EXPECT_EQ(refused.reason, Reason::unavailable);
  EXPECT_THAT(refused.detail, HasSubstr("another store"));
  EXPECT_THAT(read_file(cluster().log_file("coordinator")),
              AllOf(HasSubstr("ALARM kitchen answers with another store"),
                    HasSubstr("--accept-store kitchen")));

  // The former one comes back, and all is well.
  ASSERT_TRUE(cluster().kill("kitchen"));
  fs::remove_all(store);
  fs::rename(scratch("former"), store);
  start("kitchen");
  EXPECT_EQ(submit({"orders", "kitchen"}).verdict, Verdict::committed);

  // It is lost for good, with a branch that was decided.
  ASSERT_TRUE(cluster().kill("coordinator"));
  start("coordinator", {"--crash-at", "before:Commit@kitchen"});
  EXPECT_EQ(submit({"orders", "kitchen"}, std::chrono::seconds{2}).verdict, Verdict::unknown);
  ASSERT_TRUE(cluster().wait_for_end("coordinator", kPatience));
  ASSERT_TRUE(cluster().kill("kitchen"));
  fs::remove_all(store);
  start("kitchen");
  start("coordinator", {"--accept-store", "kitchen"});
  EXPECT_EQ(submit({"orders", "kitchen"}).verdict, Verdict::committed);
  expect_quiet();
  EXPECT_EQ(coordinator_number("heuristics"), 1);
}

// Moved the proper way: drained, then another store answers, with no word from the operator.
TEST_F(ParticipantsTest, ADrainedOneMayComeBackWithAnotherStore) {
  ASSERT_EQ(submit({"orders", "kitchen"}).verdict, Verdict::committed);
  ASSERT_EQ(twofold({"drain", "kitchen"}).status, 0);
  ASSERT_TRUE(cluster().kill("kitchen"));
  fs::remove_all(fs::path(data()) / "kitchen");
  start("kitchen");
  wait_for_standing("kitchen", "active, serving");
  EXPECT_EQ(submit({"orders", "kitchen"}).verdict, Verdict::committed);
  EXPECT_THAT(integers("kitchen"), ::testing::SizeIs(1));
}

}  // namespace
}  // namespace twofold::test
