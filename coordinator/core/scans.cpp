// What is done about branches that a scan lists or does not list (rules 2, 14 and 16). It ends in
// phase two (phase_two.cpp) like everything else.
#include <algorithm>
#include <utility>

#include "coordinator/core/impl.h"
#include "protocol/check.h"
#include "protocol/planted.h"

namespace twofold::coordinator {

// ---- scans --------------------------------------------------------------------------------------

void Coordinator::Impl::scan(RmId id) {
  ResourceManager& rm = rms_[id];
  rm.scan = clock_.begin_scan();
  rm.scan_again = false;
  rm.next_scan = now_ + options_.scan_period;
  emit(ListInDoubt{id});
}

// A scan that begins from now on; at most one is outstanding.
void Coordinator::Impl::want_scan(RmId id) {
  if (rms_[id].scan) {
    rms_[id].scan_again = true;
  } else {
    scan(id);
  }
}

// What a failed scan lists is there; what it does not list may be there as well (rule 14).
void Coordinator::Impl::on(InDoubtListed& event) {
  ResourceManager& rm = rms_[event.rm];
  if (!rm.scan) return;
  const std::uint64_t number = *std::exchange(rm.scan, std::nullopt);
  std::set<Xid> alarmed;
  for (const ListedBranch& listed : event.branches) consult(event.rm, listed, number, alarmed);
  if (!event.complete && !TWOFOLD_PLANTED(failed_scan_taken_as_complete)) {
    rm.alarmed.merge(alarmed);
    rm.next_scan = now_ + pause(rm.scans_failed++);
    return;
  }
  rm.alarmed = std::move(alarmed);
  if (rm.alarmed.size() < options_.listed_alarms_max) rm.alarmed_enough = false;
  rm.scans_failed = 0;
  settle_unlisted(event.rm, number);
  clock_.completed(event.rm, number, lowest_listed(event));
  settle_drained(event, number);
  purge();
  if (rm.scan_again) scan(event.rm);
}

// Of those that the floor has not passed yet.
std::optional<TxnId> Coordinator::Impl::lowest_listed(const InDoubtListed& event) const {
  std::optional<TxnId> lowest;
  for (const ListedBranch& listed : event.branches) {
    const auto gtrid = of_this_node(listed.xid);
    if (!gtrid || !own_log(*gtrid) || !recorded(*gtrid) || !issued(*gtrid)) continue;
    const TxnId id = gtrid->txn_id();
    // Listed until a person ends it, which the floor must not wait for: below it, it is reported as
    // well.
    if (decision_may_be_lost(*gtrid) && !live(id) && !outcomes_.find(id)) continue;
    if (id > outcomes_.floor() && (!lowest || id < *lowest)) lowest = id;
  }
  return lowest;
}

// A branch that a resource manager lists as in doubt: what is known of it is consulted in the order
// live table, commit records (which are live as well), kept outcomes, by whole xid (rule 14).
//
// The race between recovery and running commits. The list may be old by the time it is read: a
// branch on it may have been committed, rolled back or asked to commit since. Nothing is undone by
// that:
//  - A transaction is in the live table from before its first Start until all its branches have
//    finished, and a commit is in the kept outcomes from then on. A listed branch was prepared
//    after its Start was sent, so whoever is in neither table has been aborted, or has been
//    forgotten. The floor tells those apart: it passes an id only after a scan of this resource
//    manager that began after the id had ended and did not list it, and only one scan at a time is
//    under way. So "not there" never hides a commit.
//  - An undecided transaction is left alone, however long it takes.
//  - A verb sent to a branch that has ended meanwhile finds nothing there, which changes nothing:
//    Start alone creates a branch (rule 10), and xids are never used again.
//  - A late prepare cannot slip in behind the list: a resource manager runs verbs of the current
//    session only, and lists as busy what an older one still does (rule 15).
//  - What is *not* listed has ended only if the scan began after the verb was lost: scans are
//    numbered.
void Coordinator::Impl::consult(RmId rm, const ListedBranch& listed, std::uint64_t scan,
                                std::set<Xid>& alarmed) {
  const Xid& xid = listed.xid;
  const auto gtrid = of_this_node(xid);
  if (!gtrid) return;  // foreign
  if (!own_log(*gtrid)) {
    if (TWOFOLD_PLANTED(other_log_presumed_aborted)) return end_orphan(rm, xid, Verb::rollback);
    return alarm_listed(rm, xid, alarmed, "belongs to another log of this node");
  }
  if (!recorded(*gtrid)) {
    return alarm_listed(rm, xid, alarmed,
                        "was begun in an epoch that this log did not record: nothing is done "
                        "with it");
  }
  if (!issued(*gtrid)) return alarm_listed(rm, xid, alarmed, "was never begun by this coordinator");
  const TxnId id = gtrid->txn_id();
  Transaction* const txn = live(id);
  const bool passed_over =
      TWOFOLD_PLANTED(commit_records_not_consulted) && txn && txn->phase == Phase::committing;
  if (txn && !passed_over) return consult_live(*txn, rm, listed, scan, alarmed);
  if (!listed.busy) consult_ended(*gtrid, rm, listed, alarmed);  // busy: the next scan tells
}

void Coordinator::Impl::consult_live(Transaction& txn, RmId rm, const ListedBranch& listed,
                                     std::uint64_t scan, std::set<Xid>& alarmed) {
  const auto found = std::find_if(
      txn.branches.begin(), txn.branches.end(),
      [&](const Branch& branch) { return branch.bqual == listed.xid.bqual && branch.rm == rm; });
  Branch* branch = found == txn.branches.end() ? nullptr : &*found;
  if (branch) branch->listed_by = scan;
  if (listed.busy) return;
  const Heuristic* known = heuristic_of(txn.id, listed.xid);
  if (known && listed.heuristic != Xa::ok) {
    if (known->durable) end_orphan(rm, listed.xid, Verb::forget);
    return;
  }
  const auto end = [&](Verb verb) {  // if an older verb is not under way still
    if (!branch) return end_orphan(rm, listed.xid, verb);
    if (branch->since >= scan) return;
    if (branch->state == BranchState::unsure) return end_branch(txn, *branch, verb);
    if (branch->state == BranchState::done) end_orphan(rm, listed.xid, verb);
  };
  switch (txn.phase) {
    case Phase::active:
    case Phase::intending:
    case Phase::working:
    case Phase::preparing:
    case Phase::releasing:
    case Phase::deciding:
    case Phase::one_phase:
    case Phase::resolving:  // undecided
      if (TWOFOLD_PLANTED(undecided_rolled_back)) end_orphan(rm, listed.xid, Verb::rollback);
      return;
    case Phase::refusing:
    case Phase::aborting: return end(Verb::rollback);
    case Phase::committing:
      if (branch && branch->verb != Verb::release) return end(Verb::commit);
      alarm_listed(rm, listed.xid, alarmed,
                   "is not in its transaction's commit record: rolled back");
      return end_orphan(rm, listed.xid, Verb::rollback);
    case Phase::ended: return;
  }
}

// A prepared branch may have a heuristic hazard on record: its store was given up for lost, and has
// turned up again. It ends as was decided; what is on record stays, for a person to compare.
void Coordinator::Impl::consult_ended(const Gtrid& gtrid, RmId rm, const ListedBranch& listed,
                                      std::set<Xid>& alarmed) {
  const Xid& xid = listed.xid;
  const TxnId id = gtrid.txn_id();
  if (const Heuristic* known = heuristic_of(id, xid)) {
    if (!known->durable) return;
    const Verb decided = known->record.decided_commit ? Verb::commit : Verb::rollback;
    return end_orphan(rm, xid, listed.heuristic != Xa::ok ? Verb::forget : decided);
  }
  if (const KeptOutcome* kept = outcomes_.find(id)) {
    const auto& bquals = kept->bquals;
    if (kept->refused) return end_orphan(rm, xid, Verb::rollback);
    if (std::find(bquals.begin(), bquals.end(), xid.bqual) != bquals.end()) {
      return end_orphan(rm, xid, Verb::commit);
    }
    alarm_listed(rm, xid, alarmed, "is not in its transaction's commit record: rolled back");
    return end_orphan(rm, xid, Verb::rollback);
  }
  if (id <= outcomes_.floor()) {
    return alarm_listed(rm, xid, alarmed, "is older than the outcomes that are kept");
  }
  if (decision_may_be_lost(gtrid)) {
    return alarm_listed(rm, xid, alarmed,
                        "may have been decided after the backup that this log was restored from: "
                        "nothing is done with it");
  }
  end_orphan(rm, xid, Verb::rollback);  // presumed abort (rule 4)
}

// Once, until it has answered or its session is lost: scans list it for as long as that takes.
void Coordinator::Impl::end_orphan(RmId rm, const Xid& xid, Verb verb) {
  if (rms_[rm].orphans.insert(xid).second) send(rm, {}, xid, verb);
}

// Once for as long as it is listed. What is remembered for that has a bound, whatever is listed and
// however many scans in a row fail: beyond it, one alarm stands for all.
void Coordinator::Impl::alarm_listed(RmId id, const Xid& xid, std::set<Xid>& alarmed,
                                     std::string_view what) {
  ResourceManager& rm = rms_[id];
  if (alarmed.contains(xid)) return;
  if (!rm.alarmed.contains(xid)) {
    if (std::max(rm.alarmed.size(), alarmed.size()) >= options_.listed_alarms_max) {
      if (!std::exchange(rm.alarmed_enough, true)) {
        alarm("more branches in doubt at " + rm.name + " need to be looked at than the " +
              std::to_string(options_.listed_alarms_max) +
              " that are reported one by one; see `twofold in-doubt`");
      }
      return;
    }
    alarm("in-doubt branch " + to_text(xid) + " at " + rm.name + " " + std::string(what) +
          "; see `twofold in-doubt`");
  }
  alarmed.insert(xid);
}

// A complete scan lacks these, and began after they became unsure.
void Coordinator::Impl::settle_unlisted(RmId rm, std::uint64_t scan) {
  const std::vector<BranchKey> unsure(rms_[rm].unsure.begin(), rms_[rm].unsure.end());
  for (const BranchKey& key : unsure) {
    const auto [txn, branch] = find(key);
    TWOFOLD_CHECK(txn);
    if (branch->state != BranchState::unsure || branch->verb == Verb::release) continue;
    if (branch->since >= scan || branch->listed_by == scan) continue;
    // Asked again soon: it answered in this session, so it may be there without being prepared, and
    // such a branch is not listed.
    if (branch->retry_at) continue;
    switch (txn->phase) {
      case Phase::resolving:
      case Phase::committing: ask_evidence(*txn, *branch); break;
      case Phase::refusing:
      case Phase::aborting:
        branch_done(*txn, *branch);
        finish_if_done(*txn);
        break;
      case Phase::active:
      case Phase::intending:
      case Phase::working:
      case Phase::preparing:
      case Phase::deciding:
      case Phase::one_phase:
      case Phase::releasing:
      case Phase::ended: TWOFOLD_CHECK(!"unsure, and yet nothing was sent");
    }
  }
}

// ---- evidence (rule 16) -------------------------------------------------------------------------

void Coordinator::Impl::ask_evidence(Transaction& txn, Branch& branch) {
  branch.state = BranchState::asking;
  branch.retry_at.reset();
  emit(AskOutcome{branch.rm, key(txn, branch), xid(txn, branch), branch.store_id});
}

void Coordinator::Impl::on(OutcomeTold& event) {
  using Evidence = OutcomeTold::Evidence;
  const auto [txn, branch] = find(event.branch);
  if (!txn || branch->rm != event.rm || branch->state != BranchState::asking) return;
  const bool resolving = txn->phase == Phase::resolving;
  TWOFOLD_CHECK(resolving || txn->phase == Phase::committing);
  switch (event.evidence) {
    case Evidence::committed:
      if (resolving) return committed_in_one_phase(*txn);
      branch_done(*txn, *branch);
      return finish_if_done(*txn);
    case Evidence::none:
      if (!resolving && TWOFOLD_PLANTED(heuristic_not_recorded)) {
        branch_done(*txn, *branch);
        return finish_if_done(*txn);
      }
      if (!resolving) return end_heuristically(*txn, *branch, Xa::heurrb, false);
      branch_done(*txn, *branch);
      return abort(*txn, Reason::lost,
                   "the link to " + rm_name(*branch) + " was lost before it committed: try again");
    case Evidence::impossible:
      // Before the log was restored it may have ended, and the mark may have passed it: then the
      // resource manager has no evidence left, but answers a commit with "ended".
      if (!resolving && former_log(*Gtrid::decode(txn->gtrid)) &&
          !std::exchange(branch->mark_asked, true)) {
        return end_branch(*txn, *branch, Verb::commit);
      }
      if (!resolving) return end_heuristically(*txn, *branch, Xa::heurhaz, false);
      if (!std::exchange(branch->alarmed, true)) {
        alarm(rm_name(*branch) + " cannot tell what became of the one-phase commit of " +
              to_text(xid(*txn, *branch)) +
              ": its data may have been replaced, or this log restored; it stays pending and is "
              "asked again");
      }
      return become_unsure(*txn, *branch);
    case Evidence::prepared:
    case Evidence::busy: return become_unsure(*txn, *branch);
  }
}

// ---- whose is it (rule 2) -----------------------------------------------------------------------

// None: foreign. Under another format id bytes that read as a gtrid of ours are somebody else's.
std::optional<Gtrid> Coordinator::Impl::of_this_node(const Xid& xid) const {
  if (xid.format_id != kFormatId) return std::nullopt;
  auto gtrid = Gtrid::decode(xid.gtrid);
  if (TWOFOLD_PLANTED(node_matched_by_prefix) && gtrid && gtrid->node.starts_with(epoch_.node)) {
    return gtrid;
  }
  if (gtrid && gtrid->node != epoch_.node) gtrid.reset();
  return gtrid;
}

const FormerLog* Coordinator::Impl::former_log(const Gtrid& gtrid) const {
  const auto found = std::find_if(epoch_.former.begin(), epoch_.former.end(),
                                  [&](const FormerLog& log) { return log.id == gtrid.log_id; });
  return found == epoch_.former.end() ? nullptr : &*found;
}

bool Coordinator::Impl::own_log(const Gtrid& gtrid) const {
  return gtrid.node == epoch_.node && (gtrid.log_id == epoch_.log_id || former_log(gtrid));
}

// This log was restored from a copy that need not hold what was decided in that epoch: no record
// proves nothing.
bool Coordinator::Impl::decision_may_be_lost(const Gtrid& gtrid) const {
  const FormerLog* former = former_log(gtrid);
  if (TWOFOLD_PLANTED(restored_log_presumes_abort)) return false;
  return former && gtrid.epoch >= former->certain_below;
}

bool Coordinator::Impl::recorded(const Gtrid& gtrid) const {
  const EpochRef ref{gtrid.epoch, gtrid.nonce};
  const auto& earlier = epoch_.earlier;
  return ref == epoch_.current ||
         std::find(earlier.rbegin(), earlier.rend(), ref) != earlier.rend();
}

bool Coordinator::Impl::issued(const Gtrid& gtrid) const {
  return gtrid.sequence > 0 && gtrid.txn_id() <= newest();
}

const Coordinator::Impl::Heuristic* Coordinator::Impl::heuristic_of(TxnId id,
                                                                    const Xid& xid) const {
  const auto found = heuristics_.find(id);
  if (found == heuristics_.end()) return nullptr;
  for (const Heuristic& heuristic : found->second) {
    if (heuristic.record.xid == xid) return &heuristic;
  }
  return nullptr;
}

}  // namespace twofold::coordinator
