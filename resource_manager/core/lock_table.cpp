#include "resource_manager/core/lock_table.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "protocol/check.h"
#include "protocol/planted.h"

namespace twofold::resource_manager {

namespace {

std::uint64_t microseconds(Duration duration) {
  return duration.count() < 0 ? 0 : static_cast<std::uint64_t>(duration.count());
}

}  // namespace

void normalise(std::vector<LockRequest>& requests) {
  std::sort(requests.begin(), requests.end(), [](const LockRequest& a, const LockRequest& b) {
    return a.key != b.key ? a.key < b.key : a.mode > b.mode;
  });
  auto same_key = [](const LockRequest& a, const LockRequest& b) { return a.key == b.key; };
  requests.erase(std::unique(requests.begin(), requests.end(), same_key), requests.end());
}

struct LockTable::Impl {
  // One key's queue: first the holders, all of one mode, then those of them that wait for an
  // upgrade, then the waiters in order of arrival. There is a holder as long as there is anybody.
  struct Place : Held {
    bool upgrade = false;  // waits to be its only holder; has a place among the holders as well
  };
  struct Queue {
    std::string key;
    std::vector<Place> all;
    std::size_t holders = 0;
  };
  struct Lock {
    Queue* queue;
    LockMode mode;  // asked for
  };
  struct OwnerRecord {
    std::vector<Lock> locks;    // by key within one request
    std::size_t missing = 0;    // not granted yet
    std::uint64_t arrival = 0;  // the order of requests
  };

  Queue& queue_of(const std::string& key) {
    if (auto found = by_key.find(key); found != by_key.end()) return *found->second;
    if (unused.empty()) {
      unused.push_back(&queues.emplace_back());
    }
    Queue& queue = *unused.back();
    unused.pop_back();
    queue.key = key;
    by_key.emplace(queue.key, &queue);
    return queue;
  }

  static bool grantable(const Queue& queue, const Place& next) {
    if (queue.holders == 0) return true;
    const Held& first = queue.all.front();
    if (next.upgrade) return queue.holders == 1 && first.owner == next.owner;
    return next.mode == LockMode::shared && first.mode == LockMode::shared;
  }

  // Grants from the head of the waiters as far as it goes: one writer, or one batch of readers.
  void promote(Queue& queue, Time now, std::vector<Owner>& ready) {
    while (queue.holders < queue.all.size() && grantable(queue, queue.all[queue.holders])) {
      Place& next = queue.all[queue.holders];
      wait_us.record(microseconds(now - next.since));
      OwnerRecord& record = owners.at(next.owner);
      if (--record.missing == 0) ready.push_back(next.owner);
      if (next.upgrade) {
        queue.all.front().mode = LockMode::exclusive;
        erase(queue, queue.holders);
      } else {
        next.since = now;
        ++queue.holders;
      }
    }
  }

  static void erase(Queue& queue, std::size_t place) {
    queue.all.erase(queue.all.begin() + static_cast<std::ptrdiff_t>(place));
  }

  // The owner's first place from `from` on; the queue's size if it has none.
  static std::size_t place_of(const Queue& queue, Owner owner, std::size_t from = 0) {
    auto at = std::find_if(queue.all.begin() + static_cast<std::ptrdiff_t>(from), queue.all.end(),
                           [owner](const Place& place) { return place.owner == owner; });
    return static_cast<std::size_t>(at - queue.all.begin());
  }

  // False: it waits.
  bool enter(OwnerRecord& record, Owner owner, const LockRequest& request, Time now) {
    Queue& queue = queue_of(request.key);
    const std::size_t held = place_of(queue, owner);
    const bool upgrade = held < queue.all.size();
    if (!upgrade) {
      record.locks.push_back({&queue, request.mode});
    } else if (request.mode == LockMode::shared || queue.all[held].mode == LockMode::exclusive) {
      return true;  // it has what it asks for
    } else {
      lock_in(record, queue).mode = LockMode::exclusive;
    }
    Place place{{owner, request.mode, now}, upgrade};
    const bool barges = TWOFOLD_PLANTED(barging_readers) && request.mode == LockMode::shared;
    const bool first = upgrade || queue.holders == queue.all.size() || barges;
    if (first && grantable(queue, place)) {
      wait_us.record(0);
      if (upgrade) {
        queue.all[held].mode = LockMode::exclusive;
      } else {
        queue.all.insert(queue.all.begin() + static_cast<std::ptrdiff_t>(queue.holders), place);
        ++queue.holders;
      }
      return true;
    }
    std::size_t at = queue.all.size();
    if (upgrade) {  // behind the holders that wait for one already
      at = queue.holders;
      while (at < queue.all.size() && queue.all[at].upgrade) ++at;
    }
    queue.all.insert(queue.all.begin() + static_cast<std::ptrdiff_t>(at), place);
    ++record.missing;
    return false;
  }

