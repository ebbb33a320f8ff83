// The coordinator's core, by behaviour: what the conversations in tests/scripts do not show in
// full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/core_text.h"

namespace twofold::coordinator::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

Options options() {
  Options options;
  options.resource_managers = {"orders", "payments"};
  return options;
}

Submit submission(std::string request, std::vector<std::string> rms = {"orders", "payments"}) {
  Submit submit;
  submit.requester = {1, 1};
  submit.request_id = std::move(request);
  for (std::string& rm : rms) submit.branches.push_back({std::move(rm), "work"});
  return submit;
}

template <class Kind>
std::vector<Kind> all(const std::vector<Effect>& effects) {
  std::vector<Kind> found;
  for (const Effect& effect : effects) {
    if (const auto* one = std::get_if<Kind>(&effect)) found.push_back(*one);
  }
  return found;
}

Outcome reply(const std::vector<Effect>& effects) {
  const auto replies = all<Reply>(effects);
  EXPECT_EQ(replies.size(), 1u);
  return replies.empty() ? Outcome{} : replies.front().outcome;
}

Voted vote(BranchKey branch, Xa code) {
  return {branch, code, {}, {}, {}, false, branch.index};
}
Acknowledged ack(const Bench& bench, BranchKey branch, Acknowledged::Verb verb, Xa code = Xa::ok) {
  const RmId rm = branch.index;
  const auto xid = bench.xid(branch, bench.options().resource_managers[rm]);
  return {rm, branch, xid, verb, code, {}, {}, {}, false};
}

// Runs 1.sequence through to its end; everything durable.
void commit(Bench& bench, TxnId id) {
  for (std::uint16_t i = 0; i < 2; ++i) bench.step(vote({id, i}, Xa::ok));
  bench.durable();
  for (std::uint16_t i = 0; i < 2; ++i) {
    bench.step(ack(bench, {id, i}, Acknowledged::Verb::commit));
  }
  bench.durable();
}

class Core : public testing::Test {
 protected:
  Core() { bench.link_all(); }
  void expect_rejected(Submit submit, Reason reason, const char* text) {
    const TxnId newest = bench.core().newest();
    const Outcome outcome = reply(bench.step(std::move(submit)));
    EXPECT_EQ(outcome.verdict, Verdict::rejected);
    EXPECT_EQ(outcome.reason, reason) << name(outcome.reason);
    EXPECT_THAT(outcome.detail, HasSubstr(text));
    EXPECT_TRUE(outcome.gtrid.empty());
    EXPECT_EQ(bench.core().newest(), newest) << "no id is issued";
  }
  Bench bench{options()};
};

// ---- submissions --------------------------------------------------------------------------------

TEST_F(Core, rejects_what_is_malformed) {
  expect_rejected(submission("r", {}), Reason::invalid, "no branches");
  expect_rejected(submission("r", {"orders", "kitchen"}), Reason::invalid, "\"kitchen\"");
  expect_rejected(submission("r", {"orders", "orders"}), Reason::invalid, "one branch");
  expect_rejected(submission(std::string(129, 'x')), Reason::invalid, "128 bytes");
  EXPECT_EQ(bench.core().counts().rejected, 4u);
}

TEST(CoreLimits, branches_and_transactions) {
  Options limited = options();
  limited.branches_max = 1;
  limited.transactions_max = 1;
  limited.one_phase = false;
  Bench bench(limited);
  bench.link_all();
  EXPECT_EQ(reply(bench.step(submission("r0"))).reason, Reason::invalid);
  EXPECT_EQ(all<Start>(bench.step(submission("r1", {"orders"}))).size(), 1u);
  const Outcome outcome = reply(bench.step(submission("r2", {"orders"})));
  EXPECT_EQ(outcome.verdict, Verdict::rejected);
  EXPECT_EQ(outcome.reason, Reason::overload);
  EXPECT_THAT(outcome.detail, HasSubstr("transactions_max"));
  EXPECT_TRUE(bench.step(submission("r1", {"orders"})).empty())
      << "a known request joins all the same";
}

