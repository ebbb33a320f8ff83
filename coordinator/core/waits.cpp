// Deadlocks across resource managers (rule 12). Each resource manager reports the waits that last;
// together they show circles that none of them sees. A report may be out of date, and a circle then
// none any more: its victim has been aborted for nothing, and may try again.
#include <algorithm>
#include <tuple>

#include "coordinator/core/impl.h"

namespace twofold::coordinator {

void Coordinator::Impl::on(WaitsReported& event) {
  ResourceManager& rm = rms_[event.rm];
  rm.waits.clear();
  for (const Wait& wait : event.waits) {
    if (can_wait(wait.waiter)) rm.waits.emplace(wait.waiter, wait.holder);
  }
  // Every circle has an interactive one among its waiters: those that were submitted whole entered
  // all their queues at once, and in one order (rule 12).
  std::set<TxnId> waiters;  // aborting changes the tables
  for (const ResourceManager& one : rms_) {
    for (const auto& [waiter, holder] : one.waits) {
      if (is_undecided(waiter) && live(waiter)->interactive) waiters.insert(waiter);
    }
  }
  for (const TxnId waiter : waiters) {
    while (is_undecided(waiter)) {
      std::vector<TxnId> circle = circle_of(waiter);
      std::erase_if(circle, [this](TxnId id) { return !is_undecided(id); });
      if (circle.empty()) break;
      // The youngest by the age of its request's first attempt, so that one that was a victim
      // before grows old and gets through.
      const TxnId victim =
          *std::max_element(circle.begin(), circle.end(), [this](TxnId a, TxnId b) {
            const Transaction &one = *live(a), &other = *live(b);
            return std::tuple(one.started - one.age, a) < std::tuple(other.started - other.age, b);
          });
      std::string text = "deadlock across resource managers with";
      for (const TxnId id : circle) {
        if (id != victim) text += " " + to_text(id);
      }
      ++counts_.deadlocks;
      abort(*live(victim), Reason::deadlock, text + ": try again");
    }
  }
}

bool Coordinator::Impl::is_undecided(TxnId id) const {
  const Transaction* txn = live(id);
  return txn && undecided(*txn);
}

// A one-phase commit that brings its work may wait for locks as well, while it holds others; it
// cannot be aborted.
bool Coordinator::Impl::can_wait(TxnId id) const {
  const Transaction* txn = live(id);
  return txn && (txn->phase == Phase::one_phase || undecided(*txn));
}

std::vector<TxnId> Coordinator::Impl::holders_for(TxnId waiter) const {
  std::vector<TxnId> found;
  for (const ResourceManager& rm : rms_) {
    const auto [first, last] = rm.waits.equal_range(waiter);
    for (auto at = first; at != last; ++at) found.push_back(at->second);
  }
  return found;
}

// Of those that may wait themselves: the others let go by themselves.
std::vector<TxnId> Coordinator::Impl::circle_of(TxnId waiter) const {
  std::map<TxnId, TxnId> reached_from;
  std::vector<TxnId> to_visit{waiter};
  while (!to_visit.empty()) {
    const TxnId at = to_visit.back();
    to_visit.pop_back();
    for (const TxnId next : holders_for(at)) {
      if (next == waiter) {
        std::vector<TxnId> circle{waiter};
        for (TxnId one = at; one != waiter; one = reached_from.at(one)) circle.push_back(one);
        return circle;
      }
      if (can_wait(next) && reached_from.emplace(next, at).second) to_visit.push_back(next);
    }
  }
  return {};
}

}  // namespace twofold::coordinator
