// What clients do in an interactive branch. The coordinator has started it, in its own session,
// which owns it; clients only join (rule 10). A thread of control joins, works and ends its part,
// or suspends it and resumes it later (XA C193, xa_start and xa_end). Whatever threads ask for is
// done one after the other, in the order of arrival, so that frames may be sent without waiting for
// the answers to those before.
#include "resource_manager/core/branches_impl.h"

namespace twofold::resource_manager {

namespace {

constexpr std::string_view kRollbackOnly = "the branch can only be rolled back";

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
  Branch* branch = client_target(event.requester, event.xid);
  if (!branch) return;
  const Thread thread{event.requester.connection, event.thread};
  switch (branch->state) {
    case BranchState::rollback_only:
      return answer(event.requester, Xa::rbrollback, std::string{kRollbackOnly});
    case BranchState::waiting:
    case BranchState::running:
    case BranchState::active: break;
    case BranchState::read_only:
    case BranchState::preparing:
    case BranchState::prepared:
    case BranchState::committing:
    case BranchState::rolling_back: return wrong_state(event.requester, "join", *branch);
  }
  if (threads_.contains(thread)) {
    return answer(event.requester, Xa::er_proto,
                  "this thread has joined a branch here already: end or suspend its part first");
  }
  if (event.resume != branch->suspended.contains(thread)) {
    return answer(event.requester, Xa::er_proto,
                  event.resume ? "this thread has not suspended its part of the branch"
                               : "this thread has suspended its part: resume it");
  }
  branch->suspended.erase(thread);
  branch->joined.insert(thread);
  threads_.emplace(thread, branch->id);
  branch->clients.insert(thread.connection);
  clients_[thread.connection].insert(branch->id);
  answer(event.requester, Xa::ok);
}

void Branches::Impl::on(Execute event) {
  Branch* branch = client_target(event.requester, event.xid);
  if (!branch) return;
  const Thread thread{event.requester.connection, event.thread};
  if (!branch->joined.contains(thread)) {
    return answer(event.requester, Xa::er_proto, "this thread has not joined the branch");
  }
  switch (branch->state) {
    case BranchState::rollback_only:
      return answer(event.requester, Xa::rbrollback, std::string{kRollbackOnly});
    case BranchState::waiting:
    case BranchState::running:
    case BranchState::active:
      branch->items.push_back({event.requester, thread, std::nullopt, std::move(event.work),
                               std::move(event.locks), std::move(event.invalid)});
      return next_item(*branch);
    case BranchState::read_only:
    case BranchState::preparing:
    case BranchState::prepared:
    case BranchState::committing:
    case BranchState::rolling_back: return wrong_state(event.requester, "work", *branch);
  }
}

void Branches::Impl::on(End event) {
  Branch* branch = client_target(event.requester, event.xid);
  if (!branch) return;
  const Thread thread{event.requester.connection, event.thread};
  const bool joined = branch->joined.contains(thread);
  if (!joined && (event.flag == End::Flag::suspend || !branch->suspended.contains(thread))) {
    return answer(event.requester, Xa::er_proto, "this thread has not joined the branch");
  }
  Item item{event.requester, thread, event.flag, {}, {}, {}};
  if (branch->state == BranchState::waiting || branch->state == BranchState::running) {
    branch->items.push_back(std::move(item));  // behind the work that came before
  } else {
    end_part(*branch, item);
  }
}

// ---- one after the other ------------------------------------------------------------------------

// Unless one is under way. An end of a part is done at once; work goes on until its Ran.
void Branches::Impl::next_item(Branch& branch) {
  while (branch.state == BranchState::active && !branch.items.empty()) {
    Item item = std::move(branch.items.front());
    branch.items.pop_front();
    if (!item.end) return begin_work(branch, item);
    end_part(branch, item);
  }
}

void Branches::Impl::begin_work(Branch& branch, Item& item) {
  branch.asked = item.requester;
  const std::size_t locks = locks_.locks_of(branch.id).size() + item.locks.size();
  if (locks > options_.locks_max) item.invalid.push_back(too_many_locks(locks));
  if (!item.invalid.empty()) {
    Ran ran{branch.id, Xa::rbintegrity, {}, std::move(item.invalid), {}, false};
    return ran_badly(branch, ran);
  }
  branch.work = std::move(item.work);
  branch.locks = std::move(item.locks);
  if (acquire(branch)) run(branch);
}

void Branches::Impl::work_done(Branch& branch) {
  if (branch.interactive) next_item(branch);
}

// C193, xa_end: the thread's part is over whatever the answer.
void Branches::Impl::end_part(Branch& branch, const Item& item) {
  branch.suspended.erase(item.thread);
  if (branch.joined.erase(item.thread) > 0) threads_.erase(item.thread);
  if (branch.state == BranchState::rollback_only) {
    return answer(item.requester, Xa::rbrollback, std::string{kRollbackOnly});
  }
  if (*item.end == End::Flag::suspend) branch.suspended.insert(item.thread);
  if (*item.end == End::Flag::fail && branch.state == BranchState::active) {
    clear_alarm(branch);
    branch.no = No{Xa::rbrollback, "a client ended its part of the branch as failed", {}};
    set_state(branch, BranchState::rollback_only);  // its locks stay until Rollback (rule 11)
    answer(item.requester, Xa::ok);
    return drop_items(branch, Xa::rbrollback, branch.no->text);
  }
  answer(item.requester, Xa::ok);
}

// Nothing more is done in this branch.
void Branches::Impl::drop_items(Branch& branch, Xa code, const std::string& text) {
  for (const Item& item : std::exchange(branch.items, {})) {
    if (item.end) {
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
