#include "lab/workflows/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "lab/workflows/transaction_line.h"
#include "tests/client/fake_coordinator.h"

namespace twofold::lab {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

Outcome outcome(Verdict verdict, const std::string& gtrid, bool ended) {
  Outcome made;
  made.verdict = verdict;
  made.gtrid = gtrid;
  made.ended = ended;
  return made;
}

void answer(Connection& connection, std::uint64_t request, const Outcome& outcome) {
  wire::Frame frame;
  frame.set_request(request);
  to_wire(outcome, *frame.mutable_outcome());
  connection.send(frame);
}

class RunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "runner-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    client::Options options;
    options.coordinator = coordinator_.address();
    client_.emplace(io_, options);
    coordinator_.script = [this](Connection& connection, const wire::Frame& frame) {
      if (frame.has_submit()) on_submit(connection, frame);
      if (frame.has_ask()) on_ask(connection, frame);
    };
    on_submit = [](Connection& connection, const wire::Frame& frame) {
      answer(connection, frame.request(),
             outcome(Verdict::committed, "g-" + frame.submit().request_id(), true));
    };
  }
  void TearDown() override {
    runner_.reset();
    reader_.reset();
    client_.reset();
    std::filesystem::remove_all(folder_);
  }

  void turn() {
    if (io_.run_one() == 0) io_.restart();
  }

  void start(const std::string& text, RunnerOptions options = {}) {
    std::ofstream(folder_ / "lines") << text;
    auto reader = LineReader::open(io_, folder_ / "lines");
    ASSERT_TRUE(reader) << reader.error().message;
    reader_ = std::move(*reader);
    runner_.emplace(
        io_, *client_, *reader_, run_, options,
        Runner::Handlers{parse_transaction_line,
                         [this](const LineResult& result) { told_[result.line] = result; },
                         [this] { ended_ = true; },
                         [this](const LineResult& result) { heuristic_.push_back(result); }});
    runner_->start();
  }
  void run(const std::string& text, RunnerOptions options = {}) {
    start(text, options);
    while (!ended_) turn();
  }
  static std::string line(const std::string& more = {}) {
    return "{" + more + R"("branches":[{"rm":"a","work":[{"op":"get","key":"k"}]}]})" + "\n";
  }

  std::filesystem::path folder_;
  boost::asio::io_context io_;
  FakeCoordinator coordinator_{io_};
  std::function<void(Connection&, const wire::Frame&)> on_submit, on_ask;
  std::optional<client::AsyncClient> client_;
  std::unique_ptr<LineReader> reader_;
  std::optional<Runner> runner_;
  const lab::Run run_{"2.5-run", {2, 5}};
  std::map<std::uint64_t, LineResult> told_;
  std::vector<LineResult> heuristic_;
  bool ended_ = false;
};

TEST_F(RunnerTest, EveryLineIsToldOnceWithItsNumberAndRequest) {
  run(line() + "\n" + "not json\n" + line(R"("request_id":"mine",)"));
  ASSERT_EQ(told_.size(), 3U);
  EXPECT_EQ(told_[1].request_id, "2.5-run:1");
  EXPECT_EQ(told_[1].outcome.verdict, Verdict::committed);
  EXPECT_EQ(told_[3].outcome.reason, Reason::invalid);
  EXPECT_THAT(told_[3].outcome.detail, StartsWith("not valid JSON"));
  EXPECT_EQ(told_[4].request_id, "mine");
  EXPECT_EQ(runner_->counts().told, 3U);

  // A request of the run goes with what the run knew when it began, also on a later day (rule 7).
  const auto submits = coordinator_.submits();
  ASSERT_EQ(submits.size(), 2U);
  EXPECT_EQ(from_wire(submits[0].known()), (TxnId{2, 5}));
  EXPECT_EQ(from_wire(submits[1].known()), (TxnId{3, 10}));
}