TEST_F(Core, start_carries_time_age_and_work) {
  Submit submit = submission("r1");
  submit.timeout = milliseconds{1500};
  submit.age = seconds{3};
  const auto starts = all<Start>(bench.step(std::move(submit)));
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[1].remaining, milliseconds{1500});
  EXPECT_EQ(starts[1].age, seconds{3});
  EXPECT_EQ(starts[1].work, "work");
  EXPECT_EQ(starts[1].xid, bench.xid({{1, 1}, 1}, "payments"));
  EXPECT_TRUE(starts[1].read_only_vote);
}

TEST_F(Core, timeouts_have_a_default_and_a_limit) {
  EXPECT_EQ(all<Start>(bench.step(submission("r1")))[0].remaining, seconds{10});
  Submit patient = submission("r2");
  patient.timeout = minutes{60};
  EXPECT_EQ(all<Start>(bench.step(std::move(patient)))[0].remaining, minutes{10});
}

TEST_F(Core, a_timeout_names_who_was_silent) {
  bench.step(submission("r1"));
  bench.step(vote({{1, 1}, 0}, Xa::ok));
  EXPECT_EQ(bench.core().next_deadline(), bench.now() + milliseconds{4'999} + milliseconds{1});
  const Outcome outcome = reply(bench.advance(seconds{10}));
  EXPECT_EQ(outcome.reason, Reason::timeout);
  EXPECT_THAT(outcome.detail, HasSubstr("payments within 10000 ms"));
  EXPECT_THAT(outcome.detail, testing::Not(HasSubstr("orders")));
}

TEST(CoreOnePhase, start_has_what_is_left_after_the_intent) {
  Bench bench(options());
  bench.link_all();
  Submit submit = submission("r1", {"payments"});
  submit.timeout = seconds{1};
  bench.step(std::move(submit));
  bench.advance(milliseconds{300});
  const auto starts = all<Start>(bench.durable(1));
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].remaining, milliseconds{700});
  EXPECT_EQ(starts[0].age, milliseconds{300});
  EXPECT_EQ(starts[0].work, "work");
}

TEST(CoreOnePhase, an_intent_that_took_too_long_is_dropped) {
  Bench bench(options());
  bench.link_all();
  Submit submit = submission("r1", {"payments"});
  submit.timeout = seconds{1};
  bench.step(std::move(submit));
  bench.advance(seconds{2});
  const auto effects = bench.durable(1);
  EXPECT_TRUE(all<Start>(effects).empty());
  EXPECT_EQ(reply(effects).reason, Reason::timeout);
  ASSERT_EQ(all<Persist>(effects).size(), 1u);
  EXPECT_TRUE(std::holds_alternative<DroppedRecord>(all<Persist>(effects)[0].record));
}

