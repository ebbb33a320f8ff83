#include "resource_manager/core/branches.h"

#include <algorithm>

#include "protocol/planted.h"
#include "resource_manager/core/branches_impl.h"

namespace twofold::resource_manager {

namespace {

// A lock timeout is jittered down by up to a quarter, by the xid, so that branches that wait for
// each other across resource managers do not all give up at once (rule 12).
Duration jittered(Duration timeout, const Xid& xid) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a: the same on every machine
  for (const std::string* part : {&xid.gtrid, &xid.bqual}) {
    for (const char c : *part) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  const auto share = static_cast<Duration::rep>((hash >> 32) % 1024);
  return timeout - timeout / 4 * share / 1024;
}

constexpr std::string_view kNoRoom =
    "the resource manager's store is full: erase something, or give it a larger map or disk";

}  // namespace

std::string_view name(BranchState state) {
  switch (state) {
    case BranchState::waiting: return "waiting";
    case BranchState::running: return "running";
    case BranchState::active: return "active";
    case BranchState::read_only: return "read_only";
    case BranchState::rollback_only: return "rollback_only";
    case BranchState::preparing: return "preparing";
    case BranchState::prepared: return "prepared";
    case BranchState::committing: return "committing";
    case BranchState::rolling_back: return "rolling_back";
  }
  return "unknown";
}

// ---- the shell --------------------------------------------------------------------------------

Branches::Branches(Options options, Recovered recovered, Time now)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(recovered), now)) {}
Branches::~Branches() = default;

void Branches::step(Event event, Time now, std::vector<Effect>& effects) {
  impl_->step(std::move(event), now, effects);
}
std::optional<Time> Branches::next_deadline() const {
  return impl_->next_deadline();
}
const LockTable& Branches::locks() const {
  return impl_->locks();
}
std::optional<BranchView> Branches::view(BranchId branch, Time now) const {
  return impl_->view(branch, now);
}
std::vector<BranchView> Branches::in_doubt(Time now) const {
  return impl_->in_doubt(now);
}
Counts Branches::counts() const {
  return impl_->counts();
}

Branches::Impl::Impl(Options options, Recovered recovered, Time now)
    : options_(std::move(options)), now_(now) {
  for (NodeRecord& record : recovered.nodes) {
    Node& node = nodes_[record.node];
    node.record = std::move(record);
  }
  // Prepared branches are in doubt again, with all their locks, before anybody is served (rule 11).
  for (PreparedBranch& found : recovered.prepared) {
    const std::optional<Gtrid> gtrid = Gtrid::decode(found.xid.gtrid);
    TWOFOLD_CHECK(gtrid && !find(found.xid));
    Node& node = nodes_[gtrid->node];
    node.record.node = gtrid->node;
    Branch& branch = node.branches.emplace_back();
    branch.id = ++newest_branch_;
    branch.xid = std::move(found.xid);
    branch.node = &node;
    branch.wrote = branch.handed = true;
    branch.started = branch.since = found.since;
    by_id_.emplace(branch.id, std::prev(node.branches.end()));
    by_gtrid_.emplace(branch.xid.gtrid, &branch);
    if (TWOFOLD_PLANTED(shared_locks_not_retaken)) {
      std::erase_if(found.locks, [](const auto& lock) { return lock.mode == LockMode::shared; });
    }
    locks_.reinstate(branch.id, found.locks, now);
    branch.state = BranchState::prepared;
    ++counts_.prepared;
  }
}

void Branches::Impl::step(Event event, Time now, std::vector<Effect>& effects) {
  now_ = now;
  effects_ = &effects;
#ifdef TWOFOLD_PLANTED_BUGS
  for (PersistCommit& commit : std::exchange(late_, {})) emit(std::move(commit));
#endif
  expire();
  std::visit([this](auto& known) { on(std::move(known)); }, event);
  run_ready();
  accept_sessions();
  report_waits();
  effects_ = nullptr;
}

