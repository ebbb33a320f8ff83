// Every (phase, event) pair is driven, and what comes of it is compared with docs/transitions.md.
// TWOFOLD_REWRITE=1 writes that file anew: read the difference before you keep it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "tests/coordinator/core_text.h"

namespace twofold::coordinator::test {
namespace {

constexpr TxnId kId{1, 1};
constexpr const char* kPage = TWOFOLD_SOURCE_DIR "/docs/transitions.md";

// The transaction under test is 1.1, request r1: branch 0 at orders, branch 1 at payments; a
// one-phase commit has branch 0 at orders alone. Events come for the last branch.
struct Case {
  Bench bench;
  BranchKey branch;
  RmId rm;
  std::uint64_t ticket = 0;  // of the record that is being written, if it may be refused

  Case(Options options, bool single)
      : bench(std::move(options)),
        branch{kId, static_cast<std::uint16_t>(single ? 0 : 1)},
        rm(single ? 0 : 1) {
    bench.link_all();
    Submit submit = submission(single);
    bench.step(std::move(submit));
  }
  // Interactive: both are being enlisted.
  Case(Options options, const Begin& begin) : bench(std::move(options)), branch{kId, 1}, rm(1) {
    bench.link_all();
    bench.step(begin);
    bench.step(Enlist{{1, 2}, gtrid(), "orders"});
    bench.step(Enlist{{1, 3}, gtrid(), "payments"});
  }
  static Submit submission(bool single, std::string work = "work") {
    Submit submit;
    submit.requester = {1, 1};
    submit.request_id = "r1";
    submit.branches = {{"orders", std::move(work)}};
    if (!single) submit.branches.push_back({"payments", "work"});
    return submit;
  }
  bool single() const { return rm == 0; }
  std::string gtrid() const { return bench.gtrid(kId); }
  void vote(std::uint16_t index, Xa code, std::vector<Refusal> refusals = {}) {
    bench.step(Voted{{kId, index}, code, {}, std::move(refusals), {}, false, index});
  }
  Acknowledged ack(Acknowledged::Verb verb, Xa code, std::vector<Refusal> refusals = {}) const {
    const auto name = single() ? "orders" : "payments";
    return {rm, branch, bench.xid(branch, name), verb, code, {}, std::move(refusals), {}, false};
  }
  InDoubtListed scan(bool complete) const { return {rm, complete, {}}; }
  InDoubtListed scan_with(bool busy) const {
    return {rm, true, {{bench.xid(branch, single() ? "orders" : "payments"), busy}}};
  }
  // As a scan that began now would find: every event is given with a scan under way.
  void begin_scan() { bench.advance(std::chrono::seconds{5}); }
  std::string state() const;
};

std::string Case::state() const {
  Coordinator& core = const_cast<Case*>(this)->bench.core();
  const auto view = core.show_gtrid(bench.gtrid(kId));
  if (!view) return "ended";  // and nothing of it is kept
  std::string line(name(view->phase));
  if (view->phase == Phase::ended) return line;
  line += " (";
  for (const BranchView& one : view->branches) {
    line += std::string(&one == &view->branches.front() ? "" : ", ") + std::string(name(one.state));
  }
  return line + ")";
}

Options options(bool early_prepare = true) {
  Options options;
  options.resource_managers = {"orders", "payments"};
  options.early_prepare = early_prepare;
  return options;
}

struct State {
  const char* title;
  Phase phase;
  std::function<Case()> build;
};

Case preparing() {
  return Case(options(), false);
}
Case deciding() {
  Case one = preparing();
  one.vote(0, Xa::ok);
  one.vote(1, Xa::ok);
  one.ticket = 1;
  return one;
}
Case committing() {
  Case one = deciding();
  one.bench.durable(1);
  one.ticket = 0;
  one.bench.step(Acknowledged{0,
                              {kId, 0},
                              one.bench.xid({kId, 0}, "orders"),
                              Acknowledged::Verb::commit,
                              Xa::ok,
                              {},
                              {},
                              {},
                              false});
  return one;
}
Case aborting() {
  Case one = preparing();
  one.vote(0, Xa::rbdeadlock);
  one.bench.step(Acknowledged{0,
                              {kId, 0},
                              one.bench.xid({kId, 0}, "orders"),
                              Acknowledged::Verb::rollback,
                              Xa::ok,
                              {},
                              {},
                              {},
                              false});
  return one;
}
Case one_phase() {
  Case one(options(), true);
  one.bench.durable(1);
  return one;
}
Case lost(Case one) {  // and up again; the scan that follows is under way
  one.bench.step(LinkDown{one.rm});
  one.bench.step(LinkUp{one.rm, 99, 500 + one.rm});
  return one;
}
Case asking(Case one) {
  Case again = lost(std::move(one));
  again.bench.step(again.scan(true));
  return again;
}
Case ended() {
  Case one = committing();
  one.bench.step(one.ack(Acknowledged::Verb::commit, Xa::ok));
  one.bench.durable();
  return one;
}

Case active() {
  Case one(options(), Begin{{1, 1}, {}, {}});
  one.bench.step(WorkDone{{kId, 0}, Xa::ok, {}, {}, {}, false, 0});
  return one;
}

std::vector<State> states() {
  return {
      {"active: orders has been enlisted, payments is being enlisted", Phase::active, active},
      {"intending: the intent is being written", Phase::intending,
       [] {
         Case one(options(), true);
         one.ticket = 1;
         return one;
       }},
      {"working: orders has done its work, payments has not", Phase::working,
       [] {
         Case one(options(false), false);
         one.bench.step(WorkDone{{kId, 0}, Xa::ok, {}, {}, {}, false, 0});
         return one;
       }},
      {"preparing: orders has voted yes, payments has not voted", Phase::preparing,
       [] {
         Case one = preparing();
         one.vote(0, Xa::ok);
         return one;
       }},
      {"preparing: orders has only read, payments has not voted", Phase::preparing,
       [] {
         Case one = preparing();
         one.vote(0, Xa::rdonly);
         return one;
       }},
      {"preparing: orders refused, payments has not voted", Phase::preparing,
       [] {
         Case one = preparing();
         one.vote(0, Xa::rbintegrity, {refusal("key")});
         return one;
       }},
      {"preparing: orders has not voted, payments voted yes", Phase::preparing,
       [] {
         Case one = preparing();
         one.vote(1, Xa::ok);
         return one;
       }},
      {"releasing: orders voted yes, payments has only read and is asked whether it still holds "
       "its locks",
       Phase::releasing,
       [] {
         Case one = preparing();
         one.vote(0, Xa::ok);
         one.vote(1, Xa::rdonly);
         return one;
       }},
      {"releasing: both have only read, orders has let go, payments has not answered",
       Phase::releasing,
       [] {
         Case one = preparing();
         one.vote(0, Xa::rdonly);
         one.vote(1, Xa::rdonly);
         one.bench.step(Acknowledged{0,
                                     {kId, 0},
                                     one.bench.xid({kId, 0}, "orders"),
                                     Acknowledged::Verb::release,
                                     Xa::ok,
                                     {},
                                     {},
                                     {},
                                     false});
         return one;
       }},
      {"deciding: both voted yes, the commit record is being written", Phase::deciding, deciding},
      {"refusing: payments refused, the refusal is being written", Phase::refusing,
       [] {
         Case one = preparing();
         one.vote(0, Xa::ok);
         one.vote(1, Xa::rbintegrity, {refusal("key")});
         one.ticket = 1;
         return one;
       }},
      {"one_phase: the work and its commit are with orders", Phase::one_phase, one_phase},
      {"resolving: the session of the one-phase commit was lost, and there is a new one",
       Phase::resolving, [] { return lost(one_phase()); }},
      {"resolving: a complete scan lacks the branch", Phase::resolving,
       [] { return asking(one_phase()); }},
      {"committing: orders is done, Commit sent to payments", Phase::committing, committing},
      {"committing: the answer of payments was lost, and there is a new session", Phase::committing,
       [] { return lost(committing()); }},
      {"committing: a complete scan of payments lacks the branch", Phase::committing,
       [] { return asking(committing()); }},
      {"aborting: orders is done, Rollback sent to payments", Phase::aborting, aborting},
      {"aborting: the answer of payments was lost, and there is a new session", Phase::aborting,
       [] { return lost(aborting()); }},
      {"ended: committed", Phase::ended, ended},
  };
}

struct Input {
  std::string title;
  std::function<std::vector<Effect>(Case&)> drive;
  std::size_t event;  // index in the variant
};

template <class Kind>
Input input(std::string title, std::function<Kind(Case&)> make) {
  const std::size_t index = Event(Kind{}).index();
  return {std::move(title), [make](Case& one) { return one.bench.step(make(one)); }, index};
}

void add_answers(std::vector<Input>& all) {
  const auto work = [&all](std::string title, Xa code, bool refused) {
    all.push_back(input<WorkDone>("WorkDone " + title, [=](Case& one) {
      return WorkDone{
          one.branch, code,  {},    refused ? std::vector{refusal("key")} : std::vector<Refusal>{},
          {},         false, one.rm};
    }));
  };
  const auto vote = [&all](std::string title, Xa code, bool refused) {
    all.push_back(input<Voted>("Voted " + title, [=](Case& one) {
      return Voted{
          one.branch, code,  {},    refused ? std::vector{refusal("key")} : std::vector<Refusal>{},
          {},         false, one.rm};
    }));
  };
  work("ok", Xa::ok, false);
  work("refused", Xa::rbintegrity, true);
  work("XA_RBTIMEOUT", Xa::rbtimeout, false);
  vote("ok", Xa::ok, false);
  vote("XA_RDONLY", Xa::rdonly, false);
  vote("refused", Xa::rbintegrity, true);
  vote("XA_RBDEADLOCK", Xa::rbdeadlock, false);
  vote("XAER_RMFAIL", Xa::er_rmfail, false);
}

void add_acknowledgements(std::vector<Input>& all) {
  using Verb = Acknowledged::Verb;
  const std::pair<Verb, const char*> verbs[] = {{Verb::commit, "commit"},
                                                {Verb::commit_one_phase, "commit_one_phase"},
                                                {Verb::rollback, "rollback"},
                                                {Verb::release, "release"},
                                                {Verb::forget, "forget"}};
  const Xa codes[] = {Xa::ok,       Xa::er_nota,  Xa::retry,      Xa::er_rmfail,
                      Xa::er_rmerr, Xa::er_proto, Xa::rbrollback, Xa::heurrb,
                      Xa::heurcom,  Xa::heurmix,  Xa::heurhaz};
  for (const auto& [verb, name] : verbs) {
    for (const Xa code : codes) {
      all.push_back(input<Acknowledged>(
          "Acknowledged " + std::string(name) + " " + std::string(twofold::name(code)),
          [verb_of_input = verb, code](Case& one) { return one.ack(verb_of_input, code); }));
    }
  }
  all.push_back(input<Acknowledged>("Acknowledged commit_one_phase refused", [](Case& one) {
    return one.ack(Verb::commit_one_phase, Xa::rbintegrity, {refusal("key")});
  }));
}

void add_log(std::vector<Input>& all) {
  all.push_back({"Durable", [](Case& one) { return one.bench.durable(one.ticket); },
                 Event(Durable{}).index()});
  all.push_back({"Durable, of something else", [](Case& one) { return one.bench.durable(99); },
                 Event(Durable{}).index()});
  all.push_back({"Refused", [](Case& one) { return one.bench.refused(one.ticket); },
                 Event(Refused{}).index()});
}

void add_recovery(std::vector<Input>& all) {
  const auto scan = [&all](std::string title, std::function<InDoubtListed(Case&)> make) {
    all.push_back({"InDoubtListed " + title,
                   [make](Case& one) {
                     one.begin_scan();
                     return one.bench.step(make(one));
                   },
                   Event(InDoubtListed{}).index()});
  };
  scan("complete, with the branch", [](Case& one) { return one.scan_with(false); });
  scan("complete, with the branch busy", [](Case& one) { return one.scan_with(true); });
  scan("complete, without it", [](Case& one) { return one.scan(true); });
  scan("failed", [](Case& one) { return one.scan(false); });
  using Evidence = OutcomeTold::Evidence;
  const std::pair<Evidence, const char*> evidence[] = {{Evidence::committed, "committed"},
                                                       {Evidence::none, "none"},
                                                       {Evidence::impossible, "impossible"},
                                                       {Evidence::prepared, "prepared"},
                                                       {Evidence::busy, "busy"}};
  for (const auto& [kind, name] : evidence) {
    all.push_back(
        input<OutcomeTold>("OutcomeTold " + std::string(name), [kind_of_input = kind](Case& one) {
          return OutcomeTold{one.rm, one.branch, kind_of_input};
        }));
  }
  all.push_back(input<LinkUp>("LinkUp, without a LinkDown", [](Case& one) {
    return LinkUp{one.rm, 77, 500 + one.rm};
  }));
  all.push_back(input<LinkDown>("LinkDown", [](Case& one) { return LinkDown{one.rm}; }));
}

void add_the_rest(std::vector<Input>& all) {
  all.push_back(input<Begin>("Begin of another", [](Case&) { return Begin{{1, 5}, {}, {}}; }));
  all.push_back(input<Enlist>("Enlist of the same resource manager", [](Case& one) {
    return Enlist{{1, 4}, one.gtrid(), one.single() ? "orders" : "payments"};
  }));
  all.push_back(input<CommitRequested>("CommitRequested", [](Case& one) {
    return CommitRequested{{1, 4}, one.gtrid(), {{"orders", 1}}, false};
  }));
  all.push_back(input<RollbackRequested>("RollbackRequested", [](Case& one) {
    return RollbackRequested{{1, 4}, one.gtrid(), false};
  }));
  all.push_back({"WaitsReported, a circle with a younger one",
                 [](Case& one) {
                   one.bench.step(Begin{{1, 5}, {}, {}});
                   const TxnId younger = one.bench.core().newest();
                   one.bench.step(WaitsReported{0, {{younger, kId}}});
                   return one.bench.step(WaitsReported{1, {{kId, younger}}});
                 },
                 Event(WaitsReported{}).index()});
  all.push_back({"WaitsReported, a circle with an older one",
                 [](Case& one) {
                   one.bench.step(Begin{{1, 5}, {}, std::chrono::hours{1}});
                   const TxnId older = one.bench.core().newest();
                   one.bench.step(WaitsReported{0, {{older, kId}}});
                   return one.bench.step(WaitsReported{1, {{kId, older}}});
                 },
                 Event(WaitsReported{}).index()});
  all.push_back(input<Drain>("Drain", [](Case& one) { return Drain{one.rm, {}, {1, 9}}; }));
  all.push_back({"Drain taken back",
                 [](Case& one) {
                   auto effects = one.bench.step(Drain{one.rm, Drain::What::begin, {1, 9}});
                   for (auto& effect : one.bench.step(Drain{one.rm, Drain::What::cancel, {1, 9}})) {
                     effects.push_back(std::move(effect));
                   }
                   return effects;
                 },
                 Event(Drain{}).index()});
  all.push_back(input<LinkUp>("LinkUp, with another store", [](Case& one) {
    return LinkUp{one.rm, 77, 900};
  }));
  all.push_back(input<Submit>("Submit of the same request",
                              [](Case& one) { return Case::submission(one.single()); }));
  all.push_back(input<Submit>("Submit of the same request with other work",
                              [](Case& one) { return Case::submission(one.single(), "other"); }));
  using When = OutcomeAsked::When;
  const std::pair<When, const char*> whens[] = {
      {When::now, "now"}, {When::at_decision, "at_decision"}, {When::at_end, "at_end"}};
  for (const auto& [when, name] : whens) {
    all.push_back(
        input<OutcomeAsked>("OutcomeAsked " + std::string(name), [when_asked = when](Case& one) {
          return OutcomeAsked{{1, 2}, one.bench.gtrid(kId), {}, when_asked, {}};
        }));
  }
  all.push_back(
      input<SpaceChanged>("SpaceChanged, no room", [](Case&) { return SpaceChanged{false}; }));
  all.push_back({"Tick at the deadline",
                 [](Case& one) { return one.bench.advance(std::chrono::seconds{10}); },
                 Event(Tick{}).index()});
  all.push_back(input<Shutdown>("Shutdown", [](Case&) { return Shutdown{false}; }));
  all.push_back(input<Shutdown>("Shutdown, final", [](Case&) { return Shutdown{true}; }));
}

std::vector<Input> inputs() {
  std::vector<Input> all;
  add_answers(all);
  add_acknowledgements(all);
  add_log(all);
  add_recovery(all);
  add_the_rest(all);
  return all;
}

// Scans and marks go on whatever happens to a transaction: no part of its transitions.
bool housekeeping(const Effect& effect) {
  return std::holds_alternative<ListInDoubt>(effect) || std::holds_alternative<SendMark>(effect);
}

// Alarms by their first words: the page is about transitions.
std::string cell(const Bench& bench, const Effect& effect) {
  if (std::holds_alternative<Alarm>(effect)) return "Alarm";
  std::string line = text(bench.options(), effect);
  if (const auto hash = line.find('#'); hash != std::string::npos) {
    line.erase(hash, line.find(' ', hash) + 1 - hash);  // which ticket does not matter
  }
  return line;
}

std::string row(const Input& input, const std::string& before, Case& one,
                const std::vector<Effect>& effects, bool with_lists) {
  std::string told;
  for (const Effect& effect : effects) {
    if (housekeeping(effect) && !with_lists) continue;
    told += (told.empty() ? "" : "<br>") + cell(one.bench, effect);
  }
  const std::string after = one.state();
  if (told.empty() && before == after) return {};
  return "| " + input.title + " | " + (before == after ? "–" : after) + " | " + told + " |\n";
}

// "Voted", "Acknowledged commit": what is summed up where nothing changes.
std::string group(const std::string& title) {
  const auto first = title.find_first_of(" ,");
  if (!title.starts_with("Acknowledged ")) return title.substr(0, first);
  return title.substr(0, title.find(' ', first + 1));
}

// The inputs that change nothing, whole groups by their name alone.
std::string summary(const std::vector<const Input*>& nothing, const std::vector<Input>& all) {
  const auto size = [](const std::string& name, const auto& list, const auto& title_of) {
    return std::count_if(list.begin(), list.end(),
                         [&](const auto& one) { return group(title_of(one)) == name; });
  };
  std::vector<std::string> names;
  for (const Input* input : nothing) {
    const std::string name = group(input->title);
    const auto of_all = size(name, all, [](const Input& one) { return one.title; });
    const bool whole = size(name, nothing, [](const Input* one) { return one->title; }) == of_all;
    const std::string shown = whole && of_all > 1 ? name + " (any)" : input->title;
    if (std::find(names.begin(), names.end(), shown) == names.end()) names.push_back(shown);
  }
  std::string line;
  for (const std::string& name : names) line += (line.empty() ? "" : "; ") + name;
  return line;
}

std::string section(const State& state, const std::vector<Input>& all) {
  std::string rows;
  std::vector<const Input*> nothing;
  for (const Input& input : all) {
    Case one = state.build();
    EXPECT_EQ(one.bench.phase(kId), state.phase) << state.title;
    if (input.title == "Refused" && one.ticket == 0) continue;  // only what may be turned down is
    const std::string before = one.state();
    const auto effects = input.drive(one);
    const bool periodic = input.event == Event(Tick{}).index();
    const std::string line = row(input, before, one, effects, !periodic);
    rows += line;
    if (line.empty()) nothing.push_back(&input);
  }
  return "## " + std::string(state.title) + "\n\nState: " + state.build().state() +
         "\n\n| event | then | effects |\n|---|---|---|\n" + rows +
         "\nNothing changes on: " + summary(nothing, all) + ".\n\n";
}

std::string page() {
  std::string all =
      "# Transitions of the two-phase commit core\n\n"
      "Written by `coordinator_core_matrix_test`, which drives every event in every phase and "
      "compares "
      "(`TWOFOLD_REWRITE=1` writes the page anew). The transaction is 1.1, request r1, with branch "
      "0 at "
      "orders and branch 1 at payments; a one-phase commit has branch 0 at orders alone. Events "
      "come from "
      "or about the last branch, and answers are those to what was sent. *then* is the phase with "
      "the "
      "branches' states, – where neither changes. With `InDoubtListed` a scan has begun after the "
      "state was "
      "reached. How to read the effects: tests/scripts/README.md.\n\n";
  const auto inputs_ = inputs();
  for (const State& state : states()) all += section(state, inputs_);
  all.pop_back();
  return all;
}

TEST(Matrix, transitions_are_as_documented) {
  const std::string actual = page();
  if (std::getenv("TWOFOLD_REWRITE")) {
    std::ofstream(kPage) << actual;
    return;
  }
  std::ostringstream documented;
  documented << std::ifstream(kPage).rdbuf();
  std::istringstream want(documented.str()), have(actual);
  std::string heading;
  for (std::string line, other; std::getline(have, line);) {
    if (line.starts_with("## ")) heading = line;
    std::getline(want, other);
    ASSERT_EQ(line, other) << "in " << heading
                           << "\n(TWOFOLD_REWRITE=1 writes docs/transitions.md)";
  }
  EXPECT_EQ(documented.str(), actual);
}

TEST(Matrix, covers_every_phase_and_every_event) {
  std::set<Phase> phases;
  for (const State& state : states()) phases.insert(state.phase);
  EXPECT_EQ(phases.size(), static_cast<std::size_t>(Phase::ended) + 1);
  std::set<std::size_t> events;
  for (const Input& input : inputs()) events.insert(input.event);
  EXPECT_EQ(events.size(), std::variant_size_v<Event>);
}

// Rule 5, over the whole matrix: nobody is told committed and nothing is asked to commit but by a
// step that may: a Durable, an answered one-phase commit, only readers, or what a decision already
// allows.
TEST(Matrix, nothing_commits_before_the_decision_is_durable) {
  for (const State& state : states()) {
    if (state.phase == Phase::committing || state.phase == Phase::ended) continue;
    for (const Input& input : inputs()) {
      Case one = state.build();
      if (input.title == "Refused" && one.ticket == 0) continue;
      for (const Effect& effect : input.drive(one)) {
        if (!std::holds_alternative<Commit>(effect)) continue;
        EXPECT_EQ(state.phase, Phase::deciding) << state.title << ": " << input.title;
        EXPECT_EQ(input.title, "Durable") << state.title;
      }
    }
  }
}

}  // namespace
}  // namespace twofold::coordinator::test
