#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "client/client.h"
#include "tests/client/fake_coordinator.h"

namespace twofold::client {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

Transaction payment(std::string request_id = "r-1") {
  Transaction transaction;
  transaction.request_id = std::move(request_id);
  Operation add{"add", {{"key", {std::string("customer/c-1")}}, {"by", {std::int64_t{-5}}}}};
  transaction.branches.push_back({"payments", {std::move(add)}});
  transaction.timeout = milliseconds{5'000};
  return transaction;
}

class AsyncClientTest : public testing::Test {
 protected:
  AsyncClientTest() {
    options_.coordinator = coordinator_.address();
    options_.retry_first = milliseconds{1};
    options_.retry_max = milliseconds{2};
  }
  void make_client() { client_ = std::make_unique<AsyncClient>(io_, options_); }
  void submit(Transaction transaction) {
    if (!client_) make_client();
    client_->submit(std::move(transaction), [this](Answered a) { told_.push_back(std::move(a)); });
  }
  Answered result_of(Transaction transaction) {
    const std::size_t before = told_.size();
    submit(std::move(transaction));
    run_until(io_, [&] { return told_.size() > before; });
    return told_.back();
  }
  // The n-th request (from 0) gets the n-th answer, the last one for good.
  void answers(std::vector<Outcome> list) {
    coordinator_.script = [this, list](Connection& to, const wire::Frame& request) {
      answer(to, request, list[std::min(coordinator_.asked.size(), list.size()) - 1]);
    };
  }
  void until_connected() {
    if (!client_) make_client();
    run_until(io_, [&] { return client_->connected(); });
  }
  // The first request's connection is lost; then as `next` says.
  void lose_first(FakeCoordinator::Script next) {
    coordinator_.script = [this, next](Connection& to, const wire::Frame& request) {
      if (coordinator_.asked.size() == 1) return coordinator_.drop();
      next(to, request);
    };
  }

  boost::asio::io_context io_;
  FakeCoordinator coordinator_{io_};
  Options options_;
  std::vector<Answered> told_;
  std::unique_ptr<AsyncClient> client_;
};

TEST_F(AsyncClientTest, SubmitsTheWholeTransactionAndTellsTheOutcome) {
  Outcome committed = outcome(Verdict::committed);
  committed.gtrid = "g";
  committed.results = {{"payments", "encoded"}};
  answers({committed});
  const Answered answered = result_of(payment());
  EXPECT_EQ(answered.outcome.verdict, Verdict::committed);
  EXPECT_EQ(answered.outcome.results.at(0).results, "encoded");
  EXPECT_EQ(answered.request_id, "r-1");
  EXPECT_EQ(answered.attempts, 1u);
  EXPECT_EQ(client_->in_flight(), 0u);
  const wire::Submit submit = coordinator_.submits().at(0);
  EXPECT_EQ(submit.request_id(), "r-1");
  EXPECT_EQ(submit.branches(0).rm(), "payments");
  EXPECT_EQ(submit.branches(0).work(), encode_work(payment().branches[0].work));
  EXPECT_EQ(submit.timeout_ms(), 5'000u);
  EXPECT_EQ(submit.reply_at(), wire::REPLY_AT_DECISION);
  EXPECT_EQ(from_wire(submit.known()), (TxnId{3, 10}));
  EXPECT_EQ(submit.age_ms(), 0u);
}

TEST_F(AsyncClientTest, MakesRequestIds) {
  answers({outcome(Verdict::committed)});
  std::set<std::string> ids;
  for (int i = 0; i < 10; ++i) {
    ids.insert(result_of(payment("")).request_id);
    EXPECT_EQ(coordinator_.submits().back().request_id(), told_.back().request_id);
  }
  EXPECT_EQ(ids.size(), 10u);
  EXPECT_EQ(base64url_decode(*ids.begin())->size(), 16u);
}

TEST_F(AsyncClientTest, ALostReplyIsResolvedBySubmittingTheSameAgain) {
  lose_first([](Connection& to, const wire::Frame& request) {
    answer(to, request, outcome(Verdict::committed));
  });
  submit(payment());
  run_until(io_, [&] { return coordinator_.asked.size() == 1; });
  to_wire(TxnId{4, 99}, *coordinator_.welcome.mutable_newest());
  run_until(io_, [&] { return told_.size() == 1; });
  EXPECT_EQ(told_[0].outcome.verdict, Verdict::committed);
  EXPECT_EQ(told_[0].attempts, 1u);
  auto submits = coordinator_.submits();
  ASSERT_EQ(submits.size(), 2u);
  EXPECT_EQ(from_wire(submits[1].known()), (TxnId{3, 10}));  // as at the first sending
  submits[1].set_age_ms(submits[0].age_ms());
  EXPECT_EQ(submits[0].SerializeAsString(), submits[1].SerializeAsString());
  EXPECT_EQ(client_->known(), (TxnId{4, 99}));
}

TEST_F(AsyncClientTest, GoesThroughACrashWithManyInFlightInOrder) {
  make_client();
  for (int i = 0; i < 100; ++i) submit(payment("r-" + std::to_string(i)));
  run_until(io_, [&] { return coordinator_.asked.size() == 100; });
  coordinator_.stop();
  coordinator_.asked.clear();
  run_until(io_, [&] { return !client_->connected(); });
  EXPECT_EQ(client_->in_flight(), 100u);
  coordinator_.script = [](Connection& to, const wire::Frame& request) {
    answer(to, request, outcome(Verdict::committed));
  };
  coordinator_.listen();
  run_until(io_, [&] { return told_.size() == 100; });
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(coordinator_.submits().at(i).request_id(), "r-" + std::to_string(i));
    EXPECT_EQ(told_.at(i).outcome.verdict, Verdict::committed);
  }
}

TEST_F(AsyncClientTest, TheCallersKnownWins) {
  answers({outcome(Verdict::expired)});
  Transaction transaction = payment();
  transaction.known = {2, 2};
  EXPECT_EQ(result_of(std::move(transaction)).outcome.verdict, Verdict::expired);
  EXPECT_EQ(from_wire(coordinator_.submits().at(0).known()), (TxnId{2, 2}));
}

TEST_F(AsyncClientTest, NeverConnectedNothingHasHappened) {
  options_.coordinator = unused_address();
  options_.give_up = milliseconds{50};
  make_client();
  bool failed = false;
  client_->on_connection([&](bool up, const std::string&) { failed = !up; });
  run_until(io_, [&] { return failed; });
  const Outcome told = result_of(payment()).outcome;
  EXPECT_EQ(told.verdict, Verdict::rejected);
  EXPECT_EQ(told.reason, Reason::unavailable);
  EXPECT_THAT(told.detail, AllOf(HasSubstr(to_text(options_.coordinator)), HasSubstr("refused"),
                                 HasSubstr("start it"), HasSubstr("nothing has happened")));
}

TEST_F(AsyncClientTest, SentAndNeverAnsweredIsUnknown) {
  options_.give_up = milliseconds{50};
  until_connected();
  const Answered told = result_of(payment());
  run_until(io_, [&] { return coordinator_.asked.size() == 1; });
  EXPECT_EQ(told.outcome.verdict, Verdict::unknown);
  EXPECT_THAT(told.outcome.detail,
              AllOf(HasSubstr("50 ms"), HasSubstr("may have committed"), HasSubstr("r-1")));
  // The answer that comes too late harms nobody.
  answer(coordinator_.connection(), coordinator_.asked[0], outcome(Verdict::committed));
  wire::Frame stats;
  stats.mutable_stats();
  coordinator_.script = [](Connection& to, const wire::Frame& request) {
    answer(to, request, wire::FAILURE_REQUEST, "no");
  };
  bool later = false;
  client_->call(stats, [&](Result<wire::Frame>) { later = true; });
  run_until(io_, [&] { return later; });
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(AsyncClientTest, RetriesRetryableAbortsUnderTheSameId) {
  options_.retries = 3;
  answers({outcome(Verdict::aborted, Reason::deadlock),
           outcome(Verdict::rejected, Reason::overload), outcome(Verdict::committed)});
  make_client();
  std::vector<Reason> retried;
  client_->on_retry([&](const Outcome& aborted) { retried.push_back(aborted.reason); });
  const Answered told = result_of(payment());
  EXPECT_EQ(told.outcome.verdict, Verdict::committed);
  EXPECT_EQ(told.attempts, 3u);
  EXPECT_EQ(retried, (std::vector{Reason::deadlock, Reason::overload}));
  for (const auto& submit : coordinator_.submits()) EXPECT_EQ(submit.request_id(), "r-1");
}

TEST_F(AsyncClientTest, RetriesAreOffUnlessAskedForAndAreCounted) {
  answers({outcome(Verdict::aborted, Reason::timeout)});
  EXPECT_EQ(result_of(payment()).attempts, 1u);
  client_.reset();
  options_.retries = 2;
  const Answered told = result_of(payment());
  EXPECT_EQ(told.outcome.reason, Reason::timeout);
  EXPECT_EQ(told.attempts, 3u);
  EXPECT_EQ(coordinator_.asked.size(), 4u);
}

TEST_F(AsyncClientTest, EndedBetweenRetriesItTellsTheLastAbort) {
  options_.retries = 2;
  options_.retry_first = options_.retry_max = std::chrono::hours{1};
  answers({outcome(Verdict::aborted, Reason::lost, "payments was lost")});
  submit(payment());
  bool later = false;  // answered on the same connection after the abort
  client_->ask_gtrid("g", wire::REPLY_NOW, [&](Outcome) { later = true; });
  run_until(io_, [&] { return later; });
  EXPECT_TRUE(told_.empty());
  client_.reset();
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].outcome.verdict, Verdict::aborted);
  EXPECT_EQ(told_[0].outcome.detail, "payments was lost");
}

TEST_F(AsyncClientTest, ARejectionAfterALostReplyIsNotBelieved) {
  lose_first([this](Connection& to, const wire::Frame& request) {
    if (coordinator_.asked.size() == 2) {
      return answer(to, request, outcome(Verdict::rejected, Reason::shutdown));
    }
    answer(to, request, outcome(Verdict::committed));
  });
  EXPECT_EQ(result_of(payment()).outcome.verdict, Verdict::committed);
  EXPECT_EQ(coordinator_.asked.size(), 3u);
}

TEST_F(AsyncClientTest, UnknownFromACoordinatorThatLeavesIsResolvedLater) {
  answers({outcome(Verdict::unknown, Reason::shutdown), outcome(Verdict::committed)});
  EXPECT_EQ(result_of(payment()).outcome.verdict, Verdict::committed);
}

TEST_F(AsyncClientTest, AnotherLogCannotTellAndIsNotAskedToRunItAgain) {
  submit(payment());
  run_until(io_, [&] { return coordinator_.asked.size() == 1; });
  coordinator_.welcome.set_log_id(1234);
  coordinator_.drop();
  run_until(io_, [&] { return told_.size() == 1; });
  EXPECT_EQ(told_[0].outcome.verdict, Verdict::unknown);
  EXPECT_THAT(told_[0].outcome.detail, HasSubstr("another log"));
  EXPECT_EQ(coordinator_.asked.size(), 1u);
}

TEST_F(AsyncClientTest, WaitsForTheEndThroughACrashAfterTheDecision) {
  Outcome committed = outcome(Verdict::committed);
  committed.gtrid = "g-1";
  committed.results = {{"payments", "encoded"}};
  coordinator_.script = [&](Connection& to, const wire::Frame& request) {
    if (request.has_submit()) return answer(to, request, committed);
    if (coordinator_.asked.size() == 2) return coordinator_.drop();
    Outcome ended = outcome(Verdict::committed);
    ended.ended = true;
    answer(to, request, ended);
  };
  Transaction transaction = payment();
  transaction.wait_for_end = true;
  const Outcome told = result_of(std::move(transaction)).outcome;
  EXPECT_TRUE(told.ended);
  EXPECT_EQ(told.results.size(), 1u);
  ASSERT_EQ(coordinator_.asks().size(), 2u);
  EXPECT_EQ(coordinator_.asks()[1].gtrid(), "g-1");
  EXPECT_EQ(coordinator_.asks()[1].reply_at(), wire::REPLY_AT_END);
}

TEST_F(AsyncClientTest, AnotherVersionEndsWhatWaitsAtOnceAndTheNextRequestTriesAgain) {
  coordinator_.refuse = {wire::FAILURE_VERSION, "protocol version 1 is not spoken here"};
  const Outcome told = result_of(payment()).outcome;
  EXPECT_EQ(told.verdict, Verdict::rejected);
  EXPECT_THAT(told.detail, HasSubstr("protocol version 1 is not spoken here"));
  coordinator_.refuse.reset();
  answers({outcome(Verdict::committed)});
  EXPECT_EQ(result_of(payment()).outcome.verdict, Verdict::committed);
}

TEST_F(AsyncClientTest, ATooLargeSubmissionIsRejectedAndTheRestGoesOn) {
  coordinator_.welcome.set_frame_bytes_max(70'000);
  answers({outcome(Verdict::committed)});
  result_of(payment("small"));
  Transaction large = payment("large");
  large.branches[0].work[0].name.assign(80'000, 'x');
  const Outcome told = result_of(std::move(large)).outcome;
  EXPECT_EQ(told.verdict, Verdict::rejected);
  EXPECT_EQ(told.reason, Reason::invalid);
  EXPECT_THAT(told.detail, AllOf(HasSubstr("70000"), HasSubstr("frame_bytes_max")));
  EXPECT_EQ(result_of(payment("after")).outcome.verdict, Verdict::committed);
  EXPECT_EQ(coordinator_.hellos.size(), 1u);
}

TEST_F(AsyncClientTest, RejectsWhatCannotTravel) {
  EXPECT_THAT(result_of(payment(std::string(129, 'r'))).outcome.detail, HasSubstr("129 bytes"));
  EXPECT_THAT(result_of(payment("\xff")).outcome.detail, HasSubstr("not UTF-8"));
  Transaction transaction = payment();
  transaction.branches[0].rm = "\xc0";
  const Outcome told = result_of(std::move(transaction)).outcome;
  EXPECT_EQ(told.verdict, Verdict::rejected);
  EXPECT_EQ(told.reason, Reason::invalid);
  transaction = payment();
  transaction.branches[0].work[0].arguments[0].second = Value{std::string("\xff")};
  EXPECT_THAT(result_of(std::move(transaction)).outcome.detail,
              AllOf(HasSubstr("payments"), HasSubstr("'key' of operation 0 (add) is not UTF-8")));
}

// The coordinator could only end the connection, and with it what others wait for.
TEST_F(AsyncClientTest, QuestionsThatCannotTravelAreToldAtOnce) {
  until_connected();
  std::optional<Outcome> asked;
  client_->ask_request("\xff", wire::REPLY_NOW, {}, [&](Outcome told) { asked = told; });
  std::optional<Error> called;
  wire::Frame show;
  show.mutable_show()->set_request_id("\xff");
  client_->call(show, [&](Result<wire::Frame> result) { called = result.error(); });
  EXPECT_FALSE(asked || called);  // not from inside the call
  run_until(io_, [&] { return asked && called; });
  EXPECT_EQ(asked->verdict, Verdict::rejected);
  EXPECT_EQ(asked->reason, Reason::invalid);
  EXPECT_EQ(called->fault, Fault::invalid);
  EXPECT_TRUE(coordinator_.asked.empty());
  EXPECT_EQ(coordinator_.hellos.size(), 1u);
}

TEST_F(AsyncClientTest, AClientWithoutAUtf8NameIsToldSo) {
  options_.name = "\xff";
  const Outcome told = result_of(payment()).outcome;
  EXPECT_THAT(told.detail, HasSubstr("not UTF-8"));
  EXPECT_TRUE(coordinator_.hellos.empty());
}

TEST_F(AsyncClientTest, AFailureAnswersItsRequestOnly) {
  coordinator_.script = [](Connection& to, const wire::Frame& request) {
    answer(to, request, wire::FAILURE_REQUEST, "no branches: name at least one");
  };
  const Outcome told = result_of(payment()).outcome;
  EXPECT_EQ(told.verdict, Verdict::rejected);
  EXPECT_EQ(told.reason, Reason::invalid);
  EXPECT_EQ(told.detail, "no branches: name at least one");
  EXPECT_TRUE(client_->connected());
}

TEST_F(AsyncClientTest, QuestionsGoThroughALossAndPassOnPending) {
  lose_first([](Connection& to, const wire::Frame& request) {
    answer(to, request, outcome(Verdict::pending));
  });
  make_client();
  std::vector<Outcome> told;
  client_->ask_request("r-7", wire::REPLY_NOW, {2, 5}, [&](Outcome o) { told.push_back(o); });
  run_until(io_, [&] { return told.size() == 1; });
  EXPECT_EQ(told[0].verdict, Verdict::pending);
  ASSERT_EQ(coordinator_.asks().size(), 2u);
  EXPECT_EQ(coordinator_.asks()[1].request_id(), "r-7");
  EXPECT_EQ(from_wire(coordinator_.asks()[1].known()), (TxnId{2, 5}));

  client_->ask_gtrid("g", wire::REPLY_AT_DECISION, [&](Outcome o) { told.push_back(o); });
  run_until(io_, [&] { return told.size() == 2; });
  EXPECT_EQ(coordinator_.asks()[2].gtrid(), "g");
  EXPECT_EQ(coordinator_.asks()[2].reply_at(), wire::REPLY_AT_DECISION);
}

wire::Frame stats_request() {
  wire::Frame frame;
  frame.mutable_stats();
  return frame;
}

TEST_F(AsyncClientTest, CallsAreAnsweredOnceAndNeverRepeated) {
  make_client();
  std::vector<Result<wire::Frame>> told;
  const auto call = [&] {
    client_->call(stats_request(), [&](Result<wire::Frame> r) { told.push_back(std::move(r)); });
    const std::size_t before = told.size();
    run_until(io_, [&] { return told.size() > before; });
    return told.back();
  };
  coordinator_.script = [](Connection& to, const wire::Frame& request) {
    wire::Frame frame;
    frame.set_request(request.request());
    frame.mutable_stats_answer()->add_numbers()->set_name("committed");
    to.send(frame);
  };
  EXPECT_EQ(call()->stats_answer().numbers(0).name(), "committed");
  coordinator_.script = [](Connection& to, const wire::Frame& request) {
    answer(to, request, wire::FAILURE_REQUEST, "not like this");
  };
  EXPECT_EQ(call().error().message, "not like this");
  coordinator_.script = [this](Connection&, const wire::Frame&) { coordinator_.drop(); };
  EXPECT_EQ(call().error().fault, Fault::closed);
  EXPECT_EQ(coordinator_.asked.size(), 3u);
}

TEST_F(AsyncClientTest, ACallFailsAsSoonAsConnectingDoes) {
  options_.coordinator = unused_address();
  make_client();
  std::string why;
  client_->call(stats_request(), [&](Result<wire::Frame> r) { why = r.error().message; });
  run_until(io_, [&] { return !why.empty(); });
  EXPECT_THAT(why, HasSubstr(to_text(options_.coordinator)));
}

TEST_F(AsyncClientTest, ACallIsGivenUpToo) {
  options_.give_up = milliseconds{50};
  make_client();
  std::optional<Fault> fault;
  client_->call(stats_request(), [&](Result<wire::Frame> r) { fault = r.error().fault; });
  run_until(io_, [&] { return fault.has_value(); });
  EXPECT_EQ(fault, Fault::timeout);
}

TEST_F(AsyncClientTest, TheDestructorTellsWhoeverWaits) {
  submit(payment("sent"));
  std::vector<Outcome> outcomes;
  client_->ask_request("r", wire::REPLY_NOW, {}, [&](Outcome o) { outcomes.push_back(o); });
  bool called = false;
  client_->call(stats_request(), [&](Result<wire::Frame> r) { called = r.has_error(); });
  run_until(io_, [&] { return coordinator_.asked.size() == 3; });
  client_.reset();
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].outcome.verdict, Verdict::unknown);
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].verdict, Verdict::unknown);
  EXPECT_TRUE(called);
  io_.poll();  // what is left in the event loop finds nobody, and harms nothing
}

