// The ways of a transaction through a real engine, a real log and the real protocol.

#include "tests/coordinator/engine_fixture.h"

namespace twofold::test {
namespace {

using Act = FakeParticipant;

TEST_F(EngineTest, commits_in_two_phases_and_keeps_the_outcome) {
  orders.results = encode_results({Value{std::int64_t{7}}});
  start_and_link();
  TestClient client;
  connect(client);
  const Outcome told = outcome(client, submission("r1"));
  EXPECT_EQ(told.verdict, Verdict::committed);
  ASSERT_EQ(told.results.size(), 1u);
  EXPECT_EQ(told.results[0].rm, "orders");
  EXPECT_EQ(told.results[0].results, orders.results);
  until([&] { return orders.committed.size() == 1 && payments.committed.size() == 1; });
  EXPECT_EQ(orders.last(wire::Frame::kStart).start().then(), wire::THEN_PREPARE);

  // Wherever it is asked for, and whenever: the same.
  const Outcome ended = outcome(client, question("r1", wire::REPLY_AT_END));
  EXPECT_EQ(ended.verdict, Verdict::committed);
  EXPECT_TRUE(ended.ended);
  EXPECT_EQ(ended.gtrid, told.gtrid);
  restart();
  TestClient again;
  connect(again);
  EXPECT_EQ(outcome(again, question("r1")).verdict, Verdict::committed);
  wire::Frame by_gtrid;
  by_gtrid.mutable_ask()->set_gtrid(told.gtrid);
  EXPECT_EQ(outcome(again, by_gtrid).verdict, Verdict::committed);
}

TEST_F(EngineTest, sends_the_remaining_time_in_milliseconds_and_the_work_unread) {
  start_and_link();
  TestClient client;
  connect(client);
  wire::Frame frame = submission("", {"orders", "payments"}, std::string("\x00\xff work", 7));
  frame.mutable_submit()->set_timeout_ms(1'500);
  frame.mutable_submit()->set_age_ms(250);
  EXPECT_EQ(outcome(client, frame).verdict, Verdict::committed);
  const wire::Start& sent = orders.last(wire::Frame::kStart).start();
  EXPECT_EQ(sent.work(), std::string("\x00\xff work", 7));
  EXPECT_GT(sent.remaining_ms(), 0u);
  EXPECT_LE(sent.remaining_ms(), 1'500u);
  EXPECT_GE(sent.age_ms(), 250u);
}

TEST_F(EngineTest, without_early_prepare_work_and_vote_take_two_round_trips) {
  options.early_prepare = false;
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
  EXPECT_EQ(orders.last(wire::Frame::kStart).start().then(), wire::THEN_NOTHING);
  EXPECT_EQ(orders.count("prepare"), 1u);
  EXPECT_EQ(orders.last(wire::Frame::kPrepare).prepare().incarnation(), 1u);
  EXPECT_EQ(orders.last(wire::Frame::kPrepare).prepare().work_items(), 1u);
}

TEST_F(EngineTest, a_single_branch_commits_in_one_phase) {
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, submission("r1", {"orders"})).verdict, Verdict::committed);
  EXPECT_EQ(orders.last(wire::Frame::kStart).start().then(), wire::THEN_COMMIT_ONE_PHASE);
  EXPECT_EQ(orders.count("commit"), 0u);
}

TEST_F(EngineTest, readers_are_released) {
  for (FakeParticipant* rm : {&orders, &payments}) {
    rm->script(wire::Frame::kStart, Act::code(Xa::rdonly));
  }
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
  until([&] { return orders.count("release") == 1 && payments.count("release") == 1; });
  EXPECT_EQ(orders.count("commit"), 0u);
}

TEST_F(EngineTest, a_refusal_names_its_resource_manager_and_survives_a_restart) {
  Refusal refusal{"", 0, "add", "min", "customer/c-1", "100", "0"};
  payments.script(wire::Frame::kStart, Act::refuse(refusal));
  start_and_link();
  TestClient client;
  connect(client);
  refusal.rm = "payments";
  Outcome told = outcome(client, submission("r1"));
  EXPECT_EQ(told.verdict, Verdict::aborted);
  EXPECT_EQ(told.reason, Reason::refused);
  EXPECT_EQ(told.refusals, std::vector<Refusal>{refusal});
  until([&] { return orders.count("rollback") == 1 && payments.count("rollback") == 1; });
  EXPECT_TRUE(orders.prepared.empty());

  const std::size_t started = payments.count("start");
  restart();
  TestClient again;
  connect(again);
  told = outcome(again, submission("r1"));
  EXPECT_EQ(told.reason, Reason::refused);
  EXPECT_EQ(told.refusals, std::vector<Refusal>{refusal});
  EXPECT_EQ(payments.count("start"), started) << "a request id runs once (rule 7)";
}

TEST_F(EngineTest, an_error_instead_of_a_vote_is_a_no) {
  payments.script(wire::Frame::kStart, Act::fail("the store cannot say"));
  start_and_link();
  TestClient client;
  connect(client);
  const Outcome told = outcome(client, submission("r1"));
  EXPECT_EQ(told.verdict, Verdict::aborted);
  EXPECT_TRUE(retryable(told.reason));
  EXPECT_NE(told.detail.find("payments"), std::string::npos) << told.detail;
}

TEST_F(EngineTest, work_too_large_for_a_resource_manager_is_invalid_with_both_sizes) {
  payments.frame_bytes_max = 100'000;
  start_and_link();
  TestClient client;
  connect(client);
  const Outcome told =
      outcome(client, submission("r1", {"orders", "payments"}, std::string(200'000, 'w')));
  EXPECT_EQ(told.verdict, Verdict::aborted);
  EXPECT_EQ(told.reason, Reason::refused);  // no retry could do better
  ASSERT_EQ(told.refusals.size(), 1u);
  EXPECT_EQ(told.refusals[0].rm, "payments");
  EXPECT_EQ(told.refusals[0].check, "invalid");
  EXPECT_NE(told.refusals[0].limit.find("100000"), std::string::npos) << told.refusals[0].limit;
  EXPECT_EQ(told.refusals[0].value.substr(0, 3), "200") << told.refusals[0].value;
  EXPECT_EQ(payments.count("start"), 0u);
  // The link has not suffered.
  EXPECT_EQ(outcome(client, submission("r2")).verdict, Verdict::committed);
}

TEST_F(EngineTest, the_low_water_mark_reaches_resource_managers) {
  options.mark_period_ms = 10;
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
  const TxnId first{1, 1};
  until([&] { return orders.mark() > first && payments.mark() > first; });
}

TEST_F(EngineTest, hundreds_at_once_all_end) {
  start_and_link();
  TestClient client;
  connect(client);
  constexpr int kMany = 500;
  for (int i = 0; i < kMany; ++i) {
    wire::Frame frame = submission("many-" + std::to_string(i));
    frame.mutable_submit()->set_reply_at(wire::REPLY_AT_END);
    client.send(frame);
  }
  until([&] { return client.answers.size() == kMany; });
  for (const auto& [request, frame] : client.answers) {
    ASSERT_TRUE(frame.has_outcome()) << frame.failure().text();
    EXPECT_EQ(from_wire(frame.outcome()).verdict, Verdict::committed);
    EXPECT_TRUE(frame.outcome().ended());
  }
  EXPECT_EQ(orders.committed.size(), static_cast<std::size_t>(kMany));
  EXPECT_TRUE(payments.prepared.empty());
}

}  // namespace
}  // namespace twofold::test