std::optional<Time> Branches::Impl::next_deadline() const {
  std::optional<Time> next;
  if (!deadlines_.empty()) next = deadlines_.begin()->first;
  if (!fences_.empty() && (!next || fences_.begin()->first < *next)) next = fences_.begin()->first;
  if (!long_at_.empty() && (!next || long_at_.begin()->first < *next)) {
    next = long_at_.begin()->first;
  }
  for (const auto& [name, node] : nodes_) {
    if (node.report_at && (!next || *node.report_at < *next)) next = node.report_at;
  }
  return next;
}

std::optional<BranchView> Branches::Impl::view(BranchId id, Time now) const {
  const Branch* branch = find(id);
  if (!branch) return std::nullopt;
  const Time since = branch->state == BranchState::prepared ? branch->since : branch->started;
  return BranchView{branch->xid, branch->state, locks_.locks_of(id), now - since};
}

std::vector<BranchView> Branches::Impl::in_doubt(Time now) const {
  std::vector<BranchView> found;
  for (const auto& [name, node] : nodes_) {
    for (const Branch& branch : node.branches) {
      if (branch.state == BranchState::prepared) found.push_back(*view(branch.id, now));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const BranchView& a, const BranchView& b) { return a.xid < b.xid; });
  return found;
}

Counts Branches::Impl::counts() const {
  Counts counts = counts_;
  counts.branches = by_id_.size();
  return counts;
}

// ---- deadlines --------------------------------------------------------------------------------

// Whatever the event, what was due by now has happened before it.
void Branches::Impl::expire() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    expire(*find(deadlines_.begin()->second));
  }
  while (!long_at_.empty() && long_at_.begin()->first <= now_) {
    const auto [at, id] = *long_at_.begin();
    long_at_.erase(long_at_.begin());
    note_long_wait(id, at - kLongWait);
  }
  while (!fences_.empty() && fences_.begin()->first <= now_) {
    nodes_.at(fences_.begin()->second).pending->fence_over = true;
    fences_.erase(fences_.begin());
    accept_ = true;
  }
}

// A waiting branch has done nothing and holds what nobody has read or written: letting go of its
// locks shows nobody anything, so it ends at once. An active one ends at its own deadline (rule
// 10).
void Branches::Impl::expire(Branch& branch) {
  if (branch.state == BranchState::waiting) {
    ++counts_.lock_timeouts;
    if (branch.interactive && now_ < branch.deadline) {
      return doom(branch, Xa::rbtimeout, describe_wait(branch));
    }
    answer_asked(branch, Xa::rbtimeout, describe_wait(branch));
  }
  ++counts_.rolled_back;
  discard(branch);
}

void Branches::Impl::on(Tick) {}  // expire() has done it

// ---- a branch's life --------------------------------------------------------------------------

Branch& Branches::Impl::create(Node& node, Start& start) {
  Branch& branch = node.branches.emplace_back();
  branch.id = ++newest_branch_;
  branch.xid = std::move(start.xid);
  branch.node = &node;
  branch.then = start.then;
  branch.read_only_vote = start.read_only_vote;
  branch.work = std::move(start.work);
  branch.locks = std::move(start.locks);
  branch.asked = start.requester;
  branch.interactive = start.interactive;
  branch.started = now_;
  branch.born = now_ - start.age;
  branch.deadline = now_ + start.remaining;
  by_id_.emplace(branch.id, std::prev(node.branches.end()));
  by_gtrid_.emplace(branch.xid.gtrid, &branch);
  ++counts_.started;
  ++counts_.waiting;
  return branch;
}

void Branches::Impl::on(Start event) {
  Node* node = session_of(event.requester);
  if (!node || !may_start(*node, event)) return;
  Branch& branch = create(*node, event);
  if (!event.invalid.empty()) {
    set_state(branch, BranchState::rollback_only);
    answer_asked(branch, Xa::rbintegrity, {}, false, std::move(event.invalid));
  } else if (branch.interactive) {  // clients bring its work
    set_state(branch, BranchState::active);
    set_alarm(branch, branch.deadline);
    answer_asked(branch, Xa::ok);
  } else if (acquire(branch)) {
    run(branch);
  }
}

