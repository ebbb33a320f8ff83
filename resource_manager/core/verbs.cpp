// X/Open's verbs, seen from the session they came in (XA C193 chapter 5). A verb in the wrong order
// is answered XAER_PROTO and changes nothing.
#include "protocol/planted.h"
#include "resource_manager/core/branches_impl.h"

namespace twofold::resource_manager {

namespace {

constexpr std::string_view kBusy =
    "a verb of an earlier session is still at work on this branch: retry";
constexpr std::string_view kNoSession =
    "this connection is not its node's current session: open a new session";

}  // namespace

// ---- who asks for what ------------------------------------------------------------------------

// The session is checked when a verb runs, not when it arrives (rule 15).
Node* Branches::Impl::current_session(ConnectionId connection) const {
  auto at = connections_.find(connection);
  return at != connections_.end() && at->second->connection == connection ? at->second : nullptr;
}

Node* Branches::Impl::session_of(const Requester& requester) {
  Node* node = current_session(requester.connection);
  if (!node) answer(requester, Xa::er_proto, std::string{kNoSession});
  return node;
}

Node* Branches::Impl::session_of_question(const Requester& requester) {
  Node* node = current_session(requester.connection);
  if (!node) emit(AnswerFailure{requester, std::string{kNoSession}});
  return node;
}

// Answers by itself, and returns none, what no branch can be meant by. Each coordinator sees only
// its own branches: those of its node and of what its log is or was.
std::optional<Branches::Impl::Target> Branches::Impl::target(const Requester& requester,
                                                             const Xid& xid) {
  Node* node = session_of(requester);
  if (!node) return std::nullopt;
  const std::optional<Gtrid> gtrid = Gtrid::decode(xid.gtrid);
  if (!valid(xid) || xid.format_id != kFormatId || !gtrid) {
    answer(requester, Xa::er_inval, "not an xid that Twofold has made: " + to_text(xid));
    return std::nullopt;
  }
  const TxnId* mark = mark_of(node->record, *gtrid);
  if (!mark) {
    answer(requester, Xa::er_nota, "a branch of another node or log: " + to_text(xid));
    return std::nullopt;
  }
  return Target{*node, find(xid), gtrid->txn_id() < *mark};
}

// As target(), for verbs that can do nothing without the branch or with one that is busy.
std::optional<Branches::Impl::Target> Branches::Impl::known_target(const Requester& requester,
                                                                   const Xid& xid) {
  std::optional<Target> found = target(requester, xid);
  if (!found) return std::nullopt;
  if (!found->branch) {
    answer(requester, Xa::er_nota, "no such branch here");
    return std::nullopt;
  }
  if (found->branch->busy) {
    answer(requester, Xa::retry, std::string{kBusy});
    return std::nullopt;
  }
  return found;
}

// ---- the verbs --------------------------------------------------------------------------------

bool Branches::Impl::may_start(Node& node, Start& start) {
  const NodeRecord& own = node.record;
  const std::optional<Gtrid> gtrid = Gtrid::decode(start.xid.gtrid);
  auto refuse = [&](Xa code, std::string text) {
    refuse_start(start, code, std::move(text));
    return false;
  };
  if (!valid(start.xid) || start.xid.format_id != kFormatId || !gtrid) {
    return refuse(Xa::er_inval, "not an xid that Twofold has made: " + to_text(start.xid));
  }
  if (gtrid->node != own.node || gtrid->log_id != own.log_id || gtrid->epoch != own.epoch ||
      gtrid->nonce != own.nonce) {
    return refuse(Xa::er_inval, "the xid is not of this session's node, log and epoch");
  }
  if (gtrid->txn_id() < own.low_water) {  // rule 18: a frame that was under way for too long
    return refuse(Xa::rbrollback, "transaction " + to_text(gtrid->txn_id()) +
                                      " ended long ago: below the low-water mark " +
                                      to_text(own.low_water));
  }
  if (start.interactive && (start.then != Then::nothing || !start.work.empty())) {
    return refuse(Xa::er_inval,
                  "an interactive branch is started without work, and not to its vote");
  }
  if (find(start.xid)) return refuse(Xa::er_dupid, "this branch has been started already");
  if (by_id_.size() >= options_.branches_max) {
    return refuse(Xa::rbtransient, "this resource manager has " +
                                       std::to_string(options_.branches_max) +
                                       " branches open (branches_max): retry later");
  }
  if (start.locks.size() > options_.locks_max) {
    start.invalid.push_back(too_many_locks(start.locks.size()));
  }
  if (start.remaining <= Duration::zero()) {
    return refuse(Xa::rbtimeout, "no time was left when the work arrived");
  }
  if (!start.invalid.empty() && start.then == Then::commit_one_phase) {
    return refuse(Xa::rbintegrity, {});
  }
  return true;
}

// No other attempt could do better.
Refusal Branches::Impl::too_many_locks(std::size_t locks) const {
  Refusal refusal;
  refusal.check = "invalid";
  refusal.value = std::to_string(locks);
  refusal.limit = "split the transaction: a branch has at most " +
                  std::to_string(options_.locks_max) + " locks (locks_max)";
  return refusal;
}

void Branches::Impl::refuse_start(const Start& start, Xa code, std::string text) {
  if (is_rollback(code)) ++counts_.voted_no;
  Answer refused{start.requester, code, {}, {}, std::move(text), false};
  if (code == Xa::rbintegrity) refused.refusals = start.invalid;
  emit(std::move(refused));
}

void Branches::Impl::on(Prepare event) {
  const std::optional<Target> found = known_target(event.requester, event.xid);
  if (!found) return;
  Branch& branch = *found->branch;
  switch (branch.state) {
    case BranchState::active:
      if (!may_vote(branch, event.requester, "prepare", event.incarnation, event.work_items))
        return;
      branch.asked = event.requester;
      branch.read_only_vote = event.read_only_vote;
      return vote(branch);
    case BranchState::rollback_only:
    case BranchState::rolling_back: return answer_no(event.requester, branch);
    case BranchState::waiting:
    case BranchState::running:
    case BranchState::read_only:
    case BranchState::preparing:
    case BranchState::prepared:
    case BranchState::committing: return wrong_state(event.requester, "prepare", branch);
  }
}

// All threads must have ended their parts (C193). And work that was lost, with an earlier process
// or a client's broken connection, must not be left out of a commit (rule 10).
bool Branches::Impl::may_vote(Branch& branch, const Requester& requester, std::string_view verb,
                              std::uint64_t incarnation, std::uint64_t work_items) {
  if (!branch.joined.empty() || !branch.suspended.empty()) {
    answer(requester, Xa::er_proto,
           std::string{verb} +
               " does not fit: " + std::to_string(branch.joined.size() + branch.suspended.size()) +
               " threads have not ended their part of the branch");
    return false;
  }
  std::string text;
  if (incarnation != options_.incarnation) {
    text = "the resource manager was restarted since the branch began: retry the transaction";
  } else if (work_items != branch.work_items && !TWOFOLD_PLANTED(work_count_ignored)) {
    text = "asked to " + std::string{verb} + " " + std::to_string(work_items) +
           " work items, but " + std::to_string(branch.work_items) +
           " were done here: retry the transaction";
  } else {
    return true;
  }
  ++counts_.voted_no;
  ++counts_.rolled_back;
  answer(requester, Xa::rbrollback, std::move(text));
  discard(branch);
  return false;
}

void Branches::Impl::on(Commit event) {
  const std::optional<Target> found = target(event.requester, event.xid);
  if (!found) return;
  if (!found->branch) {
    // Below the mark it ended long ago (rule 18). Of a one-phase commit the mark proves nothing:
    // only the outcome row can tell whether it did.
    if (found->below_mark && !event.one_phase) return answer(event.requester, Xa::ok, "ended");
    return answer(event.requester, Xa::er_nota, "no such branch here");
  }
  Branch& branch = *found->branch;
  if (branch.busy) return answer(event.requester, Xa::retry, std::string{kBusy});
  switch (branch.state) {
    case BranchState::prepared:
      if (event.one_phase) return wrong_state(event.requester, "commit in one phase", branch);
      branch.closing.push_back(event.requester);
      return commit_prepared(branch, event.awaited);
    case BranchState::active:
      if (!event.one_phase) return wrong_state(event.requester, "commit", branch);
      if (!may_vote(branch, event.requester, "commit", event.incarnation, event.work_items)) return;
      branch.asked = event.requester;
      branch.then = Then::commit_one_phase;
      return commit_one_phase(branch);
    case BranchState::committing: return branch.closing.push_back(event.requester);
    case BranchState::rollback_only:
      if (!event.one_phase) return wrong_state(event.requester, "commit", branch);
      answer_no(event.requester, branch);  // and that is its end (XA C193, xa_commit)
      ++counts_.rolled_back;
      return discard(branch);
    case BranchState::waiting:
    case BranchState::running:
    case BranchState::read_only:
    case BranchState::preparing:
    case BranchState::rolling_back: return wrong_state(event.requester, "commit", branch);
  }
}

void Branches::Impl::on(Rollback event) {
  const std::optional<Target> found = target(event.requester, event.xid);
  if (!found) return;
  if (!found->branch) {
    if (found->below_mark) return answer(event.requester, Xa::ok, "ended");
    return emit(AnswerFromEvidence{event.requester, std::move(event.xid), true, 0});
  }
  Branch& branch = *found->branch;
  if (branch.busy) return answer(event.requester, Xa::retry, std::string{kBusy});
  if (branch.state == BranchState::committing) {
    emit(Alarm{"asked to roll back a branch that is being committed: " + to_text(branch.xid)});
    return wrong_state(event.requester, "rollback", branch);
  }
  branch.closing.push_back(event.requester);
  switch (branch.state) {
    case BranchState::waiting:
    case BranchState::active:
    case BranchState::read_only:
    case BranchState::rollback_only: return finish_rollback(branch);
    case BranchState::running:
    case BranchState::preparing: return set_state(branch, BranchState::rolling_back);
    case BranchState::prepared: return roll_back_prepared(branch);
    case BranchState::rolling_back: return;  // all who asked are answered when it has ended
    case BranchState::committing: TWOFOLD_CHECK(!"handled above");
  }
}

void Branches::Impl::on(Release event) {
  const std::optional<Target> found = known_target(event.requester, event.xid);
  if (!found) return;
  Branch& branch = *found->branch;
  if (branch.state != BranchState::read_only) {
    return wrong_state(event.requester, "release", branch);
  }
  answer(event.requester, Xa::ok);
  discard(branch);
}

// No branch ends heuristically here, so none is known as one that did (XA C193, xa_forget).
void Branches::Impl::on(Forget event) {
  if (!target(event.requester, event.xid)) return;
  answer(event.requester, Xa::er_nota, "no branch ended heuristically here");
}

// ---- answers ----------------------------------------------------------------------------------

void Branches::Impl::answer(const Requester& requester, Xa code, std::string text) {
  emit(Answer{requester, code, {}, {}, std::move(text), false});
}

void Branches::Impl::wrong_state(const Requester& requester, std::string_view verb,
                                 const Branch& branch) {
  answer(requester, Xa::er_proto,
         std::string{verb} + " does not fit: the branch is " + std::string{name(branch.state)});
}

// Why it can only be rolled back, as far as it has not been told before.
void Branches::Impl::answer_no(const Requester& requester, const Branch& branch) {
  if (!branch.no) return answer(requester, Xa::rbrollback, "the branch can only be rolled back");
  emit(Answer{requester, branch.no->code, {}, branch.no->refusals, branch.no->text, false});
}

void Branches::Impl::answer_asked(Branch& branch, Xa code, std::string text, bool no_room,
                                  std::vector<Refusal> refusals) {
  if (!branch.asked) return;
  if (is_rollback(code)) {
    ++counts_.voted_no;
    branch.results.clear();
  }
  const Requester requester = *branch.asked;
  branch.asked.reset();
  emit(Answer{requester, code, std::exchange(branch.results, {}), std::move(refusals),
              std::move(text), no_room});
}

void Branches::Impl::answer_closing(Branch& branch, Xa code, std::string_view text, bool no_room) {
  for (const Requester& requester : branch.closing) {
    emit(Answer{requester, code, {}, {}, std::string{text}, no_room});
  }
  branch.closing.clear();
}

}  // namespace twofold::resource_manager
