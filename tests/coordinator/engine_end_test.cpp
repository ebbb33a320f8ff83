// How an engine starts, ends, and behaves when its log has no room.

#include "tests/coordinator/engine_fixture.h"

namespace twofold::test {
namespace {

using Act = FakeParticipant;

TEST_F(EngineTest, a_log_of_another_node_is_refused_with_both_names) {
  node = "other";
  auto store = LmdbDecisionStore::open(log());
  ASSERT_TRUE(store);
  coordinator::EngineOptions wrong;
  wrong.configuration = configuration();
  try {
    coordinator::Engine engine(std::move(wrong), std::move(*store));
    FAIL() << "it started";
  } catch (const std::runtime_error& fault) {
    const std::string text = fault.what();
    EXPECT_NE(text.find("\"main\""), std::string::npos) << text;
    EXPECT_NE(text.find("\"other\""), std::string::npos) << text;
  }
}

TEST_F(EngineTest, an_address_in_use_is_refused) {
  start();
  TemporaryDirectory second;
  ASSERT_TRUE(LmdbDecisionStore::init(second.path() / "log", "main", 8u << 20));
  auto store = LmdbDecisionStore::open(second.path() / "log");
  ASSERT_TRUE(store);
  coordinator::EngineOptions same;
  same.configuration = configuration();
  same.configuration.coordinator.listen = to_text(address_);
  EXPECT_THROW(coordinator::Engine(std::move(same), std::move(*store)), std::runtime_error);
}

TEST_F(EngineTest, shutdown_of_an_idle_engine_ends_at_once) {
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
  ask_to_shut_down();
  join_after_shutdown();
  until([&] { return client.closed.has_value() && !orders.connected(); });
}

TEST_F(EngineTest, shutdown_aborts_what_is_not_decided_and_tells_so) {
  payments.script(wire::Frame::kStart, Act::hang());
  start_and_link();
  TestClient client;
  connect(client);
  const std::uint64_t request = client.send(submission("slow"));
  until([&] { return payments.hanging() == 1; });
  ask_to_shut_down();
  until([&] { return client.answers.count(request) > 0; });
  const Outcome told = from_wire(client.answers[request].outcome());
  EXPECT_EQ(told.verdict, Verdict::aborted);
  EXPECT_EQ(told.reason, Reason::shutdown);
  join_after_shutdown();
  EXPECT_EQ(orders.count("rollback"), 1u);
}

TEST_F(EngineTest, shutdown_waits_for_branches_under_way_and_takes_nothing_new) {
  options.shutdown_grace_ms = 20'000;
  payments.script(wire::Frame::kCommit, Act::hang());
  start_and_link();
  TestClient client;
  connect(client);
  wire::Frame frame = submission("r1");
  frame.mutable_submit()->set_reply_at(wire::REPLY_AT_END);
  const std::uint64_t request = client.send(frame);
  until([&] { return payments.hanging() == 1; });
  ask_to_shut_down();
  // The order of signals and submissions is not the test's: until it is rejected, it may still run.
  for (int i = 0;; ++i) {
    const Outcome told = outcome(client, submission("late-" + std::to_string(i)));
    if (told.reason == Reason::shutdown) break;
    ASSERT_EQ(told.verdict, Verdict::committed);
  }
  payments.answer_hanging();
  until([&] { return client.answers.count(request) > 0; });
  EXPECT_TRUE(client.answers[request].outcome().ended());
  join_after_shutdown();
}

TEST_F(EngineTest, at_the_end_of_the_grace_the_rest_is_told_what_is_known) {
  options.shutdown_grace_ms = 50;
  payments.script(wire::Frame::kCommit, Act::hang());
  orders.script(wire::Frame::kStart, Act::hang());
  start_and_link();
  TestClient client;
  connect(client);
  const std::uint64_t single = client.send(submission("single", {"orders"}));
  until([&] { return orders.hanging() == 1; });
  wire::Frame frame = submission("decided");
  frame.mutable_submit()->set_reply_at(wire::REPLY_AT_END);
  const std::uint64_t decided = client.send(frame);
  until([&] { return payments.hanging() == 1; });
  ask_to_shut_down();
  until([&] { return client.answers.size() == 2; });
  EXPECT_EQ(from_wire(client.answers[single].outcome()).verdict, Verdict::unknown);
  EXPECT_EQ(from_wire(client.answers[single].outcome()).reason, Reason::shutdown);
  EXPECT_EQ(from_wire(client.answers[decided].outcome()).verdict, Verdict::committed);
  EXPECT_FALSE(client.answers[decided].outcome().ended());
  join_after_shutdown();
  // The next start goes on with both.
  start();
  until([&] { return payments.committed.size() == 1; });
  TestClient again;
  connect(again);
  EXPECT_TRUE(outcome(again, question("decided", wire::REPLY_AT_END)).ended);
  // The intent came to nothing: it is told aborted while it is remembered, and has never happened
  // after.
  const Verdict single_ended = outcome(again, question("single")).verdict;
  EXPECT_TRUE(single_ended == Verdict::aborted || single_ended == Verdict::not_found);
}

TEST_F(EngineTest, a_log_that_fills_up_refuses_new_work_and_recovers_when_there_is_room) {
  make_log("main", 1u << 20);
  options.scan_period_ms = 50;
  start_and_link();
  TestClient client;
  connect(client);
  // Outcomes are kept: at some point the log is 80 % full. Long request ids fill it sooner.
  std::size_t committed = 0;
  std::size_t rejected = 0;
  for (int batch = 0; batch < 200 && rejected == 0; ++batch) {
    for (int i = 0; i < 100; ++i) {
      const std::string id = std::to_string(100 * batch + i) + std::string(100, '-');
      client.send(submission(id));
    }
    until([&] { return client.answers.size() == 100u; });
    for (const auto& [request, frame] : std::exchange(client.answers, {})) {
      const Outcome told = from_wire(frame.outcome());
      committed += told.verdict == Verdict::committed;
      rejected += told.verdict == Verdict::rejected;
      if (told.verdict != Verdict::committed) {
        EXPECT_EQ(told.reason, Reason::space) << told.detail;
      }
    }
  }
  EXPECT_GT(rejected, 0u);
  EXPECT_GT(committed, 100u);
  // What was under way has ended, and outcomes can still be asked for.
  until([&] { return orders.prepared.empty() && payments.prepared.empty(); });
  EXPECT_EQ(orders.committed.size(), committed);
  const Outcome first = outcome(client, question("0" + std::string(100, '-'), wire::REPLY_AT_END));
  EXPECT_EQ(first.verdict, Verdict::committed);

  // An operator lowers outcomes_max: scans let old outcomes go, and service resumes by itself.
  options.outcomes_max = 10;
  crash();
  start_and_link();
  TestClient again;
  connect(again);
  Outcome told;
  do {
    wire::Frame frame = submission("after");
    *frame.mutable_submit()->mutable_known() = again.welcome.newest();
    told = outcome(again, frame);
  } while (told.verdict == Verdict::rejected);
  EXPECT_EQ(told.verdict, Verdict::committed) << told.detail;
}

}  // namespace
}  // namespace twofold::test