TEST(CoreOnePhase, is_not_sent_to_a_store_that_was_exchanged_meanwhile) {
  Bench bench(options());
  bench.link_all();
  bench.step(submission("r1", {"payments"}));
  bench.step(LinkDown{1});
  bench.step(LinkUp{1, 12, 9'999});
  const auto effects = bench.durable(1);
  EXPECT_TRUE(all<Start>(effects).empty());
  EXPECT_EQ(reply(effects).reason, Reason::lost);
}

TEST(CorePrepare, names_the_incarnation_at_the_start) {
  Options slow = options();
  slow.early_prepare = false;
  slow.read_only_votes = false;
  Bench bench(slow);
  bench.link_all();
  bench.step(submission("r1"));
  bench.step(WorkDone{{{1, 1}, 0}, Xa::ok, {}, {}, {}, false, 0});
  const auto prepares =
      all<Prepare>(bench.step(WorkDone{{{1, 1}, 1}, Xa::ok, {}, {}, {}, false, 1}));
  ASSERT_EQ(prepares.size(), 2u);
  EXPECT_EQ(prepares[1].incarnation, 11u);
  EXPECT_EQ(prepares[1].work_items, 1u);
  EXPECT_FALSE(prepares[1].read_only_vote);
}

TEST_F(Core, a_no_is_told_by_its_reason) {
  const std::pair<Xa, Reason> codes[] = {
      {Xa::rbdeadlock, Reason::deadlock},     {Xa::rbtimeout, Reason::timeout},
      {Xa::er_rmfail, Reason::lost},          {Xa::rbother, Reason::rolled_back},
      {Xa::rbintegrity, Reason::rolled_back},  // without a reason
      {Xa::er_dupid, Reason::rolled_back}};
  std::uint64_t sequence = 0;
  for (const auto& [code, reason] : codes) {
    bench.step(submission(""));
    EXPECT_EQ(reply(bench.step(vote({{1, ++sequence}, 1}, code))).reason, reason) << name(code);
  }
  bench.step(submission(""));
  Voted full = vote({{1, ++sequence}, 1}, Xa::rbother);
  full.no_room = true;
  full.text = "the store is full";
  const Outcome outcome = reply(bench.step(std::move(full)));
  EXPECT_EQ(outcome.reason, Reason::space);
  EXPECT_EQ(outcome.detail, "payments: the store is full");
}

TEST_F(Core, refusals_come_by_branch_and_operation) {
  bench.step(submission("r1"));
  Voted second = vote({{1, 1}, 1}, Xa::rbintegrity);
  second.refusals = {refusal("c"), refusal("b")};
  second.refusals[0].operation = 2;
  second.refusals[1].operation = 1;
  bench.step(std::move(second));
  Voted first = vote({{1, 1}, 0}, Xa::rbintegrity);
  first.refusals = {refusal("a")};
  bench.step(std::move(first));
  const Outcome outcome = reply(bench.durable(1));
  ASSERT_EQ(outcome.refusals.size(), 3u);
  EXPECT_EQ(outcome.refusals[0].key, "a");
  EXPECT_EQ(outcome.refusals[0].rm, "orders");
  EXPECT_EQ(outcome.refusals[1].key, "b");
  EXPECT_EQ(outcome.refusals[2].key, "c");
}

TEST_F(Core, a_second_client_that_joins_gets_no_results) {
  bench.step(submission("r1"));
  Submit again = submission("r1");
  again.requester = {2, 1};
  EXPECT_TRUE(bench.step(std::move(again)).empty());
  Voted voted = vote({{1, 1}, 0}, Xa::ok);
  voted.results = "seven";
  bench.step(std::move(voted));
  bench.step(vote({{1, 1}, 1}, Xa::ok));
  const auto replies = all<Reply>(bench.durable(1));
  ASSERT_EQ(replies.size(), 2u);
  ASSERT_EQ(replies[0].outcome.results.size(), 1u);
  EXPECT_EQ(replies[0].outcome.results[0].rm, "orders");
  EXPECT_EQ(replies[0].outcome.results[0].results, "seven");
  EXPECT_EQ(replies[1].requester, (Requester{2, 1}));
  EXPECT_TRUE(replies[1].outcome.results.empty());
}

TEST(PayloadHash, is_of_names_and_work_in_order_and_never_changes) {
  const auto hash = [](std::vector<SubmittedBranch> branches) { return payload_hash(branches); };
  EXPECT_EQ(hash({{"a", "1"}, {"b", "2"}}), hash({{"a", "1"}, {"b", "2"}}));
  EXPECT_NE(hash({{"a", "1"}, {"b", "2"}}), hash({{"b", "2"}, {"a", "1"}}));
  EXPECT_NE(hash({{"ab", "c"}}), hash({{"a", "bc"}}));
  EXPECT_NE(hash({{"a", ""}}), hash({{"a", ""}, {"", ""}}));
  // It is in logs: the value is part of their format.
  EXPECT_EQ(hash({{"orders", "work"}}), 0x9762dccc3081f08bu);
}

// ---- recovery -----------------------------------------------------------------------------------

TEST_F(Core, kept_outcomes_survive_a_restart) {
  bench.step(submission("r1"));
  commit(bench, {1, 1});
  bench.step(submission("r2"));
  bench.step(vote({{1, 2}, 0}, Xa::ok));
  Voted no = vote({{1, 2}, 1}, Xa::rbintegrity);
  no.refusals = {refusal("key")};
  bench.step(std::move(no));
  bench.durable();
  bench.crash();
  EXPECT_EQ(bench.core().counts().recovered, 0u);
  EXPECT_EQ(bench.core().counts().outcomes, 2u);
  EXPECT_EQ(reply(bench.step(submission("r1"))).verdict, Verdict::committed);
  const Outcome refused = reply(bench.step(submission("r2")));
  EXPECT_EQ(refused.reason, Reason::refused);
  ASSERT_EQ(refused.refusals.size(), 1u);
  EXPECT_EQ(refused.refusals[0].key, "key");
  // Its branches may be prepared still: they are rolled back.
  bench.step(LinkUp{0, 10, 500});
  const auto effects =
      bench.step(InDoubtListed{0, true, {{bench.xid({{1, 2}, 0}, "orders"), false}}});
  EXPECT_EQ(all<Rollback>(effects).size(), 1u);
  EXPECT_TRUE(all<Alarm>(effects).empty());
}

TEST_F(Core, a_decision_for_a_branch_that_is_not_configured_waits_and_is_alarmed_once) {
  bench.step(submission("r1"));
  for (std::uint16_t i = 0; i < 2; ++i) bench.step(vote({{1, 1}, i}, Xa::ok));
  const CommitRecord record = std::get<CommitRecord>(bench.waiting().begin()->second.record);
  Options fewer = options();
  fewer.resource_managers = {"orders"};
  Recovered recovered;
  recovered.commits.push_back(record);
  const Epoch epoch{"node", LogId{77}, {2, 1002}, {{1, 1001}}};
  Coordinator core(fewer, epoch, recovered, Time{});
  EXPECT_EQ(core.next_deadline(), Time{}) << "what recovery found is said at once";
  std::vector<Effect> effects;
  core.step(Tick{}, Time{}, effects);
  ASSERT_EQ(all<Alarm>(effects).size(), 1u);
  EXPECT_THAT(all<Alarm>(effects)[0].text, HasSubstr("payments, which is not configured"));
  effects.clear();
  core.step(LinkUp{0, 10, 500}, Time{}, effects);
  core.step(InDoubtListed{0, true, {{record.branches[0].xid, false}}}, Time{}, effects);
  core.step(Acknowledged{0, {{1, 1}, 0}, record.branches[0].xid, {}, Xa::ok, {}, {}, {}, false},
            Time{}, effects);
  EXPECT_TRUE(all<Alarm>(effects).empty());
  EXPECT_EQ(core.counts().live, 1u);
  EXPECT_EQ(core.low_water(), (TxnId{1, 1}));
  EXPECT_EQ(core.list(false, 10).front().branches[1].rm, "payments");
}

TEST_F(Core, a_heuristic_that_is_in_the_log_is_not_asked_about_again) {
  bench.step(submission("r1"));
  for (std::uint16_t i = 0; i < 2; ++i) bench.step(vote({{1, 1}, i}, Xa::ok));
  bench.durable();
  for (std::uint16_t i = 0; i < 2; ++i) {
    bench.step(ack(bench, {{1, 1}, i}, Acknowledged::Verb::commit, Xa::heurrb));
  }
  for (const auto& [ticket, record] : std::map(bench.waiting())) bench.durable(ticket);
  bench.crash();  // the end record was not written
  EXPECT_EQ(bench.core().counts().heuristics, 2u);
  const auto effects = bench.step(Tick{});
  ASSERT_EQ(all<Persist>(effects).size(), 1u);
  EXPECT_TRUE(std::holds_alternative<EndRecord>(all<Persist>(effects)[0].record));
  EXPECT_EQ(bench.core().counts().live, 0u);
  bench.step(LinkUp{0, 10, 500});
  const auto forget =
      bench.step(InDoubtListed{0, true, {{bench.xid({{1, 1}, 0}, "orders"), false, Xa::heurrb}}});
  EXPECT_EQ(all<Forget>(forget).size(), 1u);
}

TEST_F(Core,
       a_branch_of_a_kept_outcome_that_ends_heuristically_is_recorded_before_it_is_forgotten) {
  bench.step(submission("r1"));
  commit(bench, {1, 1});
  bench.advance(seconds{5});
  bench.step(InDoubtListed{0, true, {{bench.xid({{1, 1}, 0}, "orders"), false}}});
  Acknowledged answer = ack(bench, {{1, 1}, 0}, Acknowledged::Verb::commit, Xa::heurmix);
  answer.branch = {};
  const auto effects = bench.step(std::move(answer));
  EXPECT_EQ(all<Alarm>(effects).size(), 1u);
  EXPECT_TRUE(all<Forget>(effects).empty());
  EXPECT_EQ(all<Forget>(bench.durable()).size(), 1u);
  EXPECT_EQ(bench.core().counts().heuristics, 1u);
}

TEST(CoreStores, asks_evidence_of_the_store_that_voted) {
  Options lost = options();
  lost.accept_stores = {"payments"};
  Bench bench(lost);
  bench.link_all();
  bench.step(submission("r1"));
  for (std::uint16_t i = 0; i < 2; ++i) bench.step(vote({{1, 1}, i}, Xa::ok));
  bench.durable(1);
  bench.crash();
  bench.step(LinkUp{1, 12, 9'999});  // its data was exchanged
  bench.durable();
  const auto asked = all<AskOutcome>(bench.step(InDoubtListed{1, true, {}}));
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].store_id, 501u);
}

TEST_F(Core, one_scan_at_a_time_and_one_each_period) {
  EXPECT_EQ(all<ListInDoubt>(bench.advance(seconds{5})).size(), 2u);
  EXPECT_TRUE(all<ListInDoubt>(bench.advance(seconds{20})).empty()) << "both are under way";
  bench.step(InDoubtListed{0, true, {}});
  const auto next = all<ListInDoubt>(bench.advance(seconds{5}));
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].rm, 0u);
  EXPECT_TRUE(bench.step(InDoubtListed{1, true, {}}).empty());
  EXPECT_TRUE(bench.step(InDoubtListed{1, true, {{bench.xid({{1, 9}, 0}, "x"), false}}}).empty())
      << "an answer that nobody waits for";
}

