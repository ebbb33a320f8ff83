// What the coordinator's core is told (events) and what it asks for (effects).
//
// A driver (coordinator/engine.h, or the simulator) owns sockets, clock and disk. It hands each
// event to Coordinator::step and carries out the returned effects in their order. It owes the core
// only this:
//   - effects to one resource manager leave in the order given, on its current session;
//   - no answer of an earlier session is handed in after LinkDown, which comes before the next
//   LinkUp;
//   - Persist effects reach the log in the order given, each answered by one Durable or Refused.
// It owes no ordering between the log and the network: an effect that must wait for the disk is
// emitted only by the step of its Durable event.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "log/record.h"
#include "protocol/outcome.h"
#include "protocol/time.h"
#include "protocol/xa.h"
#include "protocol/xid.h"

namespace twofold::coordinator {

using RmId = std::uint32_t;  // index into Options::resource_managers

// Whom a reply goes to. Opaque to the core.
struct Requester {
  std::uint64_t connection = 0;
  std::uint64_t request = 0;
  bool operator==(const Requester&) const = default;
};

// A branch of a transaction of this log. {0,0}: of none that is live (an orphan found by a scan).
struct BranchKey {
  TxnId id;
  std::uint16_t index = 0;
  auto operator<=>(const BranchKey&) const = default;
};

// ---- events -------------------------------------------------------------------------------------

struct SubmittedBranch {
  std::string rm;
  std::string work;  // encoded, passed through unread
};
struct Submit {
  Requester requester;
  std::string request_id;  // empty: none
  std::vector<SubmittedBranch> branches;
  Duration timeout{0};  // 0: Options::timeout_default
  bool reply_at_end = false;
  TxnId known;      // rule 7
  Duration age{0};  // since the request's first attempt
};
// An interactive transaction: its client enlists resource managers, works at them itself, and asks
// for its end. Answered by Reply: pending, with the gtrid.
struct Begin {
  Requester requester;
  Duration timeout{0};  // from here to the decision; 0: Options::timeout_default
  Duration age{0};      // since the first attempt at the same work
};
// Answered by Enlisted when the branch has been started, or by Reply if nothing comes of it.
struct Enlist {
  Requester requester;
  std::string gtrid;
  std::string rm;
};
struct WorkCount {
  std::string rm;
  std::uint64_t items = 0;
};
struct CommitRequested {
  Requester requester;
  std::string gtrid;
  std::vector<WorkCount> work;  // rule 10: answered works; who is not named did none
  bool reply_at_end = false;
};
struct RollbackRequested {
  Requester requester;
  std::string gtrid;
  bool reply_at_end = false;
};
// The work of a branch started without Then::prepare is done (ok), or the branch can only be rolled
// back.
struct WorkDone {
  BranchKey branch;
  Xa code = Xa::ok;
  std::string results;
  std::vector<Refusal> refusals;
  std::string text;
  bool no_room = false;
  RmId rm = 0;  // who answered: for crash points and traces
};
// The vote: ok, rdonly, or a rollback code; XAER_* counts as no.
struct Voted {
  BranchKey branch;
  Xa code = Xa::ok;
  std::string results;
  std::vector<Refusal> refusals;
  std::string text;
  bool no_room = false;
  RmId rm = 0;  // who answered: for crash points and traces
};
// Commit (one-phase or not), Rollback, Release or Forget was answered.
struct Acknowledged {
  enum class Verb : std::uint8_t { commit, commit_one_phase, rollback, release, forget };
  RmId rm = 0;
  BranchKey branch;
  Xid xid;
  Verb verb = Verb::commit;
  Xa code = Xa::ok;
  std::string results;  // of a one-phase commit with its work
  std::vector<Refusal> refusals;
  std::string text;
  bool no_room = false;
};
struct Durable {
  std::uint64_t ticket = 0;
};
// Certainly not written (rule 23).
struct Refused {
  std::uint64_t ticket = 0;
};
struct ListedBranch {
  Xid xid;
  bool busy = false;
  Xa heuristic = Xa::ok;  // XA_HEUR*: it has ended that way; else it is prepared, or busy
};
struct InDoubtListed {
  RmId rm = 0;
  bool complete = false;  // false: failed or truncated, which is not an empty scan (rule 14)
  std::vector<ListedBranch> branches;
};
struct OutcomeTold {
  enum class Evidence : std::uint8_t { committed, none, impossible, prepared, busy };
  RmId rm = 0;
  BranchKey branch;
  Evidence evidence = Evidence::impossible;
};
struct OutcomeAsked {
  enum class When : std::uint8_t { now, at_decision, at_end };
  Requester requester;
  std::string gtrid;  // one of these two is empty
  std::string request_id;
  When when = When::now;
  TxnId known;  // with request_id
};
// The waits at a resource manager that have lasted, between transactions of this log: all there
// are, in place of those of the last report (rule 12).
struct Wait {
  TxnId waiter;
  TxnId holder;  // or an earlier waiter
  bool operator==(const Wait&) const = default;
};
struct WaitsReported {
  RmId rm = 0;
  std::vector<Wait> waits;
};
// An operator's: nothing new begins there, and once none of our branches is left it is drained; or
// all that is taken back; or only a question. Answered by DrainTold.
struct Drain {
  enum class What : std::uint8_t { begin, cancel, ask };
  RmId rm = 0;
  What what = What::begin;
  Requester requester;
};
// A session to the resource manager is open; the earlier one's running verbs have ended (rule 15).
struct LinkUp {
  RmId rm = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t store_id = 0;
};
struct LinkDown {
  RmId rm = 0;
};
struct SpaceChanged {
  bool room = true;  // false: the log is 80 % full, or was full when last tried
};
// next_deadline() has come.
struct Tick {};
// First aborts what can be; final tells the rest unknown (rule 25).
struct Shutdown {
  bool final = false;
};

using Event =
    std::variant<Submit, Begin, Enlist, CommitRequested, RollbackRequested, WorkDone, Voted,
                 Acknowledged, Durable, Refused, InDoubtListed, OutcomeTold, OutcomeAsked,
                 WaitsReported, Drain, LinkUp, LinkDown, SpaceChanged, Tick, Shutdown>;

// ---- effects ------------------------------------------------------------------------------------

enum class Then : std::uint8_t { nothing, prepare, commit_one_phase };

// Creates the branch and does its work, if it has any (clients bring an interactive one's).
// Answered by WorkDone, Voted or Acknowledged according to `then`.
struct Start {
  RmId rm = 0;
  BranchKey branch;
  Xid xid;
  std::string work;
  Then then = Then::nothing;
  bool read_only_vote = true;
  Duration remaining{0};
  Duration age{0};
  bool interactive = false;
};
struct Prepare {  // answered by Voted
  RmId rm = 0;
  BranchKey branch;
  Xid xid;
  std::uint64_t incarnation = 0;
  std::uint64_t work_items = 0;
  bool read_only_vote = true;
};
struct Persist {  // answered by Durable or Refused
  std::uint64_t ticket = 0;
  LogRecord record;
  bool forced = true;
  bool refusable = true;
};
// Answered by Acknowledged, as the next three.
struct Commit {
  RmId rm = 0;
  BranchKey branch;
  Xid xid;
  bool awaited = false;  // somebody waits until the transaction has ended everywhere (rule 13)
  bool one_phase = false;
  std::uint64_t incarnation = 0;  // with one_phase, as in Prepare
  std::uint64_t work_items = 0;
};
struct Rollback {
  RmId rm = 0;
  BranchKey branch;
  Xid xid;
};
struct Release {
  RmId rm = 0;
  BranchKey branch;
  Xid xid;
};
struct Forget {
  RmId rm = 0;
  BranchKey branch;
  Xid xid;
};
// Answered by InDoubtListed.
struct ListInDoubt {
  RmId rm = 0;
};
// Answered by OutcomeTold.
struct AskOutcome {
  RmId rm = 0;
  BranchKey branch;
  Xid xid;
  std::uint64_t store_id = 0;
};
struct SendMark {
  RmId rm = 0;
  TxnId low_water;
};
struct Reply {
  Requester requester;
  Outcome outcome;
};
struct Enlisted {
  Requester requester;
  RmId rm = 0;
  Xid xid;
};
// Answers Drain: what is known of that resource manager is on record, and
// Coordinator::participant() tells it.
struct DrainTold {
  Requester requester;
  RmId rm = 0;
};
// A person must look.
struct Alarm {
  std::string text;
};

using Effect = std::variant<Start, Prepare, Persist, Commit, Rollback, Release, Forget, ListInDoubt,
                            AskOutcome, SendMark, Reply, Enlisted, DrainTold, Alarm>;

// Names for crash points and traces, in the variants' order: "Voted", "Persist".
std::string_view name(const Event& event);
std::string_view name(const Effect& effect);
// The resource manager that an event came from or an effect goes to; empty for none.
std::optional<RmId> resource_manager(const Event& event);
std::optional<RmId> resource_manager(const Effect& effect);
std::vector<std::string_view> event_names();  // all
std::vector<std::string_view> effect_names();

}  // namespace twofold::coordinator
