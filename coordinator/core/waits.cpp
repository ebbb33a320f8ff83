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
    if (undecided(wait.waiter)) rm.waits.emplace(wait.waiter, wait.holder);
  }
  std::vector<TxnId> waiters;  // aborting changes the tables
  for (const auto& [waiter, holder] : rm.waits) {
    if (waiters.empty() || waiters.back() != waiter) waiters.push_back(waiter);
  }
  for (const TxnId waiter : waiters) {
    while (undecided(waiter)) {
      const std::vector<TxnId> circle = circle_of(waiter);
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

bool Coordinator::Impl::undecided(TxnId id) const {
  const Transaction* txn = live(id);
  if (!txn) return false;
  switch (txn->phase) {
    case Phase::active:
    case Phase::working:
    case Phase::preparing:
    case Phase::releasing: return true;
    case Phase::intending:  // nothing was sent, or a one-phase commit, which holds nothing
                            // elsewhere
    case Phase::deciding:
    case Phase::refusing:
    case Phase::one_phase:
    case Phase::resolving:
    case Phase::committing:
    case Phase::aborting:
    case Phase::ended: return false;
  }
  return false;
}

std::vector<TxnId> Coordinator::Impl::holders_for(TxnId waiter) const {
  std::vector<TxnId> found;
  for (const ResourceManager& rm : rms_) {
    const auto [first, last] = rm.waits.equal_range(waiter);
    for (auto at = first; at != last; ++at) found.push_back(at->second);
  }
  return found;
}

// Of undecided transactions only: a decided one lets go by itself.
std::vector<TxnId> Coordinator::Impl::circle_of(TxnId waiter) const {
  std::map<TxnId, TxnId> reached_from;
  std::vector<TxnId> todo{waiter};
  while (!todo.empty()) {
    const TxnId at = todo.back();
    todo.pop_back();
    for (const TxnId next : holders_for(at)) {
      if (next == waiter) {
        std::vector<TxnId> circle{waiter};
        for (TxnId one = at; one != waiter; one = reached_from.at(one)) circle.push_back(one);
        return circle;
      }
      if (undecided(next) && reached_from.emplace(next, at).second) todo.push_back(next);
    }
  }
  return {};
}

}  // namespace twofold::coordinator
