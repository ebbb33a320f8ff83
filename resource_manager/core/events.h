// What a resource manager's branch core is told (events) and what it asks for (effects).
//
// The same core serves every kind of resource manager; an adapter (resource_manager/adapter.h)
// gives the work a meaning and makes it durable. The driver owes the core:
//   - effects are carried out in order, and answers to connections that are gone are dropped;
//   - persist effects reach the disk in the order given, each answered by one Persisted; a
//   PersistPrepare or
//     a one-phase PersistCommit may be answered by one Refused instead, all others must be written
//     (rule 23);
//   - each Run is answered by one Ran, later than its own step;
//   - at most one SessionRequested per connection, and one ConnectionClosed when a connection that
//     was heard of here has ended, whoever ended it.
// A branch that was Run or prepared ends by exactly one Discard, accepted PersistCommit or
// PersistRollback. One that was never Run is not known to the adapter, and ends without.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "protocol/outcome.h"
#include "protocol/time.h"
#include "protocol/xa.h"
#include "protocol/xid.h"
#include "resource_manager/core/lock_table.h"

namespace twofold::resource_manager {

using BranchId = LockTable::Owner;  // of this process; never reused; 0 is none
using ConnectionId = std::uint64_t;

struct Requester {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  bool operator==(const Requester&) const = default;
};

// A log id that a node's log had until it was restored, and how far it had ended (rules 2 and 18).
struct FormerLog {
  LogId log_id;
  TxnId low_water;
  bool operator==(const FormerLog&) const = default;
};

// What is durably known of a coordinator's node (rules 2 and 18).
struct NodeRecord {
  std::string node;
  LogId log_id;
  std::uint64_t epoch = 0;
  std::uint64_t nonce = 0;
  TxnId low_water;
  std::vector<FormerLog> former{};
  bool operator==(const NodeRecord&) const = default;
};

// A prepared branch as it was made durable, without its write set, which is the adapter's.
struct PreparedBranch {
  Xid xid;
  std::vector<LockRequest> locks;  // all it held, shared ones too (rule 11)
  Time since;                      // of the vote
};

struct Recovered {
  std::vector<PreparedBranch> prepared;
  std::vector<NodeRecord> nodes;
};

// ---- events -----------------------------------------------------------------------------------

// A coordinator's Hello (rules 2 and 15).
struct SessionRequested {
  ConnectionId connection = 0;
  std::string node;
  LogId log_id;
  std::uint64_t epoch = 0;
  std::uint64_t nonce = 0;
  std::uint64_t counter = 0;
  bool rebuild = false;
  std::vector<std::uint64_t> earlier{};  // nonces of the epochs before this one, newest first
  std::vector<LogId> former{};           // ids that its log had until it was restored
};
struct ConnectionClosed {
  ConnectionId connection = 0;
};

enum class Then : std::uint8_t { nothing, prepare, commit_one_phase };
struct Start {
  Requester requester;
  Xid xid;
  std::string work;
  std::vector<LockRequest> locks;  // of that work, normalised; by the adapter's plan()
  std::vector<Refusal> invalid;    // not empty: such work can never be done (votes no)
  Then then = Then::nothing;
  bool read_only_vote = true;
  Duration remaining{0};
  Duration age{0};
  bool interactive = false;  // clients bring its work, and it has none of its own
};
struct Prepare {
  Requester requester;
  Xid xid;
  std::uint64_t incarnation = 0;
  std::uint64_t work_items = 0;
  bool read_only_vote = true;
};
struct Commit {
  Requester requester;
  Xid xid;
  bool one_phase = false;
  bool awaited = false;           // somebody waits for the end of all branches
  std::uint64_t incarnation = 0;  // with one_phase, as in Prepare
  std::uint64_t work_items = 0;
};
struct Rollback {
  Requester requester;
  Xid xid;
};
struct Release {
  Requester requester;
  Xid xid;
};
struct Forget {
  Requester requester;
  Xid xid;
};
struct Recover {
  Requester requester;
  bool start = true;  // TMSTARTRSCAN
  std::uint32_t batch = 1000;
  bool close = false;  // TMENDRSCAN: after this batch
};
struct AskOutcome {
  Requester requester;
  Xid xid;
  std::uint64_t store_id = 0;
};
struct Mark {
  ConnectionId connection = 0;
  TxnId low_water;
};

// A client's part in an interactive branch: a thread of control joins, works, and ends or suspends
// its part (C193: xa_start with TMJOIN or TMRESUME, xa_end). It needs no session.
struct Join {
  Requester requester;
  Xid xid;
  std::uint64_t thread = 0;  // of the requester's connection
  bool resume = false;
};
struct Execute {
  Requester requester;
  Xid xid;
  std::uint64_t thread = 0;
  std::string work;
  std::vector<LockRequest> locks;  // by the adapter's plan()
  std::vector<Refusal> invalid;
};
struct End {
  enum class Flag : std::uint8_t { success, fail, suspend };
  Requester requester;
  Xid xid;
  std::uint64_t thread = 0;
  Flag flag = Flag::success;
};

// A Run has ended: with its results, or with every check that failed.
struct Ran {
  BranchId branch = 0;
  Xa code = Xa::ok;  // ok, or rbintegrity with refusals, or another XA_RB*; nothing else
  std::string results;
  std::vector<Refusal> refusals;
  std::string text;
  bool wrote = false;
  bool frees =
      false;  // all it wrote are erasures: it may go on when there is no room, to make some
};
struct Persisted {
  std::uint64_t ticket = 0;
};
struct Refused {
  std::uint64_t ticket = 0;
};  // certainly not written (rules 4 and 23)
struct SpaceChanged {
  bool room = true;
};
struct Tick {};

using Event = std::variant<SessionRequested, ConnectionClosed, Start, Prepare, Commit, Rollback,
                           Release, Forget, Recover, AskOutcome, Mark, Join, Execute, End, Ran,
                           Persisted, Refused, SpaceChanged, Tick>;

// ---- effects ----------------------------------------------------------------------------------

struct AcceptSession {
  ConnectionId connection = 0;
};                      // send Welcome
struct RefuseSession {  // send Failure, close
  ConnectionId connection = 0;
  enum class Why : std::uint8_t { stale, wrong_log, outdated, busy } why = Why::stale;
  std::string text;
};
struct CloseConnection {
  ConnectionId connection = 0;
  std::string text;
};  // fenced by a newer session

struct Run {  // its locks are held; answered by Ran; an interactive branch has one for each work
  BranchId branch = 0;
  Xid xid;
  std::string work;
};
struct Discard {
  BranchId branch = 0;
};  // forget what an unprepared branch did

// Answered by Persisted or Refused (refusable ones only).
struct PersistPrepare {
  std::uint64_t ticket = 0;
  BranchId branch = 0;
  Xid xid;
  std::vector<LockRequest> locks;
};
struct PersistCommit {  // applies the write set, leaves the outcome row (rule 16)
  std::uint64_t ticket = 0;
  BranchId branch = 0;
  Xid xid;
  bool one_phase = false;  // then nothing was prepared before, and it may be refused
  bool may_wait = false;   // about one forced write, for company: nobody waits for it (rule 13)
};
struct PersistRollback {  // of a prepared branch; unforced (rule 4)
  std::uint64_t ticket = 0;
  BranchId branch = 0;
  Xid xid;
};
struct PersistNode {  // with a low-water mark: outcome rows of this log below it go (18)
  std::uint64_t ticket = 0;
  NodeRecord record;
  bool forced = true;
  bool purge = false;
};

struct Answer {  // a BranchAnswer
  Requester requester;
  Xa code = Xa::ok;
  std::string results;
  std::vector<Refusal> refusals;
  std::string text;
  bool no_room = false;
};
struct RecoveredBranch {
  Xid xid;
  bool busy = false;
  Duration age{0};
};
struct AnswerRecover {
  Requester requester;
  std::vector<RecoveredBranch> branches;
  bool end = false;
};
// The branch is not here: look its outcome row up and answer. For Rollback: XAER_NOTA, or
// XA_HEURCOM with evidence of a commit. For AskOutcome: Evidence COMMITTED or NONE, IMPOSSIBLE if
// `store_id` is another's.
struct AnswerFromEvidence {
  Requester requester;
  Xid xid;
  bool rollback = false;
  std::uint64_t store_id = 0;  // 0: any
};
struct AnswerEvidence {  // known without looking: PREPARED, BUSY or IMPOSSIBLE
  Requester requester;
  enum class Kind : std::uint8_t { prepared, busy, impossible } kind = Kind::impossible;
};
struct WaitEdge {
  Xid waiter;
  Xid holder;  // or an earlier waiter
  bool operator==(const WaitEdge&) const = default;
};
// The waits of the session's node that have lasted kLongWait: all there are, in place of those told
// last (rule 12).
struct ReportWaits {
  ConnectionId connection = 0;
  std::vector<WaitEdge> waits;
};
// Recover or AskOutcome cannot be answered: a Failure, since neither has a code to say so.
struct AnswerFailure {
  Requester requester;
  std::string text;
};
struct Alarm {
  std::string text;
};

using Effect =
    std::variant<AcceptSession, RefuseSession, CloseConnection, Run, Discard, PersistPrepare,
                 PersistCommit, PersistRollback, PersistNode, Answer, AnswerRecover,
                 AnswerFromEvidence, AnswerEvidence, AnswerFailure, ReportWaits, Alarm>;

std::string_view name(const Event& event);  // "Start", "Persisted"
std::string_view name(const Effect& effect);
std::vector<std::string_view> event_names();  // all, in order
std::vector<std::string_view> effect_names();

}  // namespace twofold::resource_manager