TEST_F(Core, counts_orphans_when_they_are_gone) {
  bench.crash();
  bench.step(LinkUp{0, 10, 500});
  bench.step(submission("r1", {"orders"}));
  const Xid orphan = bench.xid({{1, 0}, 0}, "orders");
  EXPECT_EQ(all<Alarm>(bench.step(InDoubtListed{0, true, {{orphan, false}}})).size(), 1u)
      << "sequence 0 was never issued";
  EXPECT_EQ(bench.core().counts().orphans_rolled_back, 0u);
}

// ---- marks --------------------------------------------------------------------------------------

TEST_F(Core, the_mark_is_the_oldest_that_is_not_durably_ended) {
  EXPECT_EQ(bench.core().low_water(), (TxnId{1, 1}));
  bench.step(submission("r1"));
  bench.step(submission("r2"));
  commit(bench, {1, 2});
  EXPECT_EQ(bench.core().low_water(), (TxnId{1, 1}));
  for (std::uint16_t i = 0; i < 2; ++i) bench.step(vote({{1, 1}, i}, Xa::ok));
  bench.durable();
  for (std::uint16_t i = 0; i < 2; ++i) {
    bench.step(ack(bench, {{1, 1}, i}, Acknowledged::Verb::commit));
  }
  EXPECT_EQ(bench.core().counts().live, 0u);
  EXPECT_EQ(bench.core().low_water(), (TxnId{1, 1})) << "its end is not durable yet";
  bench.durable();
  EXPECT_EQ(bench.core().low_water(), (TxnId{1, 3}));
  EXPECT_EQ(bench.core().newest(), (TxnId{1, 2}));
}

