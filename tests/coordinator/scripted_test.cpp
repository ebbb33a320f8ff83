// A participant that answers any verb with any code: for each script, what the client is told, what
// the participant is asked in consequence, what it still holds, and what the log holds when all has
// ended. The tables are tests/scripts/participant/*.txt; TWOFOLD_REWRITE=1 writes them anew, to be
// reviewed like code.
#include <algorithm>
#include <set>
#include <sstream>

#include "tests/coordinator/engine_fixture.h"
#include "tests/coordinator/scripted.h"

namespace twofold::test {
namespace {

using Body = wire::Frame::BodyCase;

struct Script {
  std::string text;  // "commit=XA_RETRY,XAER_RMFAIL": the answers of payments, then the right ones
  Body verb = Body::kStart;
  std::vector<std::string> answers;
};

FakeParticipant::Act act(const std::string& answer) {
  if (answer == "hang") return FakeParticipant::hang();
  if (answer == "lost") return FakeParticipant::lose_the_link();
  if (answer == "failure") return FakeParticipant::fail("it cannot be answered");
  if (answer == "refusal") {
    return FakeParticipant::refuse({"", 0, "add", "min", "customer/c-1", "100", "0"});
  }
  for (const Xa code : all_codes()) {
    if (code_text(code) != answer) continue;
    const bool ended = code == Xa::ok || code == Xa::rdonly || is_heuristic(code);
    return ended ? FakeParticipant::end_with(code) : FakeParticipant::code(code);
  }
  ADD_FAILURE() << "no such answer: " << answer;
  return FakeParticipant::hang();
}

struct Verb {
  const char* name;
  Body body;
  std::vector<std::string> more;  // beside each code once
};

class ScriptedTest : public EngineTest, public ::testing::WithParamInterface<Verb> {
 protected:
  std::vector<Script> scripts() const {
    const Verb& verb = GetParam();
    std::vector<Script> all;
    const auto add = [&](std::vector<std::string> answers) {
      std::string text = std::string(verb.name) + "=";
      for (const std::string& answer : answers) {
        text += (&answer == &answers.front() ? "" : ",") + answer;
      }
      all.push_back({std::move(text), verb.body, std::move(answers)});
    };
    for (const Xa code : all_codes()) add({code_text(code)});
    for (const std::string& more : verb.more) {
      std::vector<std::string> answers;
      std::stringstream text(more);
      for (std::string one; std::getline(text, one, ',');) answers.push_back(one);
      add(std::move(answers));
    }
    return all;
  }

  std::int64_t live(TestClient& client) {
    wire::Frame frame;
    frame.mutable_stats();
    const wire::Frame answer = call(client, frame);
    for (const auto& number : answer.stats_answer().numbers()) {
      if (number.name() == "live") return number.value();
    }
    ADD_FAILURE() << "no such statistic";
    return 0;
  }

