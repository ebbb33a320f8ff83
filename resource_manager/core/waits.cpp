// Deadlocks (rule 12). A circle of waits within this resource manager is found when it closes, and
// its youngest waiter ended. For circles across resource managers, waits that last are told to the
// coordinator, which sees all of them.
#include <algorithm>
#include <tuple>

#include "resource_manager/core/branches_impl.h"

namespace twofold::resource_manager {

// ---- for people ---------------------------------------------------------------------------------

namespace {

// As `twofold show` takes it, if it is a transaction of the same coordinator as `seen_by`.
std::string transaction_text(const Xid& xid, const Xid& seen_by) {
  const std::optional<Gtrid> gtrid = Gtrid::decode(xid.gtrid);
  const std::optional<Gtrid> own = Gtrid::decode(seen_by.gtrid);
  if (!gtrid || !own) return to_text(xid);
  std::string text = to_text(gtrid->txn_id());
  return gtrid->node == own->node ? text : text + " of node " + gtrid->node;
}

}  // namespace

// Empty: it waits for nothing.
std::string Branches::Impl::describe_blocker(const Branch& branch) const {
  const std::optional<LockTable::Wait> wait = locks_.first_wait(branch.id);
  if (!wait) return {};
  std::string text = "key \"" + wait->key + "\"";
  const Branch* holder = find(wait->holder);
  if (!holder) return text;
  return text + ", held by " + transaction_text(holder->xid, branch.xid) + " (" +
         std::string{name(holder->state)} + ")";
}

std::string Branches::Impl::describe_wait(const Branch& branch) const {
  const auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(now_ - branch.waits_since);
  const std::string blocker = describe_blocker(branch);
  const std::string text = "waited " + std::to_string(waited.count()) + " ms for ";
  if (blocker.empty()) return text + "its locks: retry";
  return text + blocker + ": retry, or look at its locks";
}

// ---- within this resource manager ---------------------------------------------------------------

// One wait can close several circles; each loses one.
void Branches::Impl::break_circles(BranchId id) {
  for (;;) {
    Branch* waiter = find(id);
    if (!waiter || waiter->state != BranchState::waiting || !locks_.waiting(id)) return;
    // Only who holds something, or has a sibling that does, can be waited for.
    if (!waiter->interactive && by_gtrid_.count(waiter->xid.gtrid) < 2) return;
    const Circle circle = circle_of(*waiter);
    if (circle.own) return end_victim(*waiter, *waiter);
    if (circle.waiters.empty()) return;
    Branch* const victim = *std::max_element(
        circle.waiters.begin(), circle.waiters.end(),
        [](Branch* a, Branch* b) { return std::tie(a->born, a->xid) < std::tie(b->born, b->xid); });
    end_victim(*victim, *waiter);
  }
}

// Searched by transaction: who waits for one of a transaction's branches waits for what that
// transaction's other branches here wait for, too.
Branches::Impl::Circle Branches::Impl::circle_of(Branch& waiter) {
  std::unordered_map<const Branch*, Branch*> reached_from{{&waiter, nullptr}};
  std::vector<Branch*> to_visit{&waiter};
  while (!to_visit.empty()) {
    Branch* const at = to_visit.back();
    to_visit.pop_back();
    for (const BranchId id : locks_.blockers(at->id)) {
      Branch* const blocker = find(id);
      if (!blocker) continue;
      if (blocker->xid.gtrid == waiter.xid.gtrid) {
        Circle circle{{}, blocker != &waiter};
        for (Branch* one = at; one; one = reached_from.at(one)) circle.waiters.push_back(one);
        return circle;
      }
      auto [first, last] = by_gtrid_.equal_range(blocker->xid.gtrid);
      for (; first != last; ++first) {
        Branch* const next = first->second;
        if (next->state != BranchState::waiting) continue;
        if (reached_from.emplace(next, at).second) to_visit.push_back(next);
      }
    }
  }
  return {};
}

void Branches::Impl::end_victim(Branch& victim, const Branch& waiter) {
  ++counts_.deadlocks;
  std::string text =
      &victim == &waiter && !victim.interactive
          ? "it waits for another branch of its own transaction here: put the work of both in one "
            "branch"
          : "deadlock: it waits for " + describe_blocker(victim) + ": try again";
  if (victim.interactive) return doom(victim, Xa::rbdeadlock, std::move(text));
  ++counts_.rolled_back;
  answer_asked(victim, Xa::rbdeadlock, std::move(text));
  discard(victim);
}

// ---- across resource managers -------------------------------------------------------------------

void Branches::Impl::note_long_wait(BranchId id, Time since) {
  Branch* branch = find(id);
  if (!branch || branch->state != BranchState::waiting || branch->waits_since != since) return;
  branch->node->long_waits.insert(id);
  branch->node->report_at = now_;
}

// While there are long waits they are looked at every kLongWait, since whom they wait for changes.
void Branches::Impl::report_waits() {
  for (auto& [name, node] : nodes_) {
    if (node.report_at && *node.report_at <= now_) report_waits(node);
  }
}

void Branches::Impl::report_waits(Node& node) {
  std::vector<WaitEdge> waits;
  for (auto at = node.long_waits.begin(); at != node.long_waits.end();) {
    const Branch* waiter = find(*at);
    if (!waiter || waiter->state != BranchState::waiting ||
        now_ - waiter->waits_since < kLongWait) {
      at = node.long_waits.erase(at);
      continue;
    }
    for (const BranchId id : locks_.blockers(*at)) {
      const Branch* blocker = find(id);
      if (blocker && blocker->node == &node && blocker->xid.gtrid != waiter->xid.gtrid) {
        waits.push_back({waiter->xid, blocker->xid});
      }
    }
    ++at;
  }
  node.report_at.reset();
  if (!node.long_waits.empty()) node.report_at = now_ + kLongWait;
  if (node.connection == 0 || waits == node.told_waits) return;
  node.told_waits = waits;
  emit(ReportWaits{node.connection, std::move(waits)});
}

}  // namespace twofold::resource_manager