TEST_F(Core, a_transaction_that_holds_the_mark_back_is_alarmed_once) {
  bench.step(submission("r1"));
  for (std::uint16_t i = 0; i < 2; ++i) bench.step(vote({{1, 1}, i}, Xa::ok));
  bench.durable(1);
  bench.step(LinkDown{1});
  auto alarms = all<Alarm>(bench.advance(minutes{4}));
  EXPECT_TRUE(alarms.empty());
  alarms = all<Alarm>(bench.advance(minutes{2}));
  ASSERT_EQ(alarms.size(), 1u);
  EXPECT_THAT(alarms[0].text, HasSubstr("has not ended for 300 s (committing)"));
  EXPECT_TRUE(all<Alarm>(bench.advance(minutes{20})).empty());
  EXPECT_EQ(bench.core().counts().alarms, 1u);
}

// ---- views --------------------------------------------------------------------------------------

TEST_F(Core, shows_a_transaction_by_gtrid_and_by_request) {
  bench.step(submission("r1"));
  bench.advance(milliseconds{10});
  bench.step(vote({{1, 1}, 0}, Xa::rdonly));
  const auto view = bench.core().show_request("r1");
  ASSERT_TRUE(view);
  EXPECT_EQ(view->phase, Phase::preparing);
  EXPECT_EQ(view->outcome.verdict, Verdict::pending);
  ASSERT_EQ(view->branches.size(), 2u);
  EXPECT_EQ(view->branches[0].state, BranchState::read_only);
  EXPECT_EQ(view->branches[0].vote, Xa::rdonly);
  EXPECT_EQ(view->branches[1].state, BranchState::preparing);
  EXPECT_FALSE(view->branches[1].vote);
  bench.step(vote({{1, 1}, 1}, Xa::ok));
  bench.step(ack(bench, {{1, 1}, 0}, Acknowledged::Verb::release));
  bench.advance(milliseconds{10});
  bench.durable(1);
  bench.step(ack(bench, {{1, 1}, 1}, Acknowledged::Verb::commit));
  const auto ended = bench.core().show_gtrid(bench.gtrid({1, 1}));
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->phase, Phase::ended);
  EXPECT_TRUE(ended->outcome.ended);
  ASSERT_EQ(ended->phases.size(), 5u);
  EXPECT_EQ(ended->phases[1].first, Phase::releasing);
  EXPECT_EQ(ended->phases[2].first, Phase::deciding);
  EXPECT_EQ(ended->phases[3].second - ended->phases[2].second, milliseconds{10});
  EXPECT_FALSE(bench.core().show_gtrid(bench.gtrid({1, 2})));
  EXPECT_FALSE(bench.core().show_request("r2"));
}