// Known with the result, or only when every branch has ended; told once either way.
TEST_F(RunnerTest, AHeuristicEndIsToldOnceWheneverItComesToLight) {
  on_submit = [](Connection& connection, const wire::Frame& frame) {
    Outcome made = outcome(Verdict::committed, "g-" + frame.submit().request_id(), false);
    made.heuristic = frame.submit().request_id() == "at-once";
    answer(connection, frame.request(), made);
  };
  on_ask = [](Connection& connection, const wire::Frame& frame) {
    Outcome made = outcome(Verdict::committed, frame.ask().gtrid(), true);
    made.heuristic = frame.ask().gtrid() != "g-never";
    answer(connection, frame.request(), made);
  };
  run(line(R"("request_id":"at-once",)") + line(R"("request_id":"late",)") +
      line(R"("request_id":"never",)"));
  EXPECT_EQ(told_.size(), 3U);
  EXPECT_EQ(runner_->counts().heuristic, 2U);
  ASSERT_EQ(heuristic_.size(), 2U);
  EXPECT_EQ(heuristic_[0].request_id, "at-once");
  EXPECT_EQ(heuristic_[1].request_id, "late");
  EXPECT_EQ(heuristic_[1].line, 2U);
  EXPECT_TRUE(heuristic_[1].outcome.heuristic);
  EXPECT_FALSE(told_[2].outcome.heuristic);
}

TEST_F(RunnerTest, NoMoreThanTheWindowIsInFlight) {
  std::deque<std::uint64_t> waiting;
  std::size_t most = 0;
  on_submit = [&](Connection& connection, const wire::Frame& frame) {
    waiting.push_back(frame.request());
    most = std::max(most, waiting.size());
    if (waiting.size() < 3 && coordinator_.submits().size() < 20) return;
    // The youngest first: the window must not wait for the oldest.
    answer(connection, waiting.back(), outcome(Verdict::committed, "g", true));
    waiting.pop_back();
    if (coordinator_.submits().size() < 20) return;
    for (const auto request : waiting) {
      answer(connection, request, outcome(Verdict::committed, "g", true));
    }
    waiting.clear();
  };
  std::string text;
  for (int i = 0; i < 20; ++i) text += line();
  run(text, {3, true});
  EXPECT_EQ(told_.size(), 20U);
  EXPECT_EQ(most, 3U);
}

TEST_F(RunnerTest, EndsOnlyWhenEveryTransactionHasEnded) {
  on_submit = [](Connection& connection, const wire::Frame& frame) {
    answer(connection, frame.request(), outcome(Verdict::committed, "some gtrid", false));
  };
  std::optional<std::uint64_t> asked;
  on_ask = [&](Connection&, const wire::Frame& frame) { asked = frame.request(); };
  start(line());
  while (!asked) turn();
  EXPECT_EQ(told_.size(), 1U);
  EXPECT_FALSE(ended_);
  EXPECT_EQ(runner_->counts().ending, 1U);
  EXPECT_EQ(coordinator_.asks()[0].gtrid(), "some gtrid");
  EXPECT_EQ(coordinator_.asks()[0].reply_at(), wire::REPLY_AT_END);
  answer(coordinator_.connection(), *asked, outcome(Verdict::committed, "some gtrid", true));
  while (!ended_) turn();
  EXPECT_EQ(runner_->counts().ending, 0U);
  EXPECT_EQ(runner_->counts().unfinished, 0U);
}

TEST_F(RunnerTest, WithoutWaitingNothingIsAsked) {
  on_submit = [](Connection& connection, const wire::Frame& frame) {
    answer(connection, frame.request(), outcome(Verdict::aborted, "g", false));
  };
  run(line() + line(), {16, false});
  EXPECT_EQ(told_.size(), 2U);
  EXPECT_TRUE(coordinator_.asks().empty());
}

TEST_F(RunnerTest, AnEndThatNobodyCanTellIsUnfinished) {
  on_submit = [](Connection& connection, const wire::Frame& frame) {
    answer(connection, frame.request(), outcome(Verdict::committed, "g", false));
  };
  on_ask = [](Connection& connection, const wire::Frame& frame) {
    answer(connection, frame.request(), outcome(Verdict::unknown, "g", false));
  };
  run(line());
  EXPECT_EQ(runner_->counts().unfinished, 1U);
}

TEST_F(RunnerTest, StopTakesNoFurtherLines) {
  std::vector<std::uint64_t> waiting;
  on_submit = [&](Connection&, const wire::Frame& frame) { waiting.push_back(frame.request()); };
  start(line() + line() + line() + line(), {2, true});
  while (waiting.size() < 2) turn();
  runner_->stop();
  EXPECT_FALSE(ended_);
  for (const auto request : waiting) {
    answer(coordinator_.connection(), request, outcome(Verdict::committed, "g", true));
  }
  while (!ended_) turn();
  EXPECT_EQ(told_.size(), 2U);
  EXPECT_EQ(coordinator_.submits().size(), 2U);
  EXPECT_FALSE(runner_->counts().whole);
}

