// The second phase, whatever was decided: one verb to each branch until it has ended, then the end
// of the transaction. Recovery has no copy of this: it comes back here (see recovery.cpp).
#include <algorithm>
#include <utility>

#include "coordinator/core/impl.h"
#include "protocol/check.h"
#include "protocol/planted.h"

namespace twofold::coordinator {

// ---- verbs --------------------------------------------------------------------------------------

void Coordinator::Impl::send(RmId rm, BranchKey key, Xid xid, Verb verb, bool awaited) {
  switch (verb) {
    case Verb::commit: return emit(Commit{rm, key, std::move(xid), awaited, false, 0, 0});
    case Verb::rollback: return emit(Rollback{rm, key, std::move(xid)});
    case Verb::release: return emit(Release{rm, key, std::move(xid)});
    case Verb::forget: return emit(Forget{rm, key, std::move(xid)});
    case Verb::commit_one_phase: TWOFOLD_CHECK(!"a one-phase commit is sent once, from its intent");
  }
}

// Sends the verb, or keeps it for the scan that follows the next link-up.
void Coordinator::Impl::end_branch(Transaction& txn, Branch& branch, Verb verb) {
  branch.verb = verb;
  if (branch.rm == kNoRm || !rms_[branch.rm].linked) {
    // Without its session a read-only branch is gone, and all have finished (rule 11).
    if (verb == Verb::release) return branch_done(txn, branch);
    return become_unsure(txn, branch);
  }
  rms_[branch.rm].unsure.erase(key(txn, branch));
  branch.retry_at.reset();
  branch.state = BranchState::ending;
  send(branch.rm, key(txn, branch), xid(txn, branch), verb, waited_for(txn));
}

void Coordinator::Impl::become_unsure(Transaction& txn, Branch& branch) {
  branch.state = BranchState::unsure;
  branch.since = clock_.now();
  if (branch.rm != kNoRm) rms_[branch.rm].unsure.insert(key(txn, branch));
}

void Coordinator::Impl::retry_later(Transaction& txn, Branch& branch) {
  become_unsure(txn, branch);
  branch.retry_at = now_ + pause(branch.attempts);
  if (branch.attempts < 20) ++branch.attempts;
  retries_.insert({*branch.retry_at, key(txn, branch)});
}

void Coordinator::Impl::branch_done(Transaction& txn, Branch& branch) {
  if (branch.rm != kNoRm) rms_[branch.rm].unsure.erase(key(txn, branch));
  branch.state = BranchState::done;
  branch.since = clock_.now();
  branch.retry_at.reset();
}

// ---- answers ------------------------------------------------------------------------------------

void Coordinator::Impl::on(Acknowledged& event) {
  if (event.branch == BranchKey{} && rms_[event.rm].orphans.erase(event.xid) > 0) {
    rms_[event.rm].last_end = clock_.now();
  }
  if (event.verb == Verb::forget) return;  // its branch was done before (heuristic_durable())
  if (event.branch == BranchKey{}) return orphan_answered(event);
  const auto [txn, branch] = find(event.branch);
  if (!txn || branch->rm != event.rm) return;
  if (branch->state != BranchState::ending || branch->verb != event.verb) return;
  switch (txn->phase) {
    case Phase::one_phase: return one_phase_answered(*txn, *branch, event);
    case Phase::releasing: return released(*txn, *branch, event);
    case Phase::refusing:
    case Phase::committing:
    case Phase::aborting: return answered(*txn, *branch, event);
    case Phase::active:
    case Phase::intending:
    case Phase::working:
    case Phase::preparing:
    case Phase::deciding:
    case Phase::resolving:
    case Phase::ended: return;
  }
}

void Coordinator::Impl::answered(Transaction& txn, Branch& branch, const Acknowledged& event) {
  if (is_heuristic(event.code) && branch.verb != Verb::release) {
    return end_heuristically(txn, branch, event.code, true);
  }
  const bool committing = branch.verb == Verb::commit;
  bool ended = event.code == Xa::ok || event.code == Xa::rdonly;
  // Nothing there is what a rollback wants. A commit needs to know why (rule 16).
  if (!committing || TWOFOLD_PLANTED(nota_on_commit_is_done))
    ended = ended || event.code == Xa::er_nota || is_rollback(event.code);
  if (ended) {
    branch_done(txn, branch);
    return finish_if_done(txn);
  }
  switch (event.code) {
    case Xa::er_nota: become_unsure(txn, branch); return want_scan(branch.rm);
    case Xa::er_rmfail:  // its link will be lost, or the next scan tells
      if (committing) return become_unsure(txn, branch);
      return retry_later(txn, branch);  // scans do not list a branch that is not prepared
    case Xa::retry: return retry_later(txn, branch);
    default: break;
  }
  if (!std::exchange(branch.alarmed, true)) {
    alarm(rm_name(branch) + " answered " + std::string(name(event.code)) + " to " +
          (committing ? "commit" : "rollback or release") + " of " + to_text(xid(txn, branch)) +
          (event.text.empty() ? "" : " (" + event.text + ")") +
          ": it is tried again until it ends; look at that resource manager");
  }
  retry_later(txn, branch);
}

// A branch of a transaction that is no longer live: a scan found it.
void Coordinator::Impl::orphan_answered(const Acknowledged& event) {
  const auto gtrid = Gtrid::decode(event.xid.gtrid);
  if (!gtrid) return;
  if (event.verb == Verb::rollback && event.code == Xa::ok) ++counts_.orphans_rolled_back;
  if (!is_heuristic(event.code)) return;  // whatever else it says, the next scan tells
  if (const Heuristic* known = heuristic_of(gtrid->txn_id(), event.xid)) {
    if (known->durable) end_orphan(event.rm, event.xid, Verb::forget);
    return;
  }
  keep_heuristic({gtrid->txn_id(), event.xid, event.code, event.verb == Verb::commit},
                 {event.rm, {}, event.xid, true});
}

// ---- heuristics (rule 17) -----------------------------------------------------------------------

// The branch is done when the record is durable; until then it counts as ending.
void Coordinator::Impl::end_heuristically(Transaction& txn, Branch& branch, Xa code, bool forget) {
  if (branch.rm != kNoRm) rms_[branch.rm].unsure.erase(key(txn, branch));
  const bool commit =
      branch.verb == Verb::commit || (branch.verb == Verb::commit_one_phase && code != Xa::heurrb);
  branch.state = BranchState::ending;
  branch.verb = Verb::forget;
  branch.vote = code;
  branch.retry_at.reset();
  txn.heuristic = true;
  keep_heuristic({txn.id, xid(txn, branch), code, commit},
                 {branch.rm, key(txn, branch), xid(txn, branch), forget});
}

void Coordinator::Impl::keep_heuristic(HeuristicRecord record, HeuristicWait wait) {
  alarm(rms_[wait.rm].name + " ended " + to_text(record.xid) + " by itself (" +
        std::string(name(record.code)) + "), while " +
        (record.decided_commit ? "commit" : "rollback") +
        " was decided: compare its data with the others'; `twofold show` names the transaction");
  const TxnId id = record.id;
  heuristics_[id].push_back({record, false});
  const std::uint64_t ticket =
      persist(std::move(record), true, false, {Pending::Kind::heuristic, id});
  heuristic_waits_.emplace(ticket, std::move(wait));
}

void Coordinator::Impl::heuristic_durable(std::uint64_t ticket) {
  const auto found = heuristic_waits_.find(ticket);
  TWOFOLD_CHECK(found != heuristic_waits_.end());
  const HeuristicWait wait = std::move(found->second);
  heuristic_waits_.erase(found);
  const TxnId id = Gtrid::decode(wait.xid.gtrid)->txn_id();
  for (Heuristic& heuristic : heuristics_[id]) {
    if (heuristic.record.xid == wait.xid) heuristic.durable = true;
  }
  // Sent once: should it be lost, the next scan lists the branch, and consult() sends it again.
  if (wait.forget && rms_[wait.rm].linked) {
    if (wait.branch == BranchKey{}) {
      end_orphan(wait.rm, wait.xid, Verb::forget);
    } else {
      send(wait.rm, wait.branch, wait.xid, Verb::forget);
    }
  }
  const auto [txn, branch] = find(wait.branch);
  if (!txn) return;
  branch_done(*txn, *branch);
  finish_if_done(*txn);
}

// ---- the end ------------------------------------------------------------------------------------

void Coordinator::Impl::finish_if_done(Transaction& txn) {
  switch (txn.phase) {
    case Phase::committing:
    case Phase::aborting:
      if (all_done(txn) || (TWOFOLD_PLANTED(ended_at_the_first_answer) &&
                            txn.branches.front().state == BranchState::done)) {
        finish(txn);
      }
      return;
    case Phase::active:
    case Phase::intending:
    case Phase::working:
    case Phase::preparing:
    case Phase::releasing:
    case Phase::deciding:
    case Phase::refusing:
    case Phase::one_phase:
    case Phase::resolving:
    case Phase::ended: return;
  }
}

// Every branch has finished. The transaction leaves the live table; the mark passes it when what
// ends it in the log is durable (rule 18).
void Coordinator::Impl::finish(Transaction& txn) {
  const TxnId id = txn.id;
  const bool committed = txn.verdict == Verdict::committed;
  const bool consumed = committed || (txn.reason == Reason::refused && !txn.request.id.empty());
  enter(txn, Phase::ended);
  tell(txn, true);
  std::vector<std::string> bquals;  // of those that were committed, not of those that only read
  for (const Branch& branch : txn.branches) {
    if (committed && branch.verb != Verb::release) bquals.push_back(branch.bqual);
    if (branch.rm != kNoRm) rms_[branch.rm].last_end = clock_.now();
  }
  if (committed) {
    ends_not_durable_.insert(id);
    persist(EndRecord{id, txn.gtrid, bquals, txn.request}, false, false, {Pending::Kind::end, id});
  } else if (!consumed && txn.intent_logged) {
    ends_not_durable_.insert(id);
    persist(DroppedRecord{id}, false, false, {Pending::Kind::end, id});
  }
  clock_.ended(id);
  unlink_request(txn);
  if (consumed) {
    outcomes_.keep(id, {txn.gtrid, txn.request, !committed, std::move(bquals), txn.refusals});
  }
  auto ended = live_.extract(id);
  for (Branch& branch : ended.mapped().branches) branch.payload = {};
  if (options_.traces_max > 0) {
    if (traces_.size() == options_.traces_max) traces_.pop_front();
    traces_.push_back(std::move(ended.mapped()));
  }
  purge();
}

void Coordinator::Impl::purge() {
  if (purging_) return;
  TxnId limit = std::min(low_water(), newest());  // the newest issued id is never passed
  const bool heedless = TWOFOLD_PLANTED(floor_without_scans);
  if (const auto uncovered = clock_.lowest_uncovered(); uncovered && !heedless)
    limit = std::min(limit, *uncovered);
  auto record = outcomes_.purge(limit);
  if (!record) return;
  purging_ = true;
  const TxnId floor = record->floor;
  persist(std::move(*record), false, false, {Pending::Kind::purge, floor});
}

}  // namespace twofold::coordinator