// What an earlier process knew is gone; the outcome is not, under whichever name it is asked for.
TEST_F(Core, an_id_is_shown_as_its_gtrid_after_a_restart) {
  bench.step(submission("r1"));
  commit(bench, {1, 1});
  bench.step(submission("r2"));
  const std::string committed = bench.gtrid({1, 1}), lost = bench.gtrid({1, 2});
  bench.crash();
  for (const std::string& gtrid : {committed, lost}) {
    const auto by_gtrid = bench.core().show_gtrid(gtrid);
    ASSERT_TRUE(by_gtrid);
    const auto by_id = bench.core().show(by_gtrid->id);
    ASSERT_TRUE(by_id);
    OutcomeAsked asked{{1, 9}, gtrid, {}, OutcomeAsked::When::now, {}};
    const Outcome told = reply(bench.step(asked));
    for (const auto& view : {by_gtrid, by_id}) {
      EXPECT_EQ(view->gtrid, gtrid);
      EXPECT_EQ(view->outcome.verdict, told.verdict);
      EXPECT_EQ(view->outcome.detail, told.detail);
      EXPECT_TRUE(view->outcome.ended);
    }
    EXPECT_EQ(told.verdict, gtrid == lost ? Verdict::aborted : Verdict::committed);
  }
  EXPECT_THAT(bench.core().show({1, 2})->outcome.detail, HasSubstr("presumed abort"));
  EXPECT_FALSE(bench.core().show({2, 1})) << "not begun yet";
  EXPECT_FALSE(bench.core().show({7, 1}));
}

// Of two logs with one epoch's number the id does not say which.
TEST_F(Core, an_id_of_a_log_that_was_restored_is_not_guessed) {
  bench.step(submission("r1"));
  const std::string lost = bench.gtrid({1, 1});
  bench.restore(2);
  EXPECT_FALSE(bench.core().show({1, 1}));
  const auto by_gtrid = bench.core().show_gtrid(lost);
  ASSERT_TRUE(by_gtrid);
  EXPECT_EQ(by_gtrid->outcome.verdict, Verdict::aborted);
}