  static Lock& lock_in(OwnerRecord& record, const Queue& queue) {
    auto at = std::find_if(record.locks.begin(), record.locks.end(),
                           [&](const Lock& lock) { return lock.queue == &queue; });
    TWOFOLD_CHECK(at != record.locks.end());
    return *at;
  }

  // Takes its waiting place away, then its held one, as far as it has them and `held` says.
  void leave(Queue& queue, Owner owner, bool held, Time now, std::vector<Owner>& ready) {
    if (const std::size_t at = place_of(queue, owner, queue.holders); at < queue.all.size()) {
      erase(queue, at);
    }
    if (const std::size_t at = place_of(queue, owner); held && at < queue.holders) {
      hold_us.record(microseconds(now - queue.all[at].since));
      --queue.holders;
      erase(queue, at);
    }
    if (queue.all.empty()) {
      by_key.erase(queue.key);
      unused.push_back(&queue);
    } else {
      promote(queue, now, ready);
    }
  }

  void sort_ready(std::vector<Owner>& ready, std::size_t first) const {
    std::sort(ready.begin() + static_cast<std::ptrdiff_t>(first), ready.end(),
              [this](Owner a, Owner b) { return owners.at(a).arrival < owners.at(b).arrival; });
  }

  // Those right before the waiter at `place` that it may not pass: one writer or one batch of
  // readers. Fellow readers, which will be granted together with a reader, are passed over.
  static void add_blockers(const Queue& queue, std::size_t place, std::vector<Owner>& found) {
    const Place& waiter = queue.all[place];
    if (waiter.upgrade) {  // all other holders
      for (std::size_t i = 0; i < queue.holders; ++i) {
        if (queue.all[i].owner != waiter.owner) found.push_back(queue.all[i].owner);
      }
      return;
    }
    std::size_t at = place;
    if (waiter.mode == LockMode::shared) {
      while (at > 0 && queue.all[at - 1].mode == LockMode::shared) --at;
    }
    if (at == 0) return;
    found.push_back(queue.all[--at].owner);
    if (queue.all[at].mode == LockMode::exclusive) return;
    while (at > 0 && queue.all[at - 1].mode == LockMode::shared) {
      found.push_back(queue.all[--at].owner);
    }
  }