// Enters all its lock queues at once (rule 12).
bool Branches::Impl::acquire(Branch& branch) {
  const std::vector<LockRequest> locks = std::exchange(branch.locks, {});
  if (locks_.request(branch.id, locks, now_)) return true;
  set_state(branch, BranchState::waiting);
  branch.waits_since = now_;
  long_at_.emplace(now_ + kLongWait, branch.id);
  set_alarm(branch, std::min(branch.deadline, now_ + jittered(options_.lock_timeout, branch.xid)));
  break_circles(branch.id);
  return false;
}

void Branches::Impl::run(Branch& branch) {
  clear_alarm(branch);
  set_state(branch, BranchState::running);
  branch.handed = branch.at_work = true;
  emit(Run{branch.id, branch.xid, std::move(branch.work)});
}

void Branches::Impl::on(Ran event) {
  Branch* branch = find(event.branch);
  if (!branch || !branch->at_work) return;
  branch->at_work = false;
  branch->wrote = branch->wrote || event.wrote;
  branch->frees = event.frees;
  if (branch->state == BranchState::rolling_back) return finish_rollback(*branch);
  if (event.code != Xa::ok) return ran_badly(*branch, event);
  if (now_ >= branch->deadline) {
    answer_asked(*branch, Xa::rbtimeout, "the transaction's time was over when its work was done");
    ++counts_.rolled_back;
    return discard(*branch);
  }
  branch->results = std::move(event.results);
  switch (branch->then) {
    case Then::nothing:
      set_state(*branch, BranchState::active);
      set_alarm(*branch, branch->deadline);
      ++branch->work_items;
      answer_asked(*branch, Xa::ok);
      return work_done(*branch);
    case Then::prepare: return vote(*branch);
    case Then::commit_one_phase: return commit_one_phase(*branch);
  }
}

// Work that failed keeps its locks until Rollback: others of the transaction may still be at work
// (rule 11). In a one-phase commit there are no others, and the answer is the end (XA C193,
// xa_commit).
void Branches::Impl::ran_badly(Branch& branch, Ran& ran) {
  TWOFOLD_CHECK(is_rollback(ran.code));
  if (branch.interactive) branch.no = No{ran.code, ran.text, ran.refusals};
  answer_asked(branch, ran.code, std::move(ran.text), false, std::move(ran.refusals));
  if (branch.then != Then::commit_one_phase) {
    set_state(branch, BranchState::rollback_only);
    return drop_items(branch, Xa::rbrollback, "an earlier work of this branch failed");
  }
  ++counts_.rolled_back;
  discard(branch);
}

// It can only be rolled back, and lets go of everything at once: nothing that it has read or
// written will be committed, so rule 11 has nothing to protect.
void Branches::Impl::doom(Branch& branch, Xa code, std::string text) {
  branch.no = No{code, text, {}};
  answer_asked(branch, code, text);
  drop_items(branch, code, text);
  if (std::exchange(branch.handed, false)) emit(Discard{branch.id});
  release_locks(branch);
  clear_alarm(branch);
  set_state(branch, BranchState::rollback_only);
}

void Branches::Impl::vote(Branch& branch) {
  clear_alarm(branch);
  if (!branch.wrote && branch.read_only_vote) {
    set_state(branch, BranchState::read_only);
    ++counts_.read_only;
    if (TWOFOLD_PLANTED(reader_releases_at_its_vote)) release_locks(branch);
    return answer_asked(branch, Xa::rdonly);
  }
  if (lacks_room(branch)) return vote_no_room(branch);
  set_state(branch, BranchState::preparing);
  branch.ticket = make_ticket(branch.id, TicketKind::prepare);
  branch.handed = true;  // by this, if it has done nothing
  PersistPrepare prepare{branch.ticket, branch.id, branch.xid, locks_.locks_of(branch.id)};
  if (branch.interactive) normalise(prepare.locks);
  emit(std::move(prepare));
  if (TWOFOLD_PLANTED(vote_before_durable)) answer_asked(branch, Xa::ok);
}

// What makes room must go on without it; how far is for the adapter to say, by Refused.
bool Branches::Impl::lacks_room(const Branch& branch) const {
  return branch.wrote && !branch.frees && !room_;
}

void Branches::Impl::vote_no_room(Branch& branch) {
  set_state(branch, BranchState::rollback_only);
  answer_asked(branch, Xa::rbother, std::string{kNoRoom}, true);
}

