// Links that break, resource managers that refuse or talk nonsense, and recovery after a restart.

#include <gmock/gmock.h>

#include "coordinator/link.h"
#include "tests/coordinator/engine_fixture.h"

namespace twofold::test {
namespace {

using Act = FakeParticipant;

// One of a statistic's texts.
std::string text_of(const wire::Frame& stats, const std::string& name) {
  for (const auto& text : stats.stats_answer().texts()) {
    if (text.name() == name) return text.value();
  }
  return "(not there)";
}
std::int64_t number_of(const wire::Frame& stats, const std::string& name) {
  for (const auto& number : stats.stats_answer().numbers()) {
    if (number.name() == name) return number.value();
  }
  return -1;
}
wire::Frame stats() {
  wire::Frame frame;
  frame.mutable_stats();
  return frame;
}

class EngineLinkTest : public EngineTest {
 protected:
  // A branch of the epoch that `orders` has seen last, in doubt unless somebody rolls it back.
  wire::Xid orphan(std::uint64_t sequence) {
    const wire::Hello& hello = orders.hello();
    Gtrid gtrid{{hello.log_id()}, hello.epoch(), hello.nonce(), sequence, hello.node()};
    wire::Xid out;
    to_wire({kFormatId, gtrid.encode(), Bqual{0, "orders"}.encode()}, out);
    return out;
  }
  // An interactive transaction with a branch at both; its gtrid.
  std::string begin(TestClient& client) {
    wire::Frame frame;
    frame.mutable_begin()->set_timeout_ms(15'000);
    const std::string gtrid = outcome(client, frame).gtrid;
    for (const char* rm : {"orders", "payments"}) {
      frame.mutable_enlist()->set_gtrid(gtrid);
      frame.mutable_enlist()->set_rm(rm);
      EXPECT_TRUE(call(client, frame).has_enlisted());
    }
    return gtrid;
  }
  static wire::Frame commit_of(const std::string& gtrid) {
    wire::Frame frame;
    frame.mutable_finish()->set_gtrid(gtrid);
    frame.mutable_finish()->set_commit(true);
    return frame;
  }
  static void report_wait(FakeParticipant& at, std::int32_t format_id, const std::string& waiter,
                          const std::string& holder) {
    wire::Frame frame;
    wire::Waits::Wait& wait = *frame.mutable_waits()->add_waits();
    to_wire({format_id, waiter, "b"}, *wait.mutable_waiter());
    to_wire({format_id, holder, "b"}, *wait.mutable_holder());
    at.send(frame);
  }
  void until_stats(TestClient& client, const std::function<bool(const wire::Frame&)>& good) {
    for (int i = 0; i < 1'000; ++i) {
      if (good(call(client, stats()))) return;
    }
    FAIL() << "the statistics do not say so";
  }
};

// The event loop may outlive a link: what was under way then ends without it.
TEST(Link, may_go_while_the_event_loop_goes_on) {
  struct Stub final : coordinator::Driver {
    boost::asio::io_context loop;
    int posted = 0;
    boost::asio::io_context& io() override { return loop; }
    void post(coordinator::Event) override { ++posted; }
    const coordinator::Coordinator& settled_core() override { throw std::logic_error("unused"); }
    TxnId newest() const override { return {}; }
    void add_stats(wire::StatsAnswer&) override {}
    void outdated(const std::string&, const std::string&) override {}
  } driver;
  boost::asio::ip::tcp::acceptor silent(driver.loop,
                                        {boost::asio::ip::make_address("127.0.0.1"), 0});
  boost::asio::ip::tcp::acceptor closed(driver.loop,
                                        {boost::asio::ip::make_address("127.0.0.1"), 0});
  const std::uint16_t closed_port = closed.local_endpoint().port();
  closed.close();
  for (const std::uint16_t port : {silent.local_endpoint().port(), closed_port}) {
    coordinator::LinkOptions options;
    options.address = {"127.0.0.1", port};
    options.reconnect_first = options.reconnect_max = std::chrono::milliseconds{1};
    for (int turns = 0; turns < 6; ++turns) {
      auto link = std::make_unique<coordinator::Link>(driver, options);
      link->connect();
      driver.loop.restart();
      for (int turn = 0; turn < turns; ++turn) driver.loop.poll_one();
      link.reset();
      driver.loop.restart();
      driver.loop.run();  // ends, as nothing is left to wait for
    }
  }
  EXPECT_EQ(driver.posted, 0);
}

TEST_F(EngineLinkTest, a_link_lost_before_the_vote_aborts) {
  payments.script(wire::Frame::kStart, Act::lose_the_link());
  start_and_link();
  TestClient client;
  connect(client);
  const Outcome told = outcome(client, submission("r1"));
  EXPECT_EQ(told.verdict, Verdict::aborted);
  EXPECT_EQ(told.reason, Reason::lost);
  until([&] { return orders.prepared.empty() && orders.count("rollback") == 1; });
  // It comes back by itself, in a later session.
  until([&] { return payments.connected(); });
  EXPECT_GE(payments.hello().session(), 2u);
}

TEST_F(EngineLinkTest, a_commit_whose_link_is_lost_is_sent_again) {
  payments.script(wire::Frame::kCommit, Act::lose_the_link());
  start_and_link();
  TestClient client;
  connect(client);
  wire::Frame frame = submission("r1");
  frame.mutable_submit()->set_reply_at(wire::REPLY_AT_END);
  const Outcome told = outcome(client, frame);
  EXPECT_EQ(told.verdict, Verdict::committed);
  EXPECT_TRUE(told.ended);
  EXPECT_EQ(payments.committed.size(), 1u);
}

TEST_F(EngineLinkTest, a_resource_manager_that_is_down_refuses_new_work_until_it_is_back) {
  payments.stop();
  start();
  until([&] { return orders.count("recover") > 0; });
  TestClient client;
  connect(client);
  const Outcome told = outcome(client, submission("r1"));
  EXPECT_EQ(told.reason, Reason::unavailable);
  EXPECT_NE(told.detail.find("payments"), std::string::npos) << told.detail;
  EXPECT_EQ(orders.count("start"), 0u);
  payments.start();
  until([&] { return payments.count("recover") > 0; });
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
}

TEST_F(EngineLinkTest, what_was_decided_before_a_crash_is_finished_after_it) {
  for (FakeParticipant* rm : {&orders, &payments}) rm->script(wire::Frame::kCommit, Act::hang());
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
  until([&] { return orders.hanging() == 1 && payments.hanging() == 1; });
  restart();
  until([&] { return orders.committed.size() == 1 && payments.committed.size() == 1; });
  TestClient again;
  connect(again);
  const Outcome told = outcome(again, question("r1", wire::REPLY_AT_END));
  EXPECT_EQ(told.verdict, Verdict::committed);
  EXPECT_TRUE(told.ended);
}

TEST_F(EngineLinkTest, what_was_not_decided_before_a_crash_is_rolled_back_after_it) {
  payments.script(wire::Frame::kStart, Act::hang());
  start_and_link();
  TestClient client;
  connect(client);
  client.send(submission("r1"));
  until([&] { return orders.prepared.size() == 1 && payments.hanging() == 1; });
  restart();
  until([&] { return orders.prepared.empty(); });
  EXPECT_EQ(orders.count("rollback"), 1u);
  TestClient again;
  connect(again);
  EXPECT_EQ(outcome(again, question("r1")).verdict, Verdict::not_found);
}

TEST_F(EngineLinkTest, an_intent_whose_answer_is_lost_is_settled_by_evidence) {
  orders.script(wire::Frame::kStart, [](FakeParticipant& self, const wire::Frame& request) {
    self.committed.insert(to_text(from_wire(request.start().xid()).value()));
    self.disconnect();  // it has committed, and nobody hears of it
  });
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, submission("r1", {"orders"})).verdict, Verdict::committed);
  EXPECT_EQ(orders.count("ask"), 1u);
  EXPECT_EQ(orders.last(wire::Frame::kAskOutcome).ask_outcome().store_id(), 4711u);
}

TEST_F(EngineLinkTest, sessions_rise_and_carry_the_identity_of_the_log) {
  start_and_link();
  const wire::Hello first = orders.hello();
  EXPECT_EQ(first.role(), wire::ROLE_COORDINATOR);
  EXPECT_EQ(first.node(), "main");
  EXPECT_EQ(first.expects(), "orders");
  EXPECT_EQ(first.epoch(), 1u);
  orders.disconnect();
  until([&] { return orders.connected(); });
  EXPECT_GT(orders.hello().session(), first.session());
  EXPECT_EQ(orders.hello().nonce(), first.nonce());
  restart();
  until([&] { return orders.connected() && orders.hello().epoch() == 2; });
  EXPECT_EQ(orders.hello().log_id(), first.log_id());
  EXPECT_NE(orders.hello().nonce(), first.nonce());
}

TEST_F(EngineLinkTest, a_refused_session_is_shown_with_its_reason_and_asked_for_again) {
  orders.refuse_hello = {wire::FAILURE_WRONG_LOG, "epoch 9 is of another log"};
  options.reconnect_max_ms = 50;
  start();
  TestClient client;
  connect(client);
  until_stats(client, [](const wire::Frame& told) {
    return text_of(told, "orders.link").find("refused: ") == 0 &&
           text_of(told, "orders.link").find("epoch 9") != std::string::npos;
  });
  orders.refuse_hello = {};
  until([&] { return orders.count("recover") > 0; });
}

TEST_F(EngineLinkTest, hello_names_the_earlier_epochs_the_newest_first) {
  start_and_link();
  const std::uint64_t first = orders.hello().nonce();
  EXPECT_EQ(orders.hello().earlier_size(), 0);
  restart();
  until([&] { return orders.connected() && orders.hello().epoch() == 2; });
  const std::uint64_t second = orders.hello().nonce();
  restart();
  until([&] { return orders.connected() && orders.hello().epoch() == 3; });
  EXPECT_THAT(orders.hello().earlier(), testing::ElementsAre(second, first));
}

// Rule 2: it ends without deciding anything more, and its log is marked, so that another start does
// not make it look newer.
TEST_F(EngineLinkTest, a_resource_manager_that_knows_a_newer_copy_ends_the_coordinator) {
  start_and_link();
  restart();
  const std::size_t scans = orders.count("recover");
  until([&] { return orders.count("recover") > scans; });  // the engine knows of a session
  crash();
  orders.refuse_hello = {wire::FAILURE_OUTDATED, "epoch 2 was here with another nonce"};
  start();
  until([&] { return ended_; });
  crash();
  ASSERT_TRUE(ended_with_error_.has_value());
  EXPECT_EQ(ended_with_error_->fault, Fault::outdated);
  EXPECT_THAT(ended_with_error_->message,
              testing::HasSubstr("resource manager orders says: epoch"));
  EXPECT_THAT(ended_with_error_->message, testing::HasSubstr("--restored"));
  auto store = LmdbDecisionStore::open(log());
  ASSERT_TRUE(store) << store.error().message;
  ASSERT_TRUE((*store)->info().backup.has_value());
  EXPECT_EQ((*store)->info().backup->known_by, "orders");
  EXPECT_EQ((*store)->info().backup->certain_below, 2u);  // the last one served before this one
  EXPECT_TRUE((*store)->open_epoch().has_error());
}

TEST_F(EngineLinkTest, a_restored_log_rolls_back_only_what_it_can_be_certain_of) {
  options.scan_period_ms = 20;
  start_and_link();
  const wire::Hello first = orders.hello();
  const wire::Xid certain = orphan(70);
  restart();
  std::size_t scans = orders.count("recover");
  until([&] { return orders.count("recover") > scans && orders.hello().epoch() == 2; });
  const wire::Xid uncertain = orphan(71);
  crash();
  for (const wire::Xid& xid : {certain, uncertain}) {
    orders.prepared[to_text(from_wire(xid).value())] = xid;
  }
  restored = true;
  start();
  until([&] { return orders.prepared.size() == 1; });
  EXPECT_EQ(orders.hello().epoch(), 3u);
  EXPECT_NE(orders.hello().log_id(), first.log_id());
  EXPECT_THAT(orders.hello().former_logs(), testing::ElementsAre(first.log_id()));
  scans = orders.count("recover");
  until([&] { return orders.count("recover") > scans + 2; });
  EXPECT_EQ(orders.prepared.count(to_text(from_wire(uncertain).value())), 1u);
  EXPECT_EQ(orders.count("rollback"), 1u);
  // Its own orphans it still rolls back, and later starts need no word of the operator.
  const wire::Xid own = orphan(72);
  crash();
  orders.prepared[to_text(from_wire(own).value())] = own;
  start();
  until([&] { return orders.count("rollback") == 2; });
  EXPECT_EQ(orders.prepared.count(to_text(from_wire(uncertain).value())), 1u);
}

TEST_F(EngineLinkTest, the_wrong_resource_manager_at_an_address_is_not_used) {
  FakeParticipant kitchen{io, "kitchen"};
  payments_address = to_text(kitchen.address());
  start();
  TestClient client;
  connect(client);
  until_stats(client, [](const wire::Frame& told) {
    return text_of(told, "payments.link").find("is the resource manager kitchen") !=
           std::string::npos;
  });
  EXPECT_EQ(outcome(client, submission("r1")).reason, Reason::unavailable);
  EXPECT_TRUE(kitchen.calls().empty());
  crash();
}

TEST_F(EngineLinkTest, a_long_list_comes_in_batches_and_orphans_are_rolled_back) {
  start_and_link();
  crash();
  constexpr std::uint64_t kOrphans = 25;
  for (std::uint64_t i = 1; i <= kOrphans; ++i) {
    const wire::Xid xid = orphan(i);
    orders.prepared[to_text(from_wire(xid).value())] = xid;
  }
  orders.batch_max = 10;
  const std::size_t batches = orders.count("recover");
  start();
  until([&] { return orders.prepared.empty(); });
  EXPECT_EQ(orders.count("rollback"), kOrphans);
  EXPECT_GE(orders.count("recover") - batches, 3u);
}

TEST_F(EngineLinkTest, an_unreadable_entry_makes_a_scan_incomplete_and_hides_nothing) {
  options.scan_period_ms = 20;
  // A commit that was lost on the way: only a complete scan that lacks the branch may settle it.
  orders.script(wire::Frame::kCommit, Act::code(Xa::er_nota));
  orders.listed_too.emplace_back().mutable_xid()->set_gtrid(std::string(200, 'g'));
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
  const std::size_t before = orders.count("recover");
  until([&] { return orders.count("recover") > before + 3; });
  EXPECT_EQ(orders.count("ask"), 0u) << "no evidence is asked for after a scan that failed";
  orders.listed_too.clear();
  const Outcome told = outcome(client, question("r1", wire::REPLY_AT_END));
  EXPECT_TRUE(told.ended);
  EXPECT_EQ(told.verdict, Verdict::committed);
}

TEST_F(EngineLinkTest, a_scan_that_fails_is_repeated) {
  orders.script(wire::Frame::kRecover, Act::fail("not now"));
  start();
  until([&] { return orders.count("recover") >= 2; });
}

TEST_F(EngineLinkTest, a_scan_ends_at_its_bound_of_entries_and_the_next_one_begins_anew) {
  constexpr std::size_t kEntries = 50'000;  // more at once than was asked for
  constexpr std::size_t kBatches = coordinator::kScanEntriesMax / kEntries;
  wire::Frame batch;
  for (std::size_t i = 0; i < kEntries; ++i) {
    to_wire({1, "f", "b"}, *batch.mutable_recover_answer()->add_branches()->mutable_xid());
  }
  for (std::size_t i = 0; i < kBatches; ++i) {
    orders.script(wire::Frame::kRecover, [&batch, i](FakeParticipant& self, const auto& request) {
      EXPECT_EQ(request.recover().start(), i == 0);
      self.answer(request, batch);
    });
  }
  orders.script(wire::Frame::kRecover, [](FakeParticipant& self, const wire::Frame& request) {
    EXPECT_TRUE(request.recover().start()) << "the scan went on beyond its bound";
    self.answer_rightly(request);
  });
  start_and_link();
  TestClient client;
  connect(client);
  // Others are served all the while.
  EXPECT_EQ(outcome(client, submission("beside", {"payments"})).verdict, Verdict::committed);
  until([&] { return orders.scripted(wire::Frame::kRecover) == 0; });
  EXPECT_EQ(outcome(client, submission("after")).verdict, Verdict::committed);
}

TEST_F(EngineLinkTest, a_rollback_that_was_not_answered_yet_is_not_sent_again_by_every_scan) {
  options.scan_period_ms = 20;
  start_and_link();
  crash();
  const wire::Xid xid = orphan(1);
  orders.prepared[to_text(from_wire(xid).value())] = xid;
  orders.script(wire::Frame::kRollback, Act::hang());
  start();
  until([&] { return orders.hanging() == 1; });
  const std::size_t scans = orders.count("recover");
  until([&] { return orders.count("recover") >= scans + 5; });
  EXPECT_EQ(orders.count("rollback"), 1u);
  orders.disconnect();  // a new session asks again
  until([&] { return orders.prepared.empty(); });
  EXPECT_EQ(orders.count("rollback"), 2u);
}

TEST_F(EngineLinkTest, a_circle_of_waits_ends_the_younger) {
  start_and_link();
  TestClient client;
  connect(client);
  const std::string older = begin(client);
  const std::string younger = begin(client);
  report_wait(orders, kFormatId, older, younger);
  report_wait(payments, kFormatId, younger, older);
  until([&] { return orders.count("rollback") > 0 && payments.count("rollback") > 0; });
  EXPECT_EQ(outcome(client, commit_of(younger)).reason, Reason::deadlock);
  EXPECT_EQ(outcome(client, commit_of(older)).verdict, Verdict::committed);
}

TEST_F(EngineLinkTest, waits_of_xids_of_another_format_are_nobody_s_of_ours) {
  start_and_link();
  TestClient client;
  connect(client);
  const std::string older = begin(client);
  const std::string younger = begin(client);
  report_wait(orders, kFormatId + 1, older, younger);
  report_wait(payments, kFormatId + 1, younger, older);
  // Its votes come behind the reports, on the same connections.
  EXPECT_EQ(outcome(client, commit_of(older)).verdict, Verdict::committed);
  EXPECT_EQ(outcome(client, commit_of(younger)).verdict, Verdict::committed);
}

TEST_F(EngineLinkTest, nonsense_from_a_resource_manager_ends_its_session_only) {
  options.reconnect_max_ms = 100;
  start_and_link();
  const std::uint64_t session = orders.hello().session();
  wire::Frame nonsense;
  nonsense.set_request(987'654);
  nonsense.mutable_branch_answer();
  orders.send(nonsense);
  until([&] { return orders.connected() && orders.hello().session() > session; });
  wire::Frame foreign;
  foreign.mutable_list();
  payments.send(foreign);
  until([&] { return payments.connected() && payments.hello().session() > 1; });
  TestClient client;
  connect(client);
  until_stats(client, [](const wire::Frame& told) {
    return text_of(told, "orders.link").find("up") == 0 &&
           text_of(told, "payments.link").find("up") == 0;
  });
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
}

TEST_F(EngineLinkTest, statistics_count_messages_and_forced_writes) {
  start_and_link();
  TestClient client;
  connect(client);
  wire::Frame frame = submission("r1");
  frame.mutable_submit()->set_reply_at(wire::REPLY_AT_END);
  EXPECT_EQ(outcome(client, frame).verdict, Verdict::committed);
  const wire::Frame told = call(client, stats());
  EXPECT_EQ(number_of(told, "committed"), 1);
  // Start, vote, Commit and its answer, twice.
  EXPECT_EQ(number_of(told, "branch_messages"), 8);
  EXPECT_EQ(text_of(told, "messages_per_transaction"), "8.00");
  EXPECT_GE(number_of(told, "log_forced_writes"), 1);
  EXPECT_EQ(number_of(told, "requests_open"), 0);
  EXPECT_EQ(text_of(told, "node"), "main");
  bool seen = false;
  for (const auto& histogram : told.stats_answer().histograms()) {
    seen = seen || (histogram.name() == "orders.vote_us" && histogram.count() == 1);
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace twofold::test
