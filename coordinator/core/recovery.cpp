// Recovery: what the log's records mean at start, and what links that come and go mean. What scans
// say of it is in scans.cpp; it ends in phase two (phase_two.cpp) like everything else.
#include <algorithm>
#include <utility>

#include "coordinator/core/impl.h"
#include "protocol/check.h"
#include "protocol/planted.h"

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
  for (IntentRecord& record : recovered.intents) {
    if (!TWOFOLD_PLANTED(intent_presumed_aborted)) recover(record, now);
  }
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
  rm.orphans.clear();
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

}  // namespace twofold::coordinator