void Branches::Impl::prepared(Branch& branch) {
  set_state(branch, BranchState::prepared);
  branch.since = now_;
  ++counts_.voted_yes;
  if (TWOFOLD_PLANTED(locks_freed_at_the_vote)) release_locks(branch);
  answer_asked(branch, Xa::ok);
}

// Rule 13: the prepared record is durable and the commit is queued in this very step, so whoever
// gets a lock now reads the applied value, and whatever he writes is queued, and so durable, after
// it. With the locks gone and nobody waiting for the end, the record need not be forced at once.
void Branches::Impl::commit_prepared(Branch& branch, bool awaited) {
  set_state(branch, BranchState::committing);
  branch.ticket = make_ticket(branch.id, TicketKind::commit);
  emit(PersistCommit{branch.ticket, branch.id, branch.xid, false,
                     options_.early_release && !awaited});
#ifdef TWOFOLD_PLANTED_BUGS
  if (planted("unlocked_before_it_is_queued")) {
    late_.push_back(std::get<PersistCommit>(effects_->back()));
    effects_->pop_back();
  }
#endif
  if (options_.early_release) release_locks(branch);
}

// Not early: nothing of this branch is durable, and its commit may still be refused (rule 13).
void Branches::Impl::commit_one_phase(Branch& branch) {
  clear_alarm(branch);
  if (!branch.wrote) {
    ++counts_.committed_one_phase;
    answer_asked(branch, Xa::ok);
    return discard(branch);
  }
  if (lacks_room(branch)) {
    answer_asked(branch, Xa::rbother, std::string{kNoRoom}, true);
    ++counts_.rolled_back;
    return discard(branch);
  }
  branch.then = Then::commit_one_phase;
  set_state(branch, BranchState::committing);
  branch.ticket = make_ticket(branch.id, TicketKind::commit);
  emit(PersistCommit{branch.ticket, branch.id, branch.xid, true, false});
  if (TWOFOLD_PLANTED(one_phase_releases_early)) release_locks(branch);
}

void Branches::Impl::committed(Branch& branch) {
  ++(branch.then == Then::commit_one_phase ? counts_.committed_one_phase : counts_.committed);
  answer_asked(branch, Xa::ok);
  answer_closing(branch, Xa::ok);
  end(branch);
}

// The record is not forced and the answer does not wait for it (rule 4). Safe, because the log's
// order is the order of these effects: whatever the next holder of these locks writes comes after
// this record. If a crash loses the record, it has lost all of that as well, and the branch is
// prepared again with its locks, until the coordinator's scan rolls it back again.
void Branches::Impl::roll_back_prepared(Branch& branch) {
  newest_rollback_ = make_ticket(branch.id, TicketKind::rollback);
  emit(PersistRollback{newest_rollback_, branch.id, branch.xid});
  ++counts_.rolled_back;
  answer_asked(branch, Xa::rbrollback, "rolled back before its vote");
  answer_closing(branch, Xa::ok);
  end(branch);
}

// The verb that a Rollback or a session's end had to wait for has ended, with nothing durable.
void Branches::Impl::finish_rollback(Branch& branch) {
  ++counts_.rolled_back;
  answer_asked(branch, Xa::rbrollback, "rolled back before its vote");
  answer_closing(branch, Xa::ok);
  discard(branch);
}

void Branches::Impl::on(Persisted event) {
  if (ticket_kind(event.ticket) == TicketKind::node) {
    for (auto& [name, node] : nodes_) {
      if (node.ticket != event.ticket) continue;
      node.ticket = 0;
      accept_ = true;
    }
    return;
  }
  if (ticket_kind(event.ticket) == TicketKind::rollback) return rollback_durable(event.ticket);
  Branch* branch = find(ticket_branch(event.ticket));
  if (!branch || branch->ticket != event.ticket) return;
  branch->ticket = 0;
  verb_ended(*branch);
  switch (branch->state) {
    case BranchState::preparing: return prepared(*branch);
    case BranchState::committing: return committed(*branch);
    case BranchState::rolling_back: return roll_back_prepared(*branch);
    case BranchState::waiting:
    case BranchState::running:
    case BranchState::active:
    case BranchState::read_only:
    case BranchState::rollback_only:
    case BranchState::prepared: TWOFOLD_CHECK(!"a ticket without a verb");
  }
}

