#include "tests/process/crash_cases.h"

#include <ostream>
#include <stdexcept>

namespace twofold::test {

namespace {

Operation add(const std::string& key, std::int64_t by) {
  return {"add", {{"key", Value{key}}, {"by", Value{by}}}};
}
Operation take(const std::string& key, std::int64_t by) {
  return {"add", {{"key", Value{key}}, {"by", Value{-by}}, {"min", Value{std::int64_t{0}}}}};
}
Operation get(const std::string& key) {
  return {"get", {{"key", Value{key}}}};
}

// Before and after the first n crossings of a name.
void cross(std::vector<CrashCase>& cases, const std::string& process, const std::string& story,
           const std::string& name, int n = 1) {
  for (int i = 1; i <= n; ++i) {
    for (const char* when : {"before:", "after:"}) {
      cases.push_back({process, when + name + "#" + std::to_string(i), story, false, {}});
    }
  }
}

void cross_at_start(std::vector<CrashCase>& cases, const std::string& process,
                    const std::string& name) {
  for (const char* when : {"before:", "after:"}) {
    cases.push_back({process, when + name, "transfer", true, {}});
  }
}

void cross_provoked(std::vector<CrashCase>& cases, const std::string& process,
                    const std::string& story, const std::string& name, Provocation provocation) {
  for (const char* when : {"before:", "after:"}) {
    cases.push_back({process, when + name, story, false, provocation});
  }
}

std::vector<CrashCase> coordinator_cases() {
  std::vector<CrashCase> cases;
  const std::string c = "coordinator";
  cross(cases, c, "transfer", "Submit");
  cross(cases, c, "transfer", "Start", 3);
  cross(cases, c, "transfer", "Voted", 3);
  cross(cases, c, "transfer", "Persist", 2);  // the commit record, the end record
  cross(cases, c, "transfer", "Durable", 2);
  cross(cases, c, "transfer", "Reply");
  cross(cases, c, "transfer", "Commit", 3);
  cross(cases, c, "transfer", "Acknowledged", 3);
  cross(cases, c, "mixed", "Persist", 2);
  cross(cases, c, "mixed", "Release");
  cross(cases, c, "reading", "Release", 2);
  cross(cases, c, "reading", "Persist");
  cross(cases, c, "single", "Persist", 2);  // the intent, the end record
  cross(cases, c, "single", "Durable", 2);
  cross(cases, c, "single", "Start");
  cross(cases, c, "single", "Acknowledged");
  cross(cases, c, "single", "Reply");
  cross(cases, c, "refused", "Persist");
  cross(cases, c, "refused", "Durable");
  cross(cases, c, "refused", "Rollback", 2);
  cross(cases, c, "refused", "Reply");
  cross(cases, c, "in_turn", "WorkDone", 3);
  cross(cases, c, "in_turn", "Prepare", 3);
  cross_at_start(cases, c, "LinkUp");
  cross_at_start(cases, c, "ListInDoubt");
  cross_at_start(cases, c, "InDoubtListed");
  cross_at_start(cases, c, "SendMark");
  cross_at_start(cases, c, "Tick");
  cross(cases, c, "transfer", "OutcomeAsked");
  cross(cases, c, "interactive", "Begin");
  cross(cases, c, "interactive", "Enlist", 3);
  cross(cases, c, "interactive", "WorkDone");
  cross(cases, c, "interactive", "Enlisted", 2);
  cross(cases, c, "interactive", "CommitRequested");
  cross(cases, c, "interactive", "Prepare", 3);
  cross(cases, c, "interactive", "Persist", 2);
  cross(cases, c, "interactive", "Reply", 2);  // begun, committed
  cross(cases, c, "interactive_single", "Persist");
  cross(cases, c, "interactive_single", "Commit");
  cross(cases, c, "interactive_single", "Acknowledged");
  cross(cases, c, "rolled_back", "RollbackRequested");
  cross(cases, c, "rolled_back", "Rollback", 2);
  using Kind = Provocation::Kind;
  cross_provoked(cases, c, "transfer", "LinkDown", {Kind::kill, "payments", ""});
  cross_provoked(cases, c, "transfer", "Shutdown", {Kind::terminate, c, ""});
  // The one-phase commit is durable and its answer is lost.
  const Provocation answer_lost{Kind::crash, "payments", "before:Answer"};
  cross_provoked(cases, c, "single", "AskOutcome", answer_lost);
  cross_provoked(cases, c, "single", "OutcomeTold", answer_lost);
  return cases;
}

std::vector<CrashCase> resource_manager_cases() {
  std::vector<CrashCase> cases;
  const std::string rm = "payments";
  cross(cases, rm, "transfer", "Start");
  cross(cases, rm, "transfer", "Run");
  cross(cases, rm, "transfer", "Ran");
  cross(cases, rm, "transfer", "PersistPrepare");
  // Its session's first Persisted is the node's; then the prepared record's and the commit's.
  cross(cases, rm, "transfer", "Persisted", 2);
  cross(cases, rm, "transfer", "Answer", 2);
  cross(cases, rm, "transfer", "Commit");
  cross(cases, rm, "transfer", "PersistCommit");
  cross(cases, rm, "transfer", "Mark");
  cross(cases, rm, "transfer", "PersistNode");
  cross(cases, "kitchen", "mixed", "Answer", 2);
  cross(cases, "kitchen", "mixed", "Release");
  cross(cases, "kitchen", "mixed", "Discard");
  cross(cases, rm, "single", "PersistCommit");
  cross(cases, rm, "single", "Persisted");
  cross(cases, rm, "single", "Answer");
  cross(cases, "orders", "refused", "PersistPrepare");
  cross(cases, "orders", "refused", "Rollback");
  cross(cases, "orders", "refused", "PersistRollback");
  cross(cases, "orders", "refused", "Answer", 2);
  cross(cases, rm, "in_turn", "Prepare");
  cross(cases, rm, "in_turn", "PersistPrepare");
  cross(cases, rm, "interactive", "Start");
  cross(cases, rm, "interactive", "Join");
  cross(cases, rm, "interactive", "Execute");
  cross(cases, rm, "interactive", "End");
  cross(cases, rm, "interactive", "Prepare");
  cross(cases, rm, "interactive_single", "Commit");
  cross(cases, rm, "interactive_single", "PersistCommit");
  cross(cases, rm, "rolled_back", "Rollback");
  cross_at_start(cases, rm, "SessionRequested");
  cross_at_start(cases, rm, "AcceptSession");
  cross_at_start(cases, rm, "Recover");
  cross_at_start(cases, rm, "AnswerRecover");
  using Kind = Provocation::Kind;
  cross_provoked(cases, rm, "transfer", "ConnectionClosed", {Kind::kill, "coordinator", ""});
  const Provocation answer_lost{Kind::crash, "coordinator", "before:Acknowledged"};
  cross_provoked(cases, rm, "single", "AskOutcome", answer_lost);
  cross_provoked(cases, rm, "single", "AnswerFromEvidence", answer_lost);
  return cases;
}

}  // namespace

const std::vector<Story>& stories() {
  static const std::vector<Story> all = {
      {"transfer",
       {{"orders", {add("count", 1)}},
        {"payments", {add("count", 1)}},
        {"dispatch", {add("count", 1)}}},
       true,
       {},
       false},
      {"mixed",
       {{"orders", {add("count", 1)}},
        {"kitchen", {get("count")}},
        {"payments", {add("count", 1)}}},
       true,
       {},
       false},
      {"reading", {{"orders", {get("count")}}, {"payments", {get("count")}}}, true, {}, false},
      {"single", {{"payments", {add("count", 1)}}}, true, {}, false},
      {"refused",
       {{"orders", {add("count", 1)}}, {"payments", {take("nothing", 1)}}},
       false,
       {},
       false},
      {"in_turn",
       {{"orders", {add("count", 1)}},
        {"payments", {add("count", 1)}},
        {"dispatch", {add("count", 1)}}},
       true,
       {"--no-early-prepare"},
       false},
      {"interactive",
       {{"orders", {add("count", 1)}},
        {"payments", {add("count", 1)}},
        {"dispatch", {add("count", 1)}}},
       true,
       {},
       true},
      {"interactive_single", {{"payments", {add("count", 1)}}}, true, {}, true},
      {"rolled_back",
       {{"orders", {add("count", 1)}}, {"payments", {add("count", 1)}}},
       false,
       {},
       true},
  };
  return all;
}

const Story& story(const std::string& name) {
  for (const Story& one : stories()) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("no story " + name);
}

void PrintTo(const CrashCase& one, std::ostream* out) {
  *out << one.process << " " << one.point;
}

const std::vector<CrashCase>& crash_cases() {
  static const std::vector<CrashCase> all = [] {
    std::vector<CrashCase> cases = coordinator_cases();
    for (CrashCase& one : resource_manager_cases()) cases.push_back(std::move(one));
    return cases;
  }();
  return all;
}

const std::vector<NotCrossed>& not_crossed() {
  static const std::vector<NotCrossed> all = {
      {"coordinator", "Refused", "the log has to be full: process_full_test"},
      {"coordinator", "SpaceChanged", "the log has to be full: process_full_test"},
      {"coordinator", "Forget", "no store decides heuristically: coordinator_core_test"},
      {"coordinator", "Alarm", "nothing here is alarming: coordinator_core_test"},
      {"coordinator", "WaitsReported", "transactions have to wait: process_interactive_test"},
      {"coordinator", "Drain", "an operator has to drain: process_participants_test"},
      {"coordinator", "DrainTold", "an operator has to drain: process_participants_test"},
      {"payments", "ReportWaits", "transactions have to wait: process_interactive_test"},
      {"payments", "Refused", "the store has to be full: process_full_test"},
      {"payments", "SpaceChanged", "the store has to be full: process_full_test"},
      {"payments", "Tick", "a lock timeout: branch_core_test"},
      {"payments", "Forget", "no store decides heuristically: branch_core_test"},
      {"payments", "RefuseSession", "a stale coordinator: rm_server_test"},
      {"payments", "CloseConnection", "two sessions at once: rm_server_test"},
      {"payments", "AnswerEvidence", "asked about a branch that is there: branch_core_test"},
      {"payments", "AnswerFailure", "a scan that was never begun: branch_core_test"},
      {"payments", "Alarm", "nothing here is alarming: branch_core_test"},
  };
  return all;
}

}  // namespace twofold::test
