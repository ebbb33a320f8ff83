// Interactive transactions: begin, enlist, and the end their clients ask for. In between the
// clients work at the resource managers themselves. From CommitRequested on they go the way of
// submitted ones (voting.cpp).
#include <algorithm>
#include <utility>

#include "coordinator/core/impl.h"

namespace twofold::coordinator {

void Coordinator::Impl::on(Begin& event) {
  ++counts_.submitted;
  if (!may_begin(event.requester)) return;
  Transaction& txn = create(event.timeout, event.age);
  txn.interactive = true;
  deadlines_.emplace(txn.deadline, txn.id);
  enter(txn, Phase::active);
  Outcome begun = outcome_of(txn, false);
  begun.timeout_ms = static_cast<std::uint32_t>(
      std::chrono::ceil<std::chrono::milliseconds>(txn.deadline - txn.started).count());
  reply(event.requester, std::move(begun));
}

// The live transaction that its client may still change. Otherwise null, and answered as a question
// for the outcome: now, or (`ask`) when there is one. That is what a client gets that asks again
// after a lost reply, also from a coordinator that has been started anew.
Transaction* Coordinator::Impl::active_of(Requester requester, const std::string& gtrid,
                                          bool at_end, bool ask) {
  const auto parts = Gtrid::decode(gtrid);
  Transaction* txn = parts ? live(parts->txn_id()) : nullptr;
  if (txn && txn->gtrid == gtrid && txn->phase == Phase::active) return txn;
  using When = OutcomeAsked::When;
  const When when = !ask ? When::now : at_end ? When::at_end : When::at_decision;
  OutcomeAsked question{requester, gtrid, {}, when, {}};
  ask_gtrid(question);
  return nullptr;
}

// Rule 10: the branch is the coordinator's; its client only joins it.
void Coordinator::Impl::on(Enlist& event) {
  Transaction* txn = active_of(event.requester, event.gtrid, false, false);
  if (!txn) return;
  const auto named = rm_ids_.find(event.rm);
  if (named == rm_ids_.end()) {
    return reject(
        event.requester, Reason::invalid,
        "unknown resource manager \"" + event.rm + "\": see the coordinator's configuration");
  }
  const RmId rm = named->second;
  const auto known = std::find_if(txn->branches.begin(), txn->branches.end(),
                                  [rm](const Branch& branch) { return branch.rm == rm; });
  if (known != txn->branches.end()) {
    if (known->state == BranchState::worked) {
      return emit(Enlisted{event.requester, rm, xid(*txn, *known)});
    }
    return txn->waiters.push_back({event.requester, false, false, known->index});
  }
  if (txn->branches.size() >= options_.branches_max) {
    return reject(event.requester, Reason::invalid,
                  "at most branches_max (" + std::to_string(options_.branches_max) +
                      ") resource managers may be enlisted");
  }
  if (!takes_new(rms_[rm])) {
    return reject(event.requester, Reason::unavailable,
                  why_not(rms_[rm]) + ": no branch was begun there");
  }
  add_branch(*txn, rm, {});
  Branch& branch = txn->branches.back();
  txn->waiters.push_back({event.requester, false, false, branch.index});
  start_branch(*txn, branch, Then::nothing);
}

void Coordinator::Impl::enlisted(Transaction& txn, Branch& branch) {
  branch.state = BranchState::worked;
  branch.work_items = 0;
  for (const Waiter& waiter : txn.waiters) {
    if (waiter.enlists == branch.index) {
      emit(Enlisted{waiter.requester, branch.rm, xid(txn, branch)});
    }
  }
  std::erase_if(txn.waiters, [&](const Waiter& one) { return one.enlists == branch.index; });
}

// Asked once more after a lost reply, it is a question for the outcome.
void Coordinator::Impl::on(CommitRequested& event) {
  Transaction* txn = active_of(event.requester, event.gtrid, event.reply_at_end, true);
  if (!txn) return;
  for (const Branch& branch : txn->branches) {
    if (branch.state == BranchState::worked) continue;
    return reject(event.requester, Reason::invalid,
                  rm_name(branch) + " is being enlisted: wait for that answer, then commit");
  }
  for (const WorkCount& count : event.work) {
    const auto found =
        std::find_if(txn->branches.begin(), txn->branches.end(),
                     [&](const Branch& branch) { return rms_[branch.rm].name == count.rm; });
    if (found == txn->branches.end()) {
      return reject(event.requester, Reason::invalid,
                    "work at \"" + count.rm + "\", which has not been enlisted");
    }
    found->work_items = count.items;
  }
  txn->waiters.push_back({event.requester, event.reply_at_end, true, std::nullopt});
  if (txn->branches.empty()) return only_read(*txn);
  if (txn->branches.size() == 1 && options_.one_phase) {
    leave_undecided(*txn);
    return intend(*txn);
  }
  prepare_branches(*txn);
}

// Until the Persist of its decision is out (rule 4).
void Coordinator::Impl::on(RollbackRequested& event) {
  const auto parts = Gtrid::decode(event.gtrid);
  Transaction* txn = parts ? live(parts->txn_id()) : nullptr;
  if (!txn || txn->gtrid != event.gtrid || !txn->interactive || !undecided(*txn)) {
    active_of(event.requester, event.gtrid, event.reply_at_end, true);  // answers
    return;
  }
  txn->waiters.push_back({event.requester, event.reply_at_end, false, std::nullopt});
  abort(*txn, Reason::rolled_back, "rolled back by its client");
}

}  // namespace twofold::coordinator
