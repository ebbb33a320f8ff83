#include "client/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/convert.h"
#include "tests/client/fake_coordinator.h"

namespace twofold::client {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Next = Request::Next;

constexpr LogId kLog{77};
constexpr TxnId kKnown{3, 10};

Request submission(unsigned retries = 0, bool wait_for_end = false) {
  Transaction transaction;
  transaction.request_id = "r-1";
  transaction.branches = {{"payments", {{"get", {{"key", {std::string("k")}}}}}}};
  transaction.wait_for_end = wait_for_end;
  return Request::submission(std::move(transaction), retries);
}

Request sent_once(unsigned retries = 0, bool wait_for_end = false) {
  Request request = submission(retries, wait_for_end);
  EXPECT_TRUE(request.make_ready(kKnown, kLog, milliseconds{0}));
  request.sent();
  return request;
}

void send_again(Request& request) {
  EXPECT_TRUE(request.make_ready({9, 9}, kLog, milliseconds{250}));
  request.sent();
}

TEST(Request, ADecisionIsFinal) {
  for (Verdict verdict : {Verdict::committed, Verdict::aborted, Verdict::expired}) {
    Request request = sent_once();
    EXPECT_EQ(request.answered(outcome(verdict)), Next::finish);
    EXPECT_EQ(request.take_outcome().verdict, verdict);
  }
}

// Its work might be done twice where a branch did not roll back.
TEST(Request, AHeuristicAbortIsNotTriedAgain) {
  for (const bool heuristic : {false, true}) {
    Request request = sent_once(5);
    Outcome aborted = outcome(Verdict::aborted, Reason::lost);
    aborted.heuristic = heuristic;
    EXPECT_EQ(request.answered(aborted), heuristic ? Next::finish : Next::send_again);
    EXPECT_EQ(request.retried() != nullptr, !heuristic);
  }
}

TEST(Request, OnlyAnAbortIsARetry) {
  Request request = sent_once(5);
  EXPECT_EQ(request.answered(outcome(Verdict::aborted, Reason::unavailable)), Next::send_again);
  ASSERT_TRUE(request.retried());
  EXPECT_EQ(request.retried()->reason, Reason::unavailable);
  send_again(request);
  EXPECT_EQ(request.answered(outcome(Verdict::unknown)), Next::send_again);
  EXPECT_FALSE(request.retried());
}

TEST(Request, MismatchIsFinalAlsoWithRetriesLeft) {
  Request request = sent_once(5);
  EXPECT_EQ(request.answered(outcome(Verdict::rejected, Reason::mismatch)), Next::finish);
}

TEST(Request, KnownIsFixedAtTheFirstSendingAndAgeGrows) {
  Request request = sent_once();
  send_again(request);
  EXPECT_EQ(from_wire(request.frame().submit().known()), kKnown);
  EXPECT_EQ(request.frame().submit().age_ms(), 250u);
}

TEST(Request, KnownMayGrowUntilTheFirstSending) {
  Request request = submission();
  EXPECT_TRUE(request.make_ready({3, 10}, kLog, milliseconds{0}));
  EXPECT_TRUE(request.make_ready({3, 11}, kLog, milliseconds{0}));
  EXPECT_EQ(from_wire(request.frame().submit().known()), (TxnId{3, 11}));
}

TEST(Request, AnAnswerThatSettlesNothingIsSentAgain) {
  Request request = sent_once();
  EXPECT_EQ(request.answered(outcome(Verdict::unknown, Reason::shutdown, "stopping")),
            Next::send_again);
  EXPECT_EQ(request.answered(outcome(Verdict::pending)), Next::send_again);
}

TEST(Request, WithoutAnAnswerItMayHaveCommitted) {
  Request request = sent_once();
  request.answered(outcome(Verdict::unknown, Reason::shutdown, "stopping now"));
  const Outcome told = request.without_answer("no answer within 5 ms");
  EXPECT_EQ(told.verdict, Verdict::unknown);
  EXPECT_THAT(told.detail, HasSubstr("no answer within 5 ms"));
  EXPECT_THAT(told.detail, HasSubstr("stopping now"));
  EXPECT_THAT(told.detail, HasSubstr("request id r-1"));
}

TEST(Request, NeverSentMeansThatNothingHasHappened) {
  const Outcome told = submission().without_answer("unreachable");
  EXPECT_EQ(told.verdict, Verdict::rejected);
  EXPECT_EQ(told.reason, Reason::unavailable);
}

TEST(Request, ARejectionSaysNothingOfAnEarlierSending) {
  Request request = sent_once();
  send_again(request);  // the first one's answer was lost
  EXPECT_EQ(request.answered(outcome(Verdict::rejected, Reason::shutdown)), Next::send_again);
  EXPECT_EQ(request.without_answer("late").verdict, Verdict::unknown);
  send_again(request);
  EXPECT_EQ(request.answered(outcome(Verdict::committed)), Next::finish);
}

TEST(Request, ARejectionOfTheOnlySendingIsTheTruth) {
  Request request = sent_once();
  EXPECT_EQ(request.answered(outcome(Verdict::rejected, Reason::overload)), Next::finish);
}

TEST(Request, RetriesWhatMayBeRetriedAndCounts) {
  Request request = sent_once(2);
  EXPECT_EQ(request.answered(outcome(Verdict::aborted, Reason::deadlock)), Next::send_again);
  send_again(request);
  EXPECT_EQ(request.answered(outcome(Verdict::rejected, Reason::overload)), Next::send_again);
  send_again(request);
  EXPECT_EQ(request.answered(outcome(Verdict::aborted, Reason::timeout)), Next::finish);
  EXPECT_EQ(request.told(request.take_outcome()).attempts, 3u);
}

TEST(Request, DoesNotRetryABusinessRefusal) {
  Request request = sent_once(2);
  EXPECT_EQ(request.answered(outcome(Verdict::aborted, Reason::refused)), Next::finish);
}

TEST(Request, BetweenRetriesTheLastAbortIsTheTruth) {
  Request request = sent_once(2);
  request.answered(outcome(Verdict::aborted, Reason::deadlock));
  EXPECT_EQ(request.without_answer("late").verdict, Verdict::aborted);
  send_again(request);
  EXPECT_EQ(request.without_answer("late").verdict, Verdict::unknown);
}

TEST(Request, IsNotSentToAnotherLogWhileItMayRunInTheFirst) {
  Request request = sent_once(1);
  EXPECT_FALSE(request.make_ready({1, 0}, LogId{78}, milliseconds{1}));
  EXPECT_EQ(request.without_answer("another log").verdict, Verdict::unknown);
}

TEST(Request, OnceAbortedItMayRunInAnotherLogWithThatLogsKnown) {
  Request request = sent_once(1);
  request.answered(outcome(Verdict::aborted, Reason::deadlock));
  EXPECT_TRUE(request.make_ready({1, 5}, LogId{78}, milliseconds{1}));
  EXPECT_EQ(from_wire(request.frame().submit().known()), (TxnId{1, 5}));
}

Outcome committed_not_ended() {
  Outcome result = outcome(Verdict::committed);
  result.gtrid = "g-1";
  result.results = {{"payments", "bytes"}};
  return result;
}

TEST(Request, AsksForTheEndByGtridOnceDecided) {
  Request request = sent_once(0, true);
  EXPECT_EQ(request.frame().submit().reply_at(), wire::REPLY_AT_END);
  EXPECT_EQ(request.answered(committed_not_ended()), Next::send_again);
  ASSERT_TRUE(request.frame().has_ask());
  EXPECT_EQ(request.frame().ask().gtrid(), "g-1");
  EXPECT_EQ(request.frame().ask().reply_at(), wire::REPLY_AT_END);
  request.sent();
  // Whatever happens now, it has committed.
  EXPECT_EQ(request.without_answer("late").verdict, Verdict::committed);
  EXPECT_EQ(request.answered(outcome(Verdict::pending)), Next::send_again);
  Outcome ended = outcome(Verdict::committed);
  ended.ended = true;
  ended.heuristic = true;
  EXPECT_EQ(request.answered(ended), Next::finish);
  const Outcome told = request.take_outcome();
  EXPECT_TRUE(told.ended);
  EXPECT_TRUE(told.heuristic);
  EXPECT_EQ(told.results.size(), 1u);
}

TEST(Request, AnOutcomePurgedWhileWaitingForTheEndHasEnded) {
  Request request = sent_once(0, true);
  request.answered(committed_not_ended());
  request.sent();
  EXPECT_EQ(request.answered(outcome(Verdict::expired)), Next::finish);
  const Outcome told = request.take_outcome();
  EXPECT_EQ(told.verdict, Verdict::committed);
  EXPECT_TRUE(told.ended);
}

TEST(Request, AQuestionPassesOnWhatItIsToldAndAsksAgainIfTheAnswererLeaves) {
  wire::Ask ask;
  ask.set_request_id("r-9");
  Request request = Request::question(ask);
  request.sent();
  EXPECT_EQ(request.answered(outcome(Verdict::unknown, Reason::shutdown)), Next::send_again);
  request.sent();
  EXPECT_EQ(request.answered(outcome(Verdict::pending)), Next::finish);
  EXPECT_EQ(request.take_outcome().verdict, Verdict::pending);
  EXPECT_EQ(Request::question(ask).without_answer("late").verdict, Verdict::unknown);
}

}  // namespace
}  // namespace twofold::client
