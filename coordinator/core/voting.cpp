// The first phase: work, votes, refusals and the decision; one-phase commits up to their answer.
#include <algorithm>
#include <tuple>
#include <utility>

#include "coordinator/core/impl.h"
#include "protocol/check.h"
#include "protocol/planted.h"

namespace twofold::coordinator {

namespace {

Reason reason_of(Xa code, bool no_room) {
  if (no_room) return Reason::space;
  switch (code) {
    case Xa::rbdeadlock: return Reason::deadlock;
    case Xa::rbtimeout: return Reason::timeout;
    case Xa::rbcommfail:
    case Xa::er_rmfail: return Reason::lost;
    default: return Reason::rolled_back;
  }
}

std::string said(const std::string& rm, Xa code, const std::string& text) {
  return rm + ": " + (text.empty() ? std::string(name(code)) : text);
}

bool business_refusal(Xa code, const std::vector<Refusal>& refusals) {
  return code == Xa::rbintegrity && !refusals.empty();
}

}  // namespace

// ---- work and votes -----------------------------------------------------------------------------

void Coordinator::Impl::intend(Transaction& txn) {
  ++counts_.one_phase;
  enter(txn, Phase::intending);
  const Branch& branch = txn.branches.front();
  persist(IntentRecord{txn.id, txn.gtrid, {xid(txn, branch), branch.store_id}, txn.request}, true,
          true, {Pending::Kind::intent, txn.id});
}

void Coordinator::Impl::start_branches(Transaction& txn) {
  if (txn.branches.size() == 1 && options_.one_phase) {  // rule 5: first the intent, then anything
    if (!TWOFOLD_PLANTED(one_phase_without_intent)) return intend(txn);
    enter(txn, Phase::intending);
    return intent_durable(txn);
  }
  deadlines_.emplace(txn.deadline, txn.id);
  enter(txn, options_.early_prepare ? Phase::preparing : Phase::working);
  for (Branch& branch : txn.branches) {  // in one step: rule 12
    start_branch(txn, branch, options_.early_prepare ? Then::prepare : Then::nothing);
  }
}

void Coordinator::Impl::start_branch(Transaction& txn, Branch& branch, Then then) {
  branch.incarnation = rms_[branch.rm].incarnation;
  branch.state = then == Then::prepare ? BranchState::preparing : BranchState::started;
  Start start{branch.rm,
              key(txn, branch),
              xid(txn, branch),
              std::exchange(branch.payload, {}),
              then,
              options_.read_only_votes,
              txn.deadline - now_,
              txn.age + (now_ - txn.started),
              txn.interactive};
  emit(std::move(start));
}

void Coordinator::Impl::prepare_branches(Transaction& txn) {
  enter(txn, Phase::preparing);
  for (Branch& branch : txn.branches) {
    branch.state = BranchState::preparing;
    emit(Prepare{branch.rm, key(txn, branch), xid(txn, branch), branch.incarnation,
                 branch.work_items, options_.read_only_votes});
  }
}

void Coordinator::Impl::on(WorkDone& event) {
  const auto [txn, branch] = find(event.branch);
  if (!txn) return;
  switch (txn->phase) {
    case Phase::active:
      if (branch->state != BranchState::started) return;
      if (event.code == Xa::ok) return enlisted(*txn, *branch);
      branch->state = BranchState::refused;
      return abort(*txn, reason_of(event.code, event.no_room),
                   said(rm_name(*branch), event.code, event.text));
    case Phase::working:
      if (branch->state != BranchState::started) return;
      if (event.code != Xa::ok) {
        return said_no(*txn, *branch,
                       {event.branch,
                        event.code,
                        {},
                        std::move(event.refusals),
                        std::move(event.text),
                        event.no_room});
      }
      branch->state = BranchState::worked;
      branch->payload = std::move(event.results);
      return check_answers(*txn);
    case Phase::intending:
    case Phase::preparing:
    case Phase::deciding:
    case Phase::refusing:
    case Phase::one_phase:
    case Phase::resolving:
    case Phase::committing:
    case Phase::aborting:
    case Phase::releasing:
    case Phase::ended: return;
  }
}

void Coordinator::Impl::on(Voted& event) {
  const auto [txn, branch] = find(event.branch);
  if (!txn) return;
  switch (txn->phase) {
    case Phase::preparing:
      if (branch->state != BranchState::preparing) return;
      if (event.code != Xa::ok && event.code != Xa::rdonly) {
        return said_no(*txn, *branch, std::move(event));
      }
      branch->vote = event.code;
      branch->state = event.code == Xa::ok ? BranchState::prepared : BranchState::read_only;
      branch->store_id = rms_[branch->rm].store_id;
      if (!event.results.empty()) branch->payload = std::move(event.results);
      return check_answers(*txn);
    case Phase::active:
    case Phase::intending:
    case Phase::working:
    case Phase::deciding:
    case Phase::refusing:
    case Phase::one_phase:
    case Phase::resolving:
    case Phase::committing:
    case Phase::aborting:
    case Phase::releasing:
    case Phase::ended: return;
  }
}

// A business refusal waits for the other branches, so that whoever reads it sees every failed
// check; any other no may be retried as a whole, so nothing is gained by waiting.
void Coordinator::Impl::said_no(Transaction& txn, Branch& branch, Voted&& no) {
  branch.state = BranchState::refused;
  branch.vote = no.code;
  if (!business_refusal(no.code, no.refusals)) {
    return abort(txn, reason_of(no.code, no.no_room), said(rm_name(branch), no.code, no.text));
  }
  branch.refusals = std::move(no.refusals);
  check_answers(txn);
}

// Goes on as soon as every branch has answered.
void Coordinator::Impl::check_answers(Transaction& txn) {
  bool refused = false, read = false;
  for (const Branch& branch : txn.branches) {
    switch (branch.state) {
      case BranchState::started:
      case BranchState::preparing: return;
      case BranchState::refused: refused = true; break;
      case BranchState::read_only: read = true; break;
      case BranchState::worked:
      case BranchState::prepared: break;
      case BranchState::idle:
      case BranchState::ending:
      case BranchState::unsure:
      case BranchState::asking:
      case BranchState::done: TWOFOLD_CHECK(!"a branch of an undecided transaction has ended");
    }
  }
  if (refused) return refuse(txn);
  if (txn.phase == Phase::working) return prepare_branches(txn);
  return read ? release_readers(txn) : decide(txn);
}

// Rule 11: all have finished their work, so who only read may let go; and only one that answers
// XA_OK had kept its locks until now. A vote does not say that, not even the last one to arrive:
// the resource manager may have seen its session end, and let others have the locks, while this
// side had not.
void Coordinator::Impl::release_readers(Transaction& txn) {
  enter(txn, Phase::releasing);
  for (Branch& branch : txn.branches) {
    if (branch.state != BranchState::read_only) continue;
    end_branch(txn, branch, Verb::release);
    if (TWOFOLD_PLANTED(release_not_awaited)) branch_done(txn, branch);
  }
  if (TWOFOLD_PLANTED(release_not_awaited)) decide(txn);
}

void Coordinator::Impl::released(Transaction& txn, Branch& branch, const Acknowledged& event) {
  if (event.code != Xa::ok) {
    branch.state = BranchState::read_only;  // to be rolled back, if there is anything
    return abort(txn, Reason::lost,
                 said(rm_name(branch), event.code, event.text) +
                     ": what it read may have changed before all had finished; try again");
  }
  branch_done(txn, branch);
  bool wrote = false;
  for (const Branch& other : txn.branches) {
    if (other.state == BranchState::ending) return;
    wrote = wrote || other.state == BranchState::prepared;
  }
  return wrote ? decide(txn) : only_read(txn);
}

// ---- decisions ----------------------------------------------------------------------------------

void Coordinator::Impl::leave_undecided(Transaction& txn) {
  deadlines_.erase({txn.deadline, txn.id});
}

// Emitting this Persist is the point of no return (rule 4). The record names those that voted yes
// and nobody else.
void Coordinator::Impl::decide(Transaction& txn) {
  if (!TWOFOLD_PLANTED(timeout_after_persist)) leave_undecided(txn);
  enter(txn, Phase::deciding);
  CommitRecord record{txn.id, txn.gtrid, {}, txn.request};
  for (const Branch& branch : txn.branches) {
    if (branch.state != BranchState::prepared) continue;
    record.branches.push_back({xid(txn, branch), branch.store_id});
  }
  persist(std::move(record), true, true, {Pending::Kind::decision, txn.id});
  if (TWOFOLD_PLANTED(reply_before_durable)) {
    txn.verdict = Verdict::committed;
    tell(txn, false);
    txn.verdict = Verdict::pending;
  }
  if (TWOFOLD_PLANTED(commit_before_durable)) {
    for (Branch& branch : txn.branches) {
      if (branch.state == BranchState::prepared) end_branch(txn, branch, Verb::commit);
    }
  }
}

// Rule 5: told without a record. The end record keeps later answers true; nothing waits for it.
void Coordinator::Impl::only_read(Transaction& txn) {
  leave_undecided(txn);
  ++counts_.read_only;
  ++counts_.committed;
  txn.verdict = Verdict::committed;
  finish(txn);
}

// With a request id the refusal consumes it, so it is durable before it is told (rule 7); rollbacks
// do not wait for that (rule 4).
void Coordinator::Impl::refuse(Transaction& txn) {
  leave_undecided(txn);
  for (Branch& branch : txn.branches) {
    for (Refusal& refusal : branch.refusals) refusal.rm = rm_name(branch);
    std::sort(
        branch.refusals.begin(), branch.refusals.end(), [](const Refusal& a, const Refusal& b) {
          return std::tie(a.operation, a.key, a.check) < std::tie(b.operation, b.key, b.check);
        });
    std::move(branch.refusals.begin(), branch.refusals.end(), std::back_inserter(txn.refusals));
    branch.refusals.clear();
  }
  if (txn.request.id.empty()) {
    return abort(txn, Reason::refused, to_text(txn.refusals.front()));
  }
  enter(txn, Phase::refusing);
  roll_back_branches(txn);
  persist(RefusalRecord{txn.id, txn.gtrid, txn.request, txn.refusals}, true, true,
          {Pending::Kind::refusal, txn.id});
}

// A commit record or a refusal is durable.
void Coordinator::Impl::decided(Transaction& txn) {
  if (txn.phase == Phase::refusing) {
    ++counts_.refused;
    txn.verdict = Verdict::aborted;
    txn.reason = Reason::refused;
    txn.detail = to_text(txn.refusals.front());
    enter(txn, Phase::aborting);
    tell(txn, all_done(txn));
    return finish_if_done(txn);
  }
  TWOFOLD_CHECK(txn.phase == Phase::deciding);
  ++counts_.committed;
  txn.verdict = Verdict::committed;
  enter(txn, Phase::committing);
  tell(txn, TWOFOLD_PLANTED(told_ended_at_the_decision));
  for (Branch& branch : txn.branches) {
    if (branch.state == BranchState::prepared) end_branch(txn, branch, Verb::commit);
  }
  finish_if_done(txn);
}

// Nothing is logged (rule 4), and the request id is free again (rule 7). Not for what is decided.
void Coordinator::Impl::abort(Transaction& txn, Reason reason, std::string detail) {
  TWOFOLD_CHECK(txn.verdict == Verdict::pending);
  leave_undecided(txn);
  unlink_request(txn);
  ++(reason == Reason::refused ? counts_.refused : counts_.aborted);
  if (reason != Reason::refused) txn.refusals.clear();
  txn.verdict = Verdict::aborted;
  txn.reason = reason;
  txn.detail = std::move(detail);
  enter(txn, Phase::aborting);
  roll_back_branches(txn);
  tell(txn, all_done(txn));
  finish_if_done(txn);
}

// All that were started: a refused one holds its locks until it is told (rule 11), and so does a
// read-only voter.
void Coordinator::Impl::roll_back_branches(Transaction& txn) {
  for (Branch& branch : txn.branches) {
    switch (branch.state) {
      case BranchState::idle: branch_done(txn, branch); break;
      case BranchState::started:
      case BranchState::worked:
      case BranchState::preparing:
      case BranchState::prepared:
      case BranchState::read_only:
      case BranchState::refused: end_branch(txn, branch, Verb::rollback); break;
      case BranchState::ending:  // rolled back already, or released
      case BranchState::unsure:
      case BranchState::asking:
      case BranchState::done: break;
    }
  }
}

void Coordinator::Impl::time_out(Transaction& txn) {
  if (txn.phase == Phase::active) {
    return abort(txn, Reason::timeout,
                 "its time was over before its client asked to commit: try again, or give it more "
                 "(timeout_ms)");
  }
  std::string silent;
  for (const Branch& branch : txn.branches) {
    const bool asked = branch.state == BranchState::started ||
                       branch.state == BranchState::preparing ||
                       branch.state == BranchState::ending;  // to release
    if (!asked) continue;
    silent += (silent.empty() ? "" : ", ") + rm_name(branch);
  }
  const auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(now_ - txn.started).count();
  abort(txn, Reason::timeout,
        "no answer from " + silent + " within " + std::to_string(waited) + " ms: try again");
}

// ---- one-phase commits --------------------------------------------------------------------------

// Rule 5: only now may it be sent. If it cannot be, nothing has happened: the intent is dropped.
void Coordinator::Impl::intent_durable(Transaction& txn) {
  TWOFOLD_CHECK(txn.phase == Phase::intending);
  Branch& branch = txn.branches.front();
  const ResourceManager& rm = rms_[branch.rm];
  txn.intent_logged = true;
  if (!rm.linked) {  // to the same store as then: another one is recorded first
    return abort(txn, Reason::lost,
                 "the link to " + rm.name + " was lost: nothing was sent; try again");
  }
  if (txn.deadline <= now_) {
    return abort(txn, Reason::timeout, "writing the log took longer than the timeout: try again");
  }
  enter(txn, Phase::one_phase);
  if (txn.interactive) {
    emit(Commit{branch.rm, key(txn, branch), xid(txn, branch), waited_for(txn), true,
                branch.incarnation, branch.work_items});
  } else {
    start_branch(txn, branch, Then::commit_one_phase);
  }
  branch.state = BranchState::ending;
  branch.verb = Verb::commit_one_phase;
}

void Coordinator::Impl::one_phase_answered(Transaction& txn, Branch& branch, Acknowledged& event) {
  branch.vote = event.code;
  if (event.code == Xa::ok || event.code == Xa::rdonly) {
    branch.payload = std::move(event.results);
    return committed_in_one_phase(txn);
  }
  if (is_rollback(event.code)) {  // the branch has ended, and let go of its locks
    branch_done(txn, branch);
    if (!business_refusal(event.code, event.refusals)) {
      return abort(txn, reason_of(event.code, event.no_room),
                   said(rm_name(branch), event.code, event.text));
    }
    branch.refusals = std::move(event.refusals);
    return refuse(txn);
  }
  if (is_heuristic(event.code)) {
    // Half done or worse must not be tried again: all but heurrb consumes the request id as a
    // commit.
    end_heuristically(txn, branch, event.code, true);
    if (event.code != Xa::heurrb) return committed_in_one_phase(txn);
    return abort(txn, Reason::rolled_back, said(rm_name(branch), event.code, event.text));
  }
  if (txn.interactive &&
      event.code == Xa::er_proto) {  // a client is still at work: nothing was done
    branch.state = BranchState::worked;
    return abort(txn, Reason::rolled_back, said(rm_name(branch), event.code, event.text));
  }
  // Neither done nor not done: the resource manager is asked once a scan shows that nothing is
  // under way.
  enter(txn, Phase::resolving);
  become_unsure(txn, branch);
  want_scan(branch.rm);
}

void Coordinator::Impl::committed_in_one_phase(Transaction& txn) {
  Branch& branch = txn.branches.front();
  ++counts_.committed;
  txn.verdict = Verdict::committed;
  if (branch.verb != Verb::forget) branch_done(txn, branch);
  enter(txn, Phase::committing);
  tell(txn, all_done(txn));
  finish_if_done(txn);
}

}  // namespace twofold::coordinator