void Branches::Impl::on(Refused event) {
  Branch* branch = find(ticket_branch(event.ticket));
  if (!branch || branch->ticket != event.ticket) return;
  branch->ticket = 0;
  if (branch->state == BranchState::rolling_back) return finish_rollback(*branch);
  if (branch->state == BranchState::preparing) {
    if (!branch->busy) return vote_no_room(*branch);
    // Its session has ended, and an unvoted branch ends with that.
    answer_asked(*branch, Xa::rbother, std::string{kNoRoom}, true);
  } else {
    // Only a prepare and a one-phase commit may be refused (rule 23).
    TWOFOLD_CHECK(branch->then == Then::commit_one_phase);
    answer_asked(*branch, Xa::rbother, std::string{kNoRoom}, true);
    answer_closing(*branch, Xa::rbother, kNoRoom, true);
  }
  ++counts_.rolled_back;
  discard(*branch);
}

void Branches::Impl::on(SpaceChanged event) {
  room_ = event.room;
}

// ---- bookkeeping ------------------------------------------------------------------------------

void Branches::Impl::set_state(Branch& branch, BranchState state) {
  if (branch.state == BranchState::waiting && state != BranchState::waiting) {
    long_at_.erase({branch.waits_since + kLongWait, branch.id});
  }
  counts_.waiting -= branch.state == BranchState::waiting;
  counts_.prepared -= branch.state == BranchState::prepared;
  branch.state = state;
  counts_.waiting += state == BranchState::waiting;
  counts_.prepared += state == BranchState::prepared;
}

void Branches::Impl::set_alarm(Branch& branch, Time at) {
  clear_alarm(branch);
  branch.alarm = at;
  deadlines_.emplace(at, branch.id);
}

void Branches::Impl::clear_alarm(Branch& branch) {
  if (!branch.alarm) return;
  deadlines_.erase({*branch.alarm, branch.id});
  branch.alarm.reset();
}

void Branches::Impl::verb_ended(Branch& branch) {
  if (!branch.busy) return;
  branch.busy = false;
  --branch.node->busy;
  accept_ = true;
}

void Branches::Impl::release_locks(Branch& branch) {
  locks_.release(branch.id, now_, ready_);
}

void Branches::Impl::discard(Branch& branch) {
  if (branch.handed) emit(Discard{branch.id});
  end(branch);
}

void Branches::Impl::end(Branch& branch) {
  if (branch.interactive) leave_threads(branch);
  release_locks(branch);
  clear_alarm(branch);
  verb_ended(branch);
  set_state(branch, BranchState::rolling_back);  // counted as neither waiting nor prepared
  auto [first, last] = by_gtrid_.equal_range(branch.xid.gtrid);
  by_gtrid_.erase(std::find_if(first, last, [&](auto& one) { return one.second == &branch; }));
  const auto at = by_id_.find(branch.id);
  const auto place = at->second;
  by_id_.erase(at);
  branch.node->branches.erase(place);
}

// At the end of the step, so that the effect that frees a lock comes before the work that takes it,
// and a branch that was granted its locks and ended in one step does not run.
void Branches::Impl::run_ready() {
  for (const BranchId id : ready_) {
    Branch* branch = find(id);  // not if it has ended in this very step, or waits for more by now
    if (branch && branch->state == BranchState::waiting && !locks_.waiting(id)) run(*branch);
  }
  ready_.clear();
}

Branch* Branches::Impl::find(BranchId id) {
  auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &*at->second;
}

const Branch* Branches::Impl::find(BranchId id) const {
  auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &*at->second;
}

Branch* Branches::Impl::find(const Xid& xid) {
  auto [first, last] = by_gtrid_.equal_range(xid.gtrid);
  auto at = std::find_if(first, last, [&](auto& one) { return one.second->xid == xid; });
  return at == last ? nullptr : at->second;
}

}  // namespace twofold::resource_manager
