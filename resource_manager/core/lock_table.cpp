#include "resource_manager/core/lock_table.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "protocol/check.h"

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
  // One key's queue: first the holders, all of one mode, then the waiters in order of arrival.
  // There is a holder as long as there is anybody.
  struct Queue {
    std::string key;
    std::vector<Held> all;
    std::size_t holders = 0;
  };
  struct Lock {
    Queue* queue;
    LockMode mode;
  };
  struct OwnerRecord {
    std::vector<Lock> locks;    // by key
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

  static bool grantable(const Queue& queue, LockMode mode) {
    if (queue.holders == 0) return true;
    return mode == LockMode::shared && queue.all.front().mode == LockMode::shared;
  }

  // Grants from the head of the waiters as far as it goes: one writer, or one batch of readers.
  void promote(Queue& queue, Time now, std::vector<Owner>& ready) {
    while (queue.holders < queue.all.size() && grantable(queue, queue.all[queue.holders].mode)) {
      Held& next = queue.all[queue.holders++];
      wait_us.record(microseconds(now - next.since));
      next.since = now;
      OwnerRecord& record = owners.at(next.owner);
      if (--record.missing == 0) ready.push_back(next.owner);
    }
  }

  // The place of `owner` in `queue`, which it is in.
  static std::size_t place_of(const Queue& queue, Owner owner) {
    auto at = std::find_if(queue.all.begin(), queue.all.end(),
                           [owner](const Held& held) { return held.owner == owner; });
    TWOFOLD_CHECK(at != queue.all.end());
    return static_cast<std::size_t>(at - queue.all.begin());
  }

  void leave(Queue& queue, Owner owner, Time now, std::vector<Owner>& ready) {
    const std::size_t place = place_of(queue, owner);
    if (place < queue.holders) {
      hold_us.record(microseconds(now - queue.all[place].since));
      --queue.holders;
    }
    queue.all.erase(queue.all.begin() + static_cast<std::ptrdiff_t>(place));
    if (queue.all.empty()) {
      by_key.erase(queue.key);
      unused.push_back(&queue);
    } else {
      promote(queue, now, ready);
    }
  }

  // How many at the head of the queue a waiter at `place` waits for: all before it, except the
  // readers right before a reader, which will be granted in one batch with it. A writer further
  // ahead waits for everybody before itself, so this waiter does too.
  static std::size_t ahead_of(const Queue& queue, std::size_t place) {
    std::size_t ahead = place;
    if (queue.all[place].mode == LockMode::shared) {
      while (ahead > 0 && queue.all[ahead - 1].mode == LockMode::shared) --ahead;
    }
    return ahead;
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
  auto [at, fresh] = impl_->owners.try_emplace(owner);
  TWOFOLD_CHECK(fresh);
  Impl::OwnerRecord& record = at->second;
  record.arrival = ++impl_->arrivals;
  record.locks.reserve(requests.size());
  for (const LockRequest& request : requests) {
    Impl::Queue& queue = impl_->queue_of(request.key);
    record.locks.push_back({&queue, request.mode});
    const bool granted = queue.holders == queue.all.size() && Impl::grantable(queue, request.mode);
    queue.all.push_back({owner, request.mode, now});
    if (granted) {
      ++queue.holders;
      impl_->wait_us.record(0);
    } else {
      ++record.missing;
    }
  }
  return record.missing == 0;
}

void LockTable::reinstate(Owner owner, std::span<const LockRequest> requests, Time now) {
  TWOFOLD_CHECK(!impl_->requested);
  auto [at, fresh] = impl_->owners.try_emplace(owner);
  TWOFOLD_CHECK(fresh);
  at->second.arrival = ++impl_->arrivals;
  for (const LockRequest& request : requests) {
    Impl::Queue& queue = impl_->queue_of(request.key);
    TWOFOLD_CHECK(Impl::grantable(queue, request.mode));
    at->second.locks.push_back({&queue, request.mode});
    queue.all.push_back({owner, request.mode, now});
    ++queue.holders;
  }
}

void LockTable::release(Owner owner, Time now, std::vector<Owner>& ready) {
  auto at = impl_->owners.find(owner);
  if (at == impl_->owners.end()) return;
  const std::vector<Impl::Lock> locks = std::move(at->second.locks);
  impl_->owners.erase(at);
  const auto first = static_cast<std::ptrdiff_t>(ready.size());
  for (const Impl::Lock& lock : locks) impl_->leave(*lock.queue, owner, now, ready);
  std::sort(ready.begin() + first, ready.end(), [this](Owner a, Owner b) {
    return impl_->owners.at(a).arrival < impl_->owners.at(b).arrival;
  });
}

bool LockTable::waiting(Owner owner) const {
  auto at = impl_->owners.find(owner);
  return at != impl_->owners.end() && at->second.missing > 0;
}

std::vector<LockTable::Owner> LockTable::waits_for(Owner owner) const {
  std::vector<Owner> found;
  auto at = impl_->owners.find(owner);
  if (at == impl_->owners.end() || at->second.missing == 0) return found;
  for (const Impl::Lock& lock : at->second.locks) {
    const std::size_t place = Impl::place_of(*lock.queue, owner);
    if (place < lock.queue->holders) continue;
    const std::size_t ahead = Impl::ahead_of(*lock.queue, place);
    for (std::size_t i = 0; i < ahead; ++i) found.push_back(lock.queue->all[i].owner);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::optional<LockTable::Wait> LockTable::first_wait(Owner owner) const {
  auto at = impl_->owners.find(owner);
  if (at == impl_->owners.end() || at->second.missing == 0) return std::nullopt;
  for (const Impl::Lock& lock : at->second.locks) {
    if (Impl::place_of(*lock.queue, owner) < lock.queue->holders) continue;
    return Wait{lock.queue->key, lock.queue->all.front().owner};
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
