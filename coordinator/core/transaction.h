// One transaction and its branches, as the core holds them while it is live. Small on purpose: work
// is handed on as soon as it may be sent, and results leave with the first reply.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/coordinator.h"

namespace twofold::coordinator {

// Of a branch that a recovered record names and the configuration does not.
inline constexpr RmId kNoRm = std::numeric_limits<RmId>::max();

struct Branch {
  RmId rm = kNoRm;
  std::uint16_t index = 0;  // as in its bqual; a recovered record may leave gaps
  BranchState state = BranchState::idle;
  Acknowledged::Verb verb = Acknowledged::Verb::commit;  // what was sent, while ending or unsure
  bool alarmed = false;       // a person has been told that it does not end
  bool mark_asked = false;    // of a former log, without evidence: committed again for its answer
  std::uint8_t attempts = 0;  // answered "not now" so often
  std::optional<Xa> vote;
  std::optional<Time> retry_at;   // while unsure: when `verb` is sent again
  std::uint64_t incarnation = 0;  // of the resource manager when the branch started (rule 10)
  std::uint64_t store_id = 0;     // of the store that voted (rule 16)
  std::uint64_t since = 0;      // scan clock when it became unsure or done: only later scans count
  std::uint64_t listed_by = 0;  // the last scan that named it
  std::string bqual;
  std::uint64_t work_items =
      1;                // done, for its vote (rule 10); of an interactive one, its client says
  std::string payload;  // work until it is sent, then results until they are told
  std::vector<Refusal> refusals;  // with a no vote
};

struct Waiter {
  Requester requester;
  bool at_end = false;                   // rule 9
  bool submitted = false;                // wants the results as well
  std::optional<std::uint16_t> enlists;  // waits until this branch has been started
};

struct Transaction {
  TxnId id;
  std::string gtrid;
  RequestRef request;
  Phase phase = Phase::ended;
  Verdict verdict = Verdict::pending;  // until it may be told; final from then on (rule 4)
  Reason reason = Reason::none;
  bool interactive = false;
  bool heuristic = false;
  bool intent_logged = false;  // its row is an intent until something replaces or drops it
  Time started;
  Time deadline;    // for the votes (not of a one-phase commit)
  Duration age{0};  // of its request when it was submitted
  std::string detail;
  std::vector<Refusal> refusals;
  std::vector<Branch> branches;
  std::vector<Waiter> waiters;
  std::vector<std::pair<Phase, Time>> phases;
};

// May it still be aborted: no Persist of a decision or an intent is out (rule 4).
inline bool undecided(const Transaction& txn) {
  switch (txn.phase) {
    case Phase::active:
    case Phase::working:
    case Phase::preparing:
    case Phase::releasing: return true;
    case Phase::intending:
    case Phase::deciding:
    case Phase::refusing:
    case Phase::one_phase:
    case Phase::resolving:
    case Phase::committing:
    case Phase::aborting:
    case Phase::ended: return false;
  }
  return false;
}

// Does somebody wait until it has ended everywhere (rule 9)?
inline bool waited_for(const Transaction& txn) {
  return std::any_of(txn.waiters.begin(), txn.waiters.end(),
                     [](const Waiter& waiter) { return waiter.at_end; });
}

inline bool all_done(const Transaction& txn) {
  return std::all_of(txn.branches.begin(), txn.branches.end(),
                     [](const Branch& branch) { return branch.state == BranchState::done; });
}

}  // namespace twofold::coordinator
