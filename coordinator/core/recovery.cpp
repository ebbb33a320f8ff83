// Recovery: what the log's records mean at start, what links that come and go mean, and what is
// done about branches that a scan lists or does not list. It ends in phase two (phase_two.cpp) like
// everything else.
#include <algorithm>
#include <utility>

#include "coordinator/core/impl.h"
#include "protocol/check.h"

namespace twofold::coordinator {

// ---- the initial state --------------------------------------------------------------------------

Coordinator::Impl::Impl(Options options, Epoch epoch, Recovered recovered, Time now)
    : options_(std::move(options)),
      epoch_(std::move(epoch)),
      clock_(options_.resource_managers.size()),
      outcomes_(options_.outcomes_max, recovered.floor),
      now_(now) {
  options_.branches_max = std::min<std::size_t>(options_.branches_max, UINT16_MAX);
  for (const std::string& name : options_.resource_managers) {
    rms_.emplace_back().name = name;
    TWOFOLD_CHECK(name.size() <= kRmNameBytesMax);
  }
  for (RmId rm = 0; rm < rms_.size(); ++rm) {
    TWOFOLD_CHECK(rm_ids_.emplace(rms_[rm].name, rm).second);
  }
  for (Participant& participant : recovered.participants) {
    const auto found = rm_ids_.find(participant.name);
    if (found == rm_ids_.end()) {
      former_participants_.push_back(std::move(participant));
    } else {
      rms_[found->second].store_id = participant.store_id;
      rms_[found->second].state = participant.state;
    }
  }
  for (const std::string& name : options_.accept_stores) {
    rms_[rm_ids_.at(name)].accept_store = true;
  }
  for (HeuristicRecord& record : recovered.heuristics) {
    const TxnId id = record.id;
    heuristics_[id].push_back({std::move(record), true});
  }
  for (RefusalRecord& record : recovered.refusals) {
    outcomes_.keep(
        record.id,
        {std::move(record.gtrid), std::move(record.request), true, {}, std::move(record.refusals)});
  }
  for (EndRecord& record : recovered.ends) {
    outcomes_.keep(
        record.id,
        {std::move(record.gtrid), std::move(record.request), false, std::move(record.bquals), {}});
  }
  for (CommitRecord& record : recovered.commits) recover(record, now);
  for (IntentRecord& record : recovered.intents) recover(record, now);
}

Transaction& Coordinator::Impl::recovered(TxnId id, std::string& gtrid, RequestRef& request,
                                          Time now) {
  ++counts_.recovered;
  Transaction& txn = live_[id];
  txn.id = id;
  txn.gtrid = std::move(gtrid);
  txn.request = std::move(request);
  txn.started = txn.deadline = now;
  if (!txn.request.id.empty()) {
    live_requests_.erase(txn.request.id);  // its key is a view into the older transaction
    live_requests_.emplace(txn.request.id, id);
  }
  return txn;
}

// A decision without an end: phase two goes on, as if the answers had been lost.
void Coordinator::Impl::recover(CommitRecord& record, Time now) {
  Transaction& txn = recovered(record.id, record.gtrid, record.request, now);
  txn.phase = Phase::committing;
  txn.verdict = Verdict::committed;
  for (BranchRecord& branch : record.branches) recover_branch(txn, branch);
}

// An intent without an outcome counts as running (rule 5).
void Coordinator::Impl::recover(IntentRecord& record, Time now) {
  Transaction& txn = recovered(record.id, record.gtrid, record.request, now);
  txn.phase = Phase::resolving;
  txn.intent_logged = true;
  recover_branch(txn, record.branch);
}

void Coordinator::Impl::recover_branch(Transaction& txn, BranchRecord& record) {
  Branch& branch = txn.branches.emplace_back();
  const auto bqual = Bqual::decode(record.xid.bqual);
  branch.index = bqual ? bqual->index : static_cast<std::uint16_t>(txn.branches.size() - 1);
  branch.store_id = record.store_id;
  branch.vote = Xa::ok;
  branch.bqual = std::move(record.xid.bqual);
  const auto rm = bqual ? rm_ids_.find(bqual->rm) : rm_ids_.end();
  if (rm != rm_ids_.end()) branch.rm = rm->second;
  if (const Heuristic* known = heuristic_of(txn.id, xid(txn, branch))) {
    txn.heuristic = true;
    branch.vote = known->record.code;
    branch_done(txn, branch);
    if (all_done(txn)) startup_done_.push_back(txn.id);
    return;
  }
  become_unsure(txn, branch);
  if (branch.rm != kNoRm) return;
  startup_alarms_.push_back("the log holds a decision for a branch at " + rm_name(branch) +
                            ", which is not configured: transaction " + gtrid_text(txn.gtrid) +
                            " cannot end until it is; add it to the configuration and restart");
}

// What recovery found needs a step to be said in.
void Coordinator::Impl::resume_at_start() {
  for (std::string& text : std::exchange(startup_alarms_, {})) alarm(std::move(text));
  for (const TxnId id : std::exchange(startup_done_, {})) {
    Transaction* txn = live(id);
    if (!txn || !all_done(*txn)) continue;
    if (txn->phase == Phase::committing) {
      finish(*txn);
    } else if (txn->branches.front().vote == Xa::heurrb) {
      abort(*txn, Reason::rolled_back, rm_name(txn->branches.front()) + ": rolled back by itself");
    } else {
      committed_in_one_phase(*txn);
    }
  }
}

// ---- links --------------------------------------------------------------------------------------

void Coordinator::Impl::on(LinkUp& event) {
  if (rms_[event.rm].linked) {
    LinkDown down{event.rm};
    on(down);
  }
  if (admit(event)) link_up(event);
}

// Always lists (rule 14): what was lost with the old session is settled by what the scan says.
void Coordinator::Impl::link_up(const LinkUp& event) {
  ResourceManager& rm = rms_[event.rm];
  rm.linked = true;
  rm.incarnation = event.incarnation;
  rm.scans_failed = 0;
  rm.mark_sent = low_water();
  emit(SendMark{event.rm, *rm.mark_sent});
  scan(event.rm);
}

void Coordinator::Impl::on(LinkDown& event) {
  ResourceManager& rm = rms_[event.rm];
  rm.linked = false;
  rm.arriving.reset();
  rm.barred = false;
  rm.scan.reset();
  rm.scan_again = false;
  rm.mark_sent.reset();
  rm.waits.clear();
  clock_.lost(event.rm);
  std::vector<BranchKey> keys;  // a lost session may end its transaction
  for (const auto& [id, txn] : live_) {
    for (const Branch& branch : txn.branches) {
      if (branch.rm == event.rm) keys.push_back(key(txn, branch));
    }
  }
  for (const BranchKey& lost : keys) {
    const auto [txn, branch] = find(lost);
    if (txn) lost_session(*txn, *branch);
  }
}

// Rule 11: before all branches have finished, only a prepared one may lose its session.
void Coordinator::Impl::lost_session(Transaction& txn, Branch& branch) {
  switch (txn.phase) {
    case Phase::active:
    case Phase::working:
    case Phase::preparing:
      if (branch.state == BranchState::prepared) return;
      return abort(txn, Reason::lost, "the link to " + rm_name(branch) + " was lost: try again");
    case Phase::releasing:
      if (branch.state != BranchState::ending) return;
      branch_done(txn, branch);  // it ended with its session
      return abort(txn, Reason::lost, "the link to " + rm_name(branch) + " was lost: try again");
    case Phase::one_phase: enter(txn, Phase::resolving); return become_unsure(txn, branch);
    case Phase::resolving:
      if (branch.state == BranchState::asking) become_unsure(txn, branch);
      return;
    case Phase::deciding:
    case Phase::refusing:
    case Phase::committing:
    case Phase::aborting:
      if (branch.verb == Verb::release &&
          (branch.state == BranchState::ending || branch.state == BranchState::unsure)) {
        branch_done(txn, branch);  // it ended with its session
        return finish_if_done(txn);
      }
      if (branch.state == BranchState::asking ||
          (branch.state == BranchState::ending && branch.verb != Verb::forget)) {
        become_unsure(txn, branch);
      }
      return;
    case Phase::intending:  // nothing has been sent; its Durable finds out
    case Phase::ended: return;
  }
}

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
  if (!event.complete) {
    rm.alarmed.merge(alarmed);
    rm.next_scan = now_ + pause(rm.scans_failed++);
    return;
  }
  rm.alarmed = std::move(alarmed);
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
    const auto gtrid = Gtrid::decode(listed.xid.gtrid);
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
  const auto gtrid = xid.format_id == kFormatId ? Gtrid::decode(xid.gtrid) : std::optional<Gtrid>{};
  if (!gtrid || gtrid->node != epoch_.node) return;  // foreign
  if (!own_log(*gtrid)) {
    return alarm_listed(rm, xid, alarmed, "belongs to another log of this node");
  }
  if (!recorded(*gtrid)) {
    return alarm_listed(rm, xid, alarmed,
                        "was begun in an epoch that this log did not record: nothing is done "
                        "with it");
  }
  if (!issued(*gtrid)) return alarm_listed(rm, xid, alarmed, "was never begun by this coordinator");
  const TxnId id = gtrid->txn_id();
  if (Transaction* txn = live(id)) return consult_live(*txn, rm, listed, scan, alarmed);
  if (!listed.busy) consult_ended(*gtrid, rm, xid, alarmed);  // busy: the next scan tells
}