TEST_F(RunnerTest, StopDoesNotWaitForEnds) {
  std::vector<std::uint64_t> waiting;
  on_submit = [&](Connection& connection, const wire::Frame& frame) {
    if (coordinator_.submits().size() == 1) {
      return answer(connection, frame.request(), outcome(Verdict::committed, "first", false));
    }
    waiting.push_back(frame.request());
  };
  std::optional<std::uint64_t> asked;
  on_ask = [&](Connection&, const wire::Frame& frame) { asked = frame.request(); };
  start(line() + line());
  while (waiting.empty() || !asked) turn();
  EXPECT_TRUE(runner_->counts().whole);
  runner_->stop();
  EXPECT_EQ(runner_->counts().ending, 0U);
  EXPECT_EQ(runner_->counts().unfinished, 1U);
  EXPECT_FALSE(ended_);  // the second is not decided
  answer(coordinator_.connection(), waiting.front(), outcome(Verdict::committed, "second", false));
  while (!ended_) turn();
  EXPECT_EQ(told_.size(), 2U);
  EXPECT_EQ(runner_->counts().unfinished, 2U);
  EXPECT_TRUE(runner_->counts().whole);
  EXPECT_EQ(coordinator_.asks().size(), 1U);
}

TEST_F(RunnerTest, StopEndsAtOnceWhenOnlyEndsAreWaitedFor) {
  on_submit = [](Connection& connection, const wire::Frame& frame) {
    answer(connection, frame.request(), outcome(Verdict::committed, "g", false));
  };
  std::optional<std::uint64_t> asked;
  on_ask = [&](Connection&, const wire::Frame& frame) { asked = frame.request(); };
  start(line());
  while (!asked) turn();
  runner_->stop();
  while (!ended_) turn();
  EXPECT_EQ(runner_->counts().unfinished, 1U);
  client_.reset();  // ends the open question, which changes nothing
  EXPECT_EQ(runner_->counts().unfinished, 1U);
}

TEST(Run, ItsTextCarriesWhatWasKnown) {
  const auto made = Run::make({3, 17});
  EXPECT_THAT(made.id, StartsWith("3.17-"));
  EXPECT_NE(made.id, Run::make({3, 17}).id);
  const auto read = Run::parse(made.id);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->id, made.id);
  EXPECT_EQ(read->known, (TxnId{3, 17}));
  EXPECT_EQ(read->request_id("7"), made.id + ":7");
}

TEST(Run, AnyTextIsARunButAsOldAsCanBe) {
  for (const char* text : {"mine", "x-1", "0.0-x", "3.17"}) {
    const auto read = Run::parse(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->known, (TxnId{0, 1})) << text;
  }
  EXPECT_FALSE(Run::parse(""));
  EXPECT_FALSE(Run::parse(std::string(129, 'x')));
  EXPECT_FALSE(Run::parse("\xff"));
}

TEST(Outcomes, HaveOneOfFourWords) {
  Outcome rejected;
  rejected.verdict = Verdict::rejected;
  rejected.reason = Reason::invalid;
  EXPECT_EQ(outcome_word(rejected), "invalid");
  rejected.reason = Reason::overload;
  EXPECT_EQ(outcome_word(rejected), "aborted");
  EXPECT_EQ(outcome_word(outcome(Verdict::committed, "g", true)), "committed");
  EXPECT_EQ(outcome_word(outcome(Verdict::aborted, "g", true)), "aborted");
  EXPECT_EQ(outcome_word(outcome(Verdict::not_found, "", true)), "aborted");
  for (const auto verdict : {Verdict::unknown, Verdict::expired, Verdict::pending}) {
    EXPECT_EQ(outcome_word(outcome(verdict, "g", false)), "unknown");
  }
}

TEST(Outcomes, SayWhy) {
  Outcome made;
  made.detail = "kitchen is not connected";
  EXPECT_EQ(reason_text(made), "kitchen is not connected");
  made.refusals = {{"a", 0, "add", "min", "k", "1", "0"},
                   {"b", 0, "insert", "present", "l", "", ""}};
  EXPECT_EQ(reason_text(made), to_text(made.refusals[0]) + "; " + to_text(made.refusals[1]));
}

}  // namespace
}  // namespace twofold::lab