TEST_F(AsyncClientTest, MayBeEndedAndUsedFromItsOwnCallbacks) {
  answers({outcome(Verdict::committed)});
  make_client();
  bool ended = false;
  client_->submit(payment("first"), [&](Answered) {
    client_->submit(payment("second"), [&](Answered second) {
      EXPECT_EQ(second.outcome.verdict, Verdict::committed);
      client_.reset();
      ended = true;
    });
    EXPECT_EQ(client_->in_flight(), 1u);
  });
  run_until(io_, [&] { return ended; });
  io_.poll();
  EXPECT_EQ(coordinator_.submits().size(), 2u);
}

TEST_F(AsyncClientTest, SubmittedWhileItEndsNothingHappens) {
  make_client();
  AsyncClient* const ending = client_.get();
  std::optional<Outcome> second;
  ending->submit(payment("first"), [&](Answered) {
    ending->submit(payment("second"), [&](Answered a) { second = a.outcome; });
  });
  client_.reset();
  run_until(io_, [&] { return second.has_value(); });
  EXPECT_EQ(second->verdict, Verdict::rejected);
}

TEST_F(AsyncClientTest, TellsWhenTheConnectionComesAndGoes) {
  make_client();
  std::vector<std::pair<bool, std::string>> seen;
  client_->on_connection([&](bool up, const std::string& why) { seen.emplace_back(up, why); });
  run_until(io_, [&] { return seen.size() == 1; });
  EXPECT_TRUE(seen[0].first);
  coordinator_.stop();
  run_until(io_, [&] { return seen.size() == 2; });
  EXPECT_FALSE(seen[1].first);
  EXPECT_NE(seen[1].second, "");
  // Also to whoever comes when it has been lost already.
  std::vector<std::pair<bool, std::string>> late;
  client_->on_connection([&](bool up, const std::string& why) {
    seen.emplace_back(up, why);
    late.emplace_back(up, why);
  });
  EXPECT_TRUE(late.empty()) << "never from inside a call";
  run_until(io_, [&] { return late.size() == 1; });
  EXPECT_FALSE(late[0].first);
  EXPECT_NE(late[0].second, "");
  coordinator_.listen();
  run_until(io_, [&] { return seen.size() == 4; });
  EXPECT_TRUE(seen[3].first);
}

}  // namespace
}  // namespace twofold::client