TEST_F(Core, begin_is_told_the_time_that_it_has) {
  const auto given = [&](milliseconds asked) {
    return reply(bench.step(Begin{{1, 1}, asked, {}})).timeout_ms;
  };
  EXPECT_EQ(given(milliseconds{0}), 10'000u);  // the default
  EXPECT_EQ(given(milliseconds{1}), 1u);
  EXPECT_EQ(given(minutes{10}), 600'000u);
  EXPECT_EQ(given(minutes{11}), 600'000u);
}

TEST(CoreViews, kept_outcomes_are_shown_without_a_trace) {
  Options options_ = options();
  options_.traces_max = 0;
  Bench bench(options_);
  bench.link_all();
  bench.step(submission("r1"));
  commit(bench, {1, 1});
  const auto view = bench.core().show_request("r1");
  ASSERT_TRUE(view);
  EXPECT_EQ(view->outcome.verdict, Verdict::committed);
  ASSERT_EQ(view->branches.size(), 2u);
  EXPECT_EQ(view->branches[1].rm, "payments");
  EXPECT_TRUE(view->phases.empty());
}

TEST_F(Core, lists_the_oldest_first) {
  for (const char* request : {"r1", "r2", "r3"}) bench.step(submission(request));
  commit(bench, {1, 2});
  const auto ids = [&](bool with_ended, std::size_t max) {
    std::vector<std::uint64_t> found;
    for (const auto& view : bench.core().list(with_ended, max)) found.push_back(view.id.sequence);
    return found;
  };
  EXPECT_EQ(ids(false, 10), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(ids(true, 10), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(ids(true, 2), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(ids(false, 1), (std::vector<std::uint64_t>{1}));
}

TEST_F(Core, counts_add_up) {
  bench.step(submission("r1"));
  commit(bench, {1, 1});
  bench.step(submission("r2"));
  bench.step(vote({{1, 2}, 0}, Xa::rbdeadlock));
  bench.step(submission("r3", {"nobody"}));
  bench.step(submission("r4"));
  bench.step(LinkDown{1});
  bench.step(submission("r5"));
  const Counts counts = bench.core().counts();
  EXPECT_EQ(counts.submitted, 5u);
  EXPECT_EQ(counts.committed, 1u);
  EXPECT_EQ(counts.aborted, 3u);
  EXPECT_EQ(counts.rejected, 1u);
  EXPECT_EQ(counts.outcomes, 1u);
  EXPECT_EQ(counts.live, 2u) << "both wait for payments";
}

// ---- names --------------------------------------------------------------------------------------

TEST(Names, of_events_and_effects) {
  EXPECT_EQ(event_names().size(), std::variant_size_v<Event>);
  EXPECT_EQ(effect_names().size(), std::variant_size_v<Effect>);
  EXPECT_EQ(name(Event{Voted{}}), "Voted");
  EXPECT_EQ(name(Event{Shutdown{}}), "Shutdown");
  EXPECT_EQ(name(Effect{Persist{}}), "Persist");
  EXPECT_EQ(name(Effect{Alarm{}}), "Alarm");
  EXPECT_EQ(resource_manager(Event{vote({{1, 1}, 1}, Xa::ok)}), RmId{1});
  EXPECT_EQ(resource_manager(Event{Durable{1}}), std::nullopt);
  EXPECT_EQ(resource_manager(Effect{Commit{3, {}, {}}}), RmId{3});
  EXPECT_EQ(resource_manager(Effect{Persist{}}), std::nullopt);
}

TEST(Names, of_phases_and_states) {
  for (int i = 0; i <= static_cast<int>(Phase::ended); ++i) {
    EXPECT_NE(name(static_cast<Phase>(i)), "?");
  }
  for (int i = 0; i <= static_cast<int>(BranchState::done); ++i) {
    EXPECT_NE(name(static_cast<BranchState>(i)), "?");
  }
}

}  // namespace
}  // namespace twofold::coordinator::test
