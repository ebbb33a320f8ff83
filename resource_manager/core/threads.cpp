// What clients do in an interactive branch. The coordinator has started it, in its own session,
// which owns it; clients only join (rule 10). A thread of control joins, works and ends its part,
// or suspends it and resumes it later (XA C193, xa_start and xa_end). Whatever threads ask for is
// done one after the other, in the order of arrival, so that frames may be sent without waiting for
// the answers to those before.
#include "resource_manager/core/branches_impl.h"

namespace twofold::resource_manager {

namespace {

// Whoever comes after the work that failed is told why, too.
std::string rollback_only(const Branch& branch) {
  std::string text = "the branch can only be rolled back";
  if (!branch.no) return text;
  if (!branch.no->text.empty()) return text + ": " + branch.no->text;
  return text + ": an earlier work was refused (" + std::string(name(branch.no->code)) + ")";
}

}  // namespace

// Answers by itself, and returns null, what a client can have no part in.
Branch* Branches::Impl::client_target(const Requester& requester, const Xid& xid) {
  Branch* branch = find(xid);
  if (!branch) {
    answer(requester, Xa::er_nota,
           "no such branch here: its transaction has ended, or it was never enlisted");
    return nullptr;
  }
  if (branch->busy) {
    answer(requester, Xa::retry, "the branch's session has ended, and a verb is still at work");
    return nullptr;
  }
  if (!branch->interactive) {
    answer(requester, Xa::er_proto, "this branch was submitted whole: nobody can join it");
    return nullptr;
  }
  return branch;
}

void Branches::Impl::on(Join event) {
  Item item;
  item.kind = event.resume ? Item::Kind::resume : Item::Kind::join;
  item.requester = event.requester;
  item.thread = {event.requester.connection, event.thread};
  take(event.xid, std::move(item));
}

void Branches::Impl::on(Execute event) {
  Item item;
  item.requester = event.requester;
  item.thread = {event.requester.connection, event.thread};
  item.work = std::move(event.work);
  item.locks = std::move(event.locks);
  item.invalid = std::move(event.invalid);
  take(event.xid, std::move(item));
}

void Branches::Impl::on(End event) {
  Item item;
  item.kind = Item::Kind::end;
  item.requester = event.requester;
  item.thread = {event.requester.connection, event.thread};
  item.flag = event.flag;
  take(event.xid, std::move(item));
}

// ---- one after the other ------------------------------------------------------------------------

// What comes while work is under way is looked at when that is done.
void Branches::Impl::take(const Xid& xid, Item item) {
  Branch* branch = client_target(item.requester, xid);
  if (!branch) return;
  if (branch->state != BranchState::waiting && branch->state != BranchState::running) {
    return carry_out(*branch, item);
  }
  if (branch->items.size() >= options_.items_max) {
    return answer(item.requester, Xa::retry,
                  std::to_string(options_.items_max) +
                      " requests wait for this branch already: send fewer at once");
  }
  branch->clients.insert(item.thread.connection);
  clients_[item.thread.connection].insert(branch->id);
  branch->items.push_back(std::move(item));
}

// Unless work is under way.
void Branches::Impl::next_item(Branch& branch) {
  while (branch.state == BranchState::active && !branch.items.empty()) {
    Item item = std::move(branch.items.front());
    branch.items.pop_front();
    carry_out(branch, item);
  }
}

void Branches::Impl::carry_out(Branch& branch, Item& item) {
  switch (branch.state) {
    case BranchState::active: break;
    case BranchState::rollback_only:
    case BranchState::rolling_back:
      if (item.kind == Item::Kind::end) return end_part(branch, item);
      return answer(item.requester, Xa::rbrollback, rollback_only(branch));
    case BranchState::waiting:
    case BranchState::running:
    case BranchState::read_only:
    case BranchState::preparing:
    case BranchState::prepared:
    case BranchState::committing: return wrong_state(item.requester, "a client's verb", branch);
  }
  switch (item.kind) {
    case Item::Kind::join:
    case Item::Kind::resume: return join(branch, item);
    case Item::Kind::work: return begin_work(branch, item);
    case Item::Kind::end: return end_part(branch, item);
  }
}

void Branches::Impl::join(Branch& branch, const Item& item) {
  const bool resume = item.kind == Item::Kind::resume;
  if (threads_.contains(item.thread)) {
    return answer(item.requester, Xa::er_proto,
                  "this thread has joined a branch here already: end or suspend its part first");
  }
  if (resume != branch.suspended.contains(item.thread)) {
    return answer(item.requester, Xa::er_proto,
                  resume ? "this thread has not suspended its part of the branch"
                         : "this thread has suspended its part: resume it");
  }
  branch.suspended.erase(item.thread);
  branch.joined.insert(item.thread);
  threads_.emplace(item.thread, branch.id);
  branch.clients.insert(item.thread.connection);
  clients_[item.thread.connection].insert(branch.id);
  answer(item.requester, Xa::ok);
}

void Branches::Impl::begin_work(Branch& branch, Item& item) {
  if (!branch.joined.contains(item.thread)) {
    return answer(item.requester, Xa::er_proto, "this thread has not joined the branch");
  }
  branch.asked = item.requester;
  const std::size_t locks = more_locks(branch, item.locks);
  if (locks > options_.locks_max) item.invalid.push_back(too_many_locks(locks));
  if (!item.invalid.empty()) {
    Ran ran{branch.id, Xa::rbintegrity, {}, std::move(item.invalid), {}, false};
    return ran_badly(branch, ran);
  }
  branch.work = std::move(item.work);
  branch.locks = std::move(item.locks);
  if (acquire(branch)) run(branch);
}

// How many it will have with these.
std::size_t Branches::Impl::more_locks(const Branch& branch,
                                       const std::vector<LockRequest>& locks) const {
  const std::vector<LockRequest> held = locks_.locks_of(branch.id);
  if (held.size() + locks.size() <= options_.locks_max) return held.size() + locks.size();
  std::set<std::string_view> keys;
  for (const LockRequest& lock : held) keys.insert(lock.key);
  for (const LockRequest& lock : locks) keys.insert(lock.key);
  return keys.size();
}

void Branches::Impl::work_done(Branch& branch) {
  if (branch.interactive) next_item(branch);
}

// C193, xa_end: the thread's part is over whatever the answer.
void Branches::Impl::end_part(Branch& branch, const Item& item) {
  const bool joined = branch.joined.erase(item.thread) > 0;
  if (joined) threads_.erase(item.thread);
  const bool suspended = item.flag != End::Flag::suspend && branch.suspended.erase(item.thread) > 0;
  if (!joined && !suspended) {
    return answer(item.requester, Xa::er_proto, "this thread has not joined the branch");
  }
  if (branch.state != BranchState::active) {
    return answer(item.requester, Xa::rbrollback, rollback_only(branch));
  }
  if (item.flag == End::Flag::suspend) branch.suspended.insert(item.thread);
  answer(item.requester, Xa::ok);
  if (item.flag != End::Flag::fail) return;
  clear_alarm(branch);
  branch.no = No{Xa::rbrollback, "a client ended its part of the branch as failed", {}};
  set_state(branch, BranchState::rollback_only);  // its locks stay until Rollback (rule 11)
  drop_items(branch, Xa::rbrollback, branch.no->text);
}

// Nothing more is done in this branch.
void Branches::Impl::drop_items(Branch& branch, Xa code, const std::string& text) {
  for (const Item& item : std::exchange(branch.items, {})) {
    if (item.kind == Item::Kind::end) {
      branch.suspended.erase(item.thread);
      if (branch.joined.erase(item.thread) > 0) threads_.erase(item.thread);
    }
    answer(item.requester, code, text);
  }
}

// The branch ends: with a rollback, unless all its threads have ended their parts.
void Branches::Impl::leave_threads(Branch& branch) {
  answer_asked(branch, Xa::rbrollback, "the branch was rolled back");
  drop_items(branch, Xa::rbrollback, "the branch was rolled back");
  for (const Thread& thread : branch.joined) threads_.erase(thread);
  for (const ConnectionId client : branch.clients) {
    const auto at = clients_.find(client);
    if (at == clients_.end()) continue;  // gone already
    at->second.erase(branch.id);
    if (at->second.empty()) clients_.erase(at);
  }
}

// ---- a connection that is gone ------------------------------------------------------------------

// Its waiting work is given up, and that is all (rule 10): what it lost of its answers, the count
// of work items at the vote will tell.
void Branches::Impl::client_gone(ConnectionId connection) {
  const auto at = clients_.find(connection);
  if (at == clients_.end()) return;
  const std::set<BranchId> branches = std::move(at->second);
  clients_.erase(at);
  for (const BranchId id : branches) {
    if (Branch* branch = find(id)) client_gone(*branch, connection);
  }
}

void Branches::Impl::client_gone(Branch& branch, ConnectionId connection) {
  const auto of_connection = [connection](const Thread& thread) {
    return thread.connection == connection;
  };
  for (const Thread& thread : branch.joined) {
    if (of_connection(thread)) threads_.erase(thread);
  }
  std::erase_if(branch.joined, of_connection);
  std::erase_if(branch.suspended, of_connection);
  std::erase_if(branch.items, [&](const Item& item) { return of_connection(item.thread); });
  if (!branch.asked || branch.asked->connection != connection) return;
  branch.asked.reset();  // work that runs is done, and counted
  if (branch.state != BranchState::waiting) return;
  locks_.withdraw(branch.id, now_, ready_);
  set_state(branch, BranchState::active);
  set_alarm(branch, branch.deadline);
  next_item(branch);
}

}  // namespace twofold::resource_manager