void Coordinator::Impl::consult_live(Transaction& txn, RmId rm, const ListedBranch& listed,
                                     std::uint64_t scan, std::set<Xid>& alarmed) {
  const auto found = std::find_if(
      txn.branches.begin(), txn.branches.end(),
      [&](const Branch& branch) { return branch.bqual == listed.xid.bqual && branch.rm == rm; });
  Branch* branch = found == txn.branches.end() ? nullptr : &*found;
  if (branch) branch->listed_by = scan;
  if (listed.busy) return;
  if (const Heuristic* known = heuristic_of(txn.id, listed.xid)) {
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
    case Phase::resolving: return;  // undecided
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

void Coordinator::Impl::consult_ended(const Gtrid& gtrid, RmId rm, const Xid& xid,
                                      std::set<Xid>& alarmed) {
  const TxnId id = gtrid.txn_id();
  if (const Heuristic* known = heuristic_of(id, xid)) {
    if (known->durable) end_orphan(rm, xid, Verb::forget);
    return;
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

void Coordinator::Impl::end_orphan(RmId rm, const Xid& xid, Verb verb) {
  send(rm, {}, xid, verb);
}

// Once for as long as it is listed.
void Coordinator::Impl::alarm_listed(RmId rm, const Xid& xid, std::set<Xid>& alarmed,
                                     std::string_view what) {
  if (!rms_[rm].alarmed.contains(xid) && !alarmed.contains(xid)) {
    alarm("in-doubt branch " + to_text(xid) + " at " + rms_[rm].name + " " + std::string(what) +
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
