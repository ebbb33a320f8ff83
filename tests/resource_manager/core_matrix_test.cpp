// Every (state, event) pair of the branch core: one table says what each verb and each happening is
// answered with and which state the branch is in afterwards. A wrong order harms nothing: what was
// refused leaves the branch as it was, and it can still be brought to its end.
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/resource_manager/core_harness.h"

namespace twofold::resource_manager {
namespace {

const Xid kXid = make_xid(1);

// A core with one branch, kXid, in a named state. Its session is on connection 1; in the states
// named "busy …" that session has ended, and the current one, past the fence, is on connection 2.
struct Case {
  Core core;
  BranchId branch = 0;
  std::uint64_t ticket = 0;  // of the persist effect under way
};

void to_running(Case& c, Then then) {
  c.core.open();
  c.branch = c.core.run(kXid, write_locks({"k"}), then);
}

void to_active(Case& c) {
  to_running(c, Then::nothing);
  c.core.step(c.core.ran(c.branch));
}

void to_joined(Case& c) {
  if (c.core.branches.counts().branches == 0) c.core.open();
  c.core.step(c.core.enlist(kXid));
  c.branch = c.core.branches.counts().branches;
  c.core.step(c.core.join(kXid));
}

void to_preparing(Case& c) {
  to_running(c, Then::prepare);
  c.core.step(c.core.ran(c.branch));
  c.ticket = c.core.last<PersistPrepare>().ticket;
}

void to_prepared(Case& c) {
  to_preparing(c);
  c.core.step(Persisted{c.ticket});
}

void to_committing(Case& c, bool one_phase) {
  one_phase ? to_active(c) : to_prepared(c);
  c.core.step(c.core.commit(kXid, one_phase));
  c.ticket = c.core.last<PersistCommit>().ticket;
}

void to_busy(Case& c) {
  c.core.step(c.core.hello(2, 2));
  c.core.tick(std::chrono::seconds{2});
  ASSERT_TRUE(c.core.has<AcceptSession>());
  c.core.connection = 2;
}

using Maker = std::function<void(Case&)>;
const std::vector<std::pair<std::string, Maker>> kStates{
    {"unknown", [](Case& c) { c.core.open(); }},
    {"waiting",
     [](Case& c) {
       c.core.open();
       c.core.run(make_xid(99), write_locks({"k"}));
       c.core.step(c.core.start(kXid, write_locks({"k"})));
       c.branch = 2;
     }},
    {"running", [](Case& c) { to_running(c, Then::prepare); }},
    {"active", to_active},
    {"joined", to_joined},
    {"joined waiting",
     [](Case& c) {
       c.core.open();
       c.core.run(make_xid(99), write_locks({"k"}));
       to_joined(c);
       c.core.step(c.core.execute(kXid, write_locks({"k"})));
     }},
    {"joined running",
     [](Case& c) {
       to_joined(c);
       c.core.step(c.core.execute(kXid, write_locks({"k"})));
     }},
    {"suspended",
     [](Case& c) {
       to_joined(c);
       c.core.step(c.core.end(kXid, End::Flag::suspend));
     }},
    {"ended",
     [](Case& c) {
       to_joined(c);
       c.core.step(c.core.execute(kXid, write_locks({"k"})));
       c.core.step(c.core.ran(c.branch));
       c.core.step(c.core.end(kXid));
     }},
    {"failed",
     [](Case& c) {
       to_joined(c);
       c.core.step(c.core.execute(kXid, write_locks({"k"})));
       c.core.step(c.core.failed(c.branch));
     }},
    {"read_only",
     [](Case& c) {
       to_running(c, Then::prepare);
       c.core.step(c.core.ran(c.branch, false));
     }},
    {"rollback_only",
     [](Case& c) {
       to_running(c, Then::prepare);
       c.core.step(c.core.failed(c.branch));
     }},
    {"preparing", to_preparing},
    {"prepared", to_prepared},
    {"committing", [](Case& c) { to_committing(c, false); }},
    {"committing 1p", [](Case& c) { to_committing(c, true); }},
    {"rolling_back",
     [](Case& c) {
       to_running(c, Then::prepare);
       c.core.step(c.core.rollback(kXid));
     }},
    {"busy running",
     [](Case& c) {
       to_running(c, Then::prepare);
       to_busy(c);
     }},
    {"busy preparing",
     [](Case& c) {
       to_preparing(c);
       to_busy(c);
     }},
    {"busy committing",
     [](Case& c) {
       to_committing(c, false);
       to_busy(c);
     }},
};

const std::vector<std::pair<std::string, std::function<Event(Case&)>>> kEvents{
    {"Start", [](Case& c) -> Event { return c.core.start(kXid, write_locks({"new"})); }},
    {"Prepare", [](Case& c) -> Event { return c.core.prepare(kXid); }},
    {"Commit", [](Case& c) -> Event { return c.core.commit(kXid); }},
    {"Commit 1p", [](Case& c) -> Event { return c.core.commit(kXid, true); }},
    {"Rollback", [](Case& c) -> Event { return c.core.rollback(kXid); }},
    {"Release", [](Case& c) -> Event { return c.core.release(kXid); }},
    {"Forget",
     [](Case& c) -> Event {
       return Forget{c.core.ask(), kXid};
     }},
    {"Recover", [](Case& c) -> Event { return Recover{c.core.ask()}; }},
    {"AskOutcome",
     [](Case& c) -> Event {
       return AskOutcome{c.core.ask(), kXid, 0};
     }},
    {"Mark",
     [](Case& c) -> Event {
       return Mark{c.core.connection, {kEpoch, 50}};
     }},
    {"Join", [](Case& c) -> Event { return c.core.join(kXid); }},
    {"Join other thread",
     [](Case& c) -> Event {
       Join join = c.core.join(kXid);
       join.thread = 8;
       return join;
     }},
    {"Join resume",
     [](Case& c) -> Event {
       Join join = c.core.join(kXid);
       join.resume = true;
       return join;
     }},
    {"Execute", [](Case& c) -> Event { return c.core.execute(kXid, write_locks({"new"})); }},
    {"End success", [](Case& c) -> Event { return c.core.end(kXid); }},
    {"End fail", [](Case& c) -> Event { return c.core.end(kXid, End::Flag::fail); }},
    {"End suspend", [](Case& c) -> Event { return c.core.end(kXid, End::Flag::suspend); }},
    {"Client gone", [](Case&) -> Event { return ConnectionClosed{Core::kClient}; }},
    {"Ran ok", [](Case& c) -> Event { return c.core.ran(c.branch); }},
    {"Ran badly", [](Case& c) -> Event { return c.core.failed(c.branch); }},
    {"Persisted", [](Case& c) -> Event { return Persisted{c.ticket}; }},
    {"Refused", [](Case& c) -> Event { return Refused{c.ticket}; }},
    {"ConnectionClosed", [](Case& c) -> Event { return ConnectionClosed{c.core.connection}; }},
    {"SessionRequested", [](Case& c) -> Event { return c.core.hello(3, 3); }},
    {"SpaceChanged", [](Case&) -> Event { return SpaceChanged{false}; }},
    {"Tick", [](Case&) -> Event { return Tick{}; }},
    {"Tick at deadline",
     [](Case& c) -> Event {
       c.core.now += std::chrono::hours{1};
       return Tick{};
     }},
};

// "answer → state" where something happened, "-" where nothing did.
std::string outcome(const std::string& state, const std::function<Event(Case&)>& event) {
  Case c;
  std::find_if(kStates.begin(), kStates.end(), [&](auto& s) {
    return s.first == state;
  })->second(c);
  const auto before = c.core.branches.view(c.branch, c.core.now);
  c.core.step(event(c));
  const auto after = c.core.branches.view(c.branch, c.core.now);
  std::string text = summary(c.core.effects);
  if (before && !after) {
    text += " -> gone";
  } else if (before && before->state != after->state) {
    text += " -> " + std::string{name(after->state)};
  }
  if (!before && c.core.branches.counts().branches > 0) text += " -> here";
  if (text.empty()) return "-";
  return text.front() == ' ' ? text.substr(1) : text;
}

// Only a prepare and a one-phase commit may be refused: see BrokenContract below.
bool breaks_contract(const std::string& state, const std::string& event) {
  return event == "Refused" && (state == "committing" || state == "busy committing");
}

std::string table() {
  std::string text =
      "# The branch core, as its code is: for each state, each event, what is asked of the world "
      "and the\n"
      "# state afterwards (\"-\": nothing happens). \"busy\" is a branch of an ended session whose "
      "verb is\n"
      "# still with the adapter (rule 15); \"committing 1p\" a one-phase commit. Written by\n"
      "#   TWOFOLD_REWRITE=1 branch_core_test --gtest_filter=Matrix.EveryStateAndEvent\n"
      "# and reviewed like code.\n";
  for (const auto& [state, make] : kStates) {
    text += "\n" + state + "\n";
    for (const auto& [event_name, event] : kEvents) {
      if (breaks_contract(state, event_name)) continue;
      std::string line = "  " + event_name;
      line.resize(20, ' ');
      text += line + outcome(state, event) + "\n";
    }
  }
  return text;
}

TEST(Matrix, EveryStateAndEvent) {
  const std::string path = TWOFOLD_SOURCE_DIR "/tests/resource_manager/core_matrix.txt";
  const std::string actual = table();
  if (std::getenv("TWOFOLD_REWRITE")) std::ofstream(path) << actual;
  std::ifstream file(path);
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(expected.str(), actual) << "differs from " << path;
}

TEST(MatrixDeathTest, BrokenContract) {
  Case c;
  to_committing(c, false);
  EXPECT_DEATH(c.core.step(Refused{c.ticket}), "contract broken");
}

// What was answered with an error has changed nothing, and the branch still ends as it should.
bool refused(const std::vector<Effect>& effects) {
  if (!effects.empty() && std::holds_alternative<AnswerFailure>(effects.back())) return true;
  const auto* answer = effects.empty() ? nullptr : std::get_if<Answer>(&effects.back());
  return answer && (static_cast<int>(answer->code) < 0 || answer->code == Xa::retry);
}

TEST(Matrix, AWrongOrderHarmsNothing) {
  std::size_t wrong = 0;
  for (const auto& [state, make] : kStates) {
    if (state == "unknown") continue;
    for (const auto& [event_name, event] : kEvents) {
      if (breaks_contract(state, event_name)) continue;
      Case c;
      make(c);
      const auto before = c.core.branches.view(c.branch, c.core.now);
      const std::size_t keys = c.core.branches.locks().keys();
      c.core.step(event(c));
      if (!refused(c.core.effects)) continue;
      ++wrong;
      SCOPED_TRACE(event_name + " in " + state);
      const auto after = c.core.branches.view(c.branch, c.core.now);
      ASSERT_TRUE(after);
      EXPECT_EQ(before->state, after->state);
      EXPECT_EQ(before->locks, after->locks);
      EXPECT_EQ(c.core.branches.locks().keys(), keys);
      // To its end: what is under way ends, and then the session does.
      c.core.step(c.core.ran(c.branch));
      if (c.core.has<PersistPrepare>()) c.ticket = c.core.last<PersistPrepare>().ticket;
      c.core.step(Persisted{c.ticket});
      if (c.core.branches.view(c.branch, c.core.now) &&
          c.core.state(c.branch) == BranchState::prepared) {
        c.core.step(c.core.rollback(kXid));
        EXPECT_TRUE(c.core.has<PersistRollback>());
      }
      c.core.step(ConnectionClosed{c.core.connection});
      c.core.step(c.core.ran(1));  // the holder that "waiting" waits for
      c.core.expect_empty();
    }
  }
  EXPECT_GT(wrong, 40u);
}

}  // namespace
}  // namespace twofold::resource_manager