  // Queues are reused with the memory of their vectors and keys; a deque keeps their addresses.
  std::deque<Queue> queues;
  std::vector<Queue*> unused;
  std::unordered_map<std::string_view, Queue*> by_key;  // views of Queue::key
  std::unordered_map<Owner, OwnerRecord> owners;
  std::uint64_t arrivals = 0;
  bool requested = false;
  Histogram hold_us;
  Histogram wait_us;
};

LockTable::LockTable() : impl_(std::make_unique<Impl>()) {}
LockTable::~LockTable() = default;

bool LockTable::request(Owner owner, std::span<const LockRequest> requests, Time now) {
  impl_->requested = true;
  Impl::OwnerRecord& record = impl_->owners[owner];
  TWOFOLD_CHECK(record.missing == 0);
  record.arrival = ++impl_->arrivals;
  record.locks.reserve(record.locks.size() + requests.size());
  for (const LockRequest& request : requests) impl_->enter(record, owner, request, now);
  return record.missing == 0;
}

void LockTable::reinstate(Owner owner, std::span<const LockRequest> requests, Time now) {
  TWOFOLD_CHECK(!impl_->requested);
  auto [at, fresh] = impl_->owners.try_emplace(owner);
  TWOFOLD_CHECK(fresh);
  at->second.arrival = ++impl_->arrivals;
  for (const LockRequest& request : requests) {
    Impl::Queue& queue = impl_->queue_of(request.key);
    const Impl::Place place{{owner, request.mode, now}, false};
    TWOFOLD_CHECK(Impl::grantable(queue, place));
    at->second.locks.push_back({&queue, request.mode});
    queue.all.push_back(place);
    ++queue.holders;
  }
}

void LockTable::release(Owner owner, Time now, std::vector<Owner>& ready) {
  auto at = impl_->owners.find(owner);
  if (at == impl_->owners.end()) return;
  const std::vector<Impl::Lock> locks = std::move(at->second.locks);
  impl_->owners.erase(at);
  const std::size_t first = ready.size();
  for (const Impl::Lock& lock : locks) impl_->leave(*lock.queue, owner, true, now, ready);
  impl_->sort_ready(ready, first);
}

void LockTable::withdraw(Owner owner, Time now, std::vector<Owner>& ready) {
  auto at = impl_->owners.find(owner);
  if (at == impl_->owners.end() || at->second.missing == 0) return;
  Impl::OwnerRecord& record = at->second;
  const std::size_t first = ready.size();
  std::erase_if(record.locks, [&](Impl::Lock& lock) {
    Impl::Queue& queue = *lock.queue;
    if (Impl::place_of(queue, owner, queue.holders) == queue.all.size()) return false;
    const bool upgrade = Impl::place_of(queue, owner) < queue.holders;
    lock.mode = LockMode::shared;
    impl_->leave(queue, owner, false, now, ready);
    return !upgrade;
  });
  record.missing = 0;
  impl_->sort_ready(ready, first);
}

bool LockTable::waiting(Owner owner) const {
  auto at = impl_->owners.find(owner);
  return at != impl_->owners.end() && at->second.missing > 0;
}

std::vector<LockTable::Owner> LockTable::blockers(Owner owner) const {
  std::vector<Owner> found;
  auto at = impl_->owners.find(owner);
  if (at == impl_->owners.end() || at->second.missing == 0) return found;
  for (const Impl::Lock& lock : at->second.locks) {
    const std::size_t place = Impl::place_of(*lock.queue, owner, lock.queue->holders);
    if (place < lock.queue->all.size()) Impl::add_blockers(*lock.queue, place, found);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::optional<LockTable::Wait> LockTable::first_wait(Owner owner) const {
  auto at = impl_->owners.find(owner);
  if (at == impl_->owners.end() || at->second.missing == 0) return std::nullopt;
  for (const Impl::Lock& lock : at->second.locks) {
    const Impl::Queue& queue = *lock.queue;
    if (Impl::place_of(queue, owner, queue.holders) == queue.all.size()) continue;
    const bool own = queue.all.front().owner == owner && queue.holders > 1;
    return Wait{queue.key, queue.all[own ? 1 : 0].owner};
  }
  return std::nullopt;
}

std::vector<LockRequest> LockTable::locks_of(Owner owner) const {
  std::vector<LockRequest> found;
  auto at = impl_->owners.find(owner);
  if (at == impl_->owners.end()) return found;
  found.reserve(at->second.locks.size());
  for (const Impl::Lock& lock : at->second.locks) found.push_back({lock.queue->key, lock.mode});
  return found;
}

std::vector<LockTable::Entry> LockTable::entries(std::size_t entries_max) const {
  std::vector<const Impl::Queue*> used;
  for (const Impl::Queue& queue : impl_->queues) {
    if (!queue.all.empty()) used.push_back(&queue);
  }
  const std::size_t count = std::min(entries_max, used.size());
  std::partial_sort(used.begin(), used.begin() + static_cast<std::ptrdiff_t>(count), used.end(),
                    [](const Impl::Queue* a, const Impl::Queue* b) { return a->key < b->key; });
  std::vector<Entry> found;
  found.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Impl::Queue& queue = *used[i];
    const auto middle = queue.all.begin() + static_cast<std::ptrdiff_t>(queue.holders);
    found.push_back({queue.key, {queue.all.begin(), middle}, {middle, queue.all.end()}});
  }
  return found;
}

std::size_t LockTable::keys() const {
  return impl_->by_key.size();
}
const Histogram& LockTable::hold_us() const {
  return impl_->hold_us;
}
const Histogram& LockTable::wait_us() const {
  return impl_->wait_us;
}

}  // namespace twofold::resource_manager