  ScriptedRow play(TestClient& client, const Script& script, int number) {
    const std::string verb = GetParam().name;
    for (const std::string& answer : script.answers) payments.script(script.verb, act(answer));
    const std::size_t before = payments.calls().size(), before_orders = orders.calls().size();
    const std::size_t forgets = payments.count("forget");
    std::vector<std::string> rms{"orders", "payments"};
    if (verb == "one_phase") rms = {"payments"};
    if (verb == "rollback") {  // the other refuses
      orders.script(Body::kStart, act("refusal"));
    }
    if (verb == "release") payments.script(Body::kStart, act("XA_RDONLY"));
    if (verb == "forget") payments.script(Body::kCommit, act("XA_HEURRB"));
    wire::Frame frame = submission("r" + std::to_string(number), rms);
    frame.mutable_submit()->set_timeout_ms(300);
    const std::uint64_t request = client.send(frame);
    until([&] {
      if (payments.hanging() > 0 && verb == "one_phase")
        payments.disconnect();  // it has no timeout
      return client.answers.count(request) > 0;
    });
    const Outcome told = from_wire(client.answers[request].outcome());
    ScriptedRow row{script.text, told.gtrid};
    row.text.resize(std::max<std::size_t>(row.text.size() + 1, 34), ' ');
    row.text += std::string(name(told.verdict));
    if (told.reason != Reason::none) row.text += " " + std::string(name(told.reason));
    // What hangs is lost; then all must end, and what ended heuristically be forgotten.
    const bool heuristic =
        verb == "forget" || (verb != "vote" && verb != "work" && verb != "prepare" &&
                             verb != "release" && script.text.find("XA_HEUR") != std::string::npos);
    const std::size_t forgotten = heuristic ? 1 : 0;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{15};
    while (live(client) > 0 || !payments.prepared.empty() || !orders.prepared.empty() ||
           payments.count("forget") < forgets + forgotten) {
      if (payments.hanging() > 0) payments.disconnect();
      io.restart();
      io.run_one_for(std::chrono::milliseconds{5});
      if (std::chrono::steady_clock::now() > limit) {
        ADD_FAILURE() << script.text << " does not end";
        break;
      }
    }
    if (payments.hanging() > 0) payments.disconnect();
    until([&] { return payments.connected(); });
    row.text += "; payments:" + calls_text(payments.calls(), before);
    if (verb != "one_phase") row.text += "; orders:" + calls_text(orders.calls(), before_orders);
    return row;
  }
};

TEST_P(ScriptedTest, EveryAnswer) {
  options.scan_period_ms = 100;
  options.reconnect_first_ms = 1;
  options.reconnect_max_ms = 5;
  options.early_prepare =
      std::string(GetParam().name) != "prepare" && std::string(GetParam().name) != "work";
  start_and_link();
  std::vector<ScriptedRow> rows;
  {
    TestClient client;
    connect(client);
    int number = 0;
    for (const Script& script : scripts()) {
      // A lost link is back, and the engine knows it, when it has been scanned.
      const std::size_t scans = payments.count("recover");
      until([&] { return payments.connected() && payments.count("recover") > scans; });
      rows.push_back(play(client, script, ++number));
      if (HasFailure()) break;
    }
  }
  crash();
  const auto kept_of = kept_in(log());
  std::string actual =
      "# What payments answers | what the client is told; what payments and orders are asked; "
      "what\n"
      "# the log keeps. After the answers named here payments gives the right ones.\n";
  for (const ScriptedRow& row : rows) {
    const auto kept = kept_of.find(row.gtrid);
    actual += row.text + "; log:" + (kept == kept_of.end() ? " -" : kept->second) + "\n";
  }
  expect_table(GetParam().name, actual);
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, ScriptedTest,
    ::testing::Values(Verb{"vote", Body::kStart, {"refusal", "hang", "lost", "failure"}},
                      Verb{"work", Body::kStart, {"refusal", "hang", "lost", "failure"}},
                      Verb{"prepare", Body::kPrepare, {"refusal", "hang", "lost", "failure"}},
                      Verb{"commit",
                           Body::kCommit,
                           {"hang", "lost", "failure", "XAER_RMFAIL,XAER_NOTA",
                            "XA_RETRY,XA_RETRY,XA_RETRY", "XA_RETRY,XA_HEURMIX", "lost,lost"}},
                      Verb{"one_phase", Body::kStart, {"refusal", "hang", "lost", "failure"}},
                      Verb{"rollback",
                           Body::kRollback,
                           {"hang", "lost", "failure", "XA_RETRY,XA_RETRY",
                            "XAER_RMFAIL,XAER_NOTA"}},
                      Verb{"release", Body::kRelease, {"hang", "lost", "failure"}},
                      Verb{"forget", Body::kForget, {"hang", "lost", "failure"}}),
    [](const auto& verb) { return std::string(verb.param.name); });

}  // namespace
}  // namespace twofold::test
