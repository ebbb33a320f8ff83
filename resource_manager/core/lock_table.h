// Strict two-phase locks, shared and exclusive, strictly first come, first served (rule 12).
//
// An owner enters all its queues at once, each key in its strongest mode, so owners that do so and
// wait for nothing else cannot deadlock among themselves. No barging: a reader waits behind a
// waiting writer. One that asks again later, for more keys or for a stronger mode, may close a
// circle: blockers() is what to look for it with. Only the upgrade of a held lock goes before
// earlier waiters: they wait for its owner anyway. Pure; not thread-safe; iterates nothing
// unordered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/time.h"
#include "runtime/histogram.h"

namespace twofold::resource_manager {

enum class LockMode : std::uint8_t { shared, exclusive };

struct LockRequest {
  std::string key;
  LockMode mode = LockMode::shared;
  bool operator==(const LockRequest&) const = default;
};

// Sorts by key and keeps each key once, in its strongest mode.
void normalise(std::vector<LockRequest>& requests);

class LockTable {
 public:
  using Owner = std::uint64_t;

  LockTable();
  ~LockTable();

  // `requests` is normalised and the owner waits for nothing. Keys that it holds are upgraded where
  // that is asked for. True: it holds all of them now.
  bool request(Owner owner, std::span<const LockRequest> requests, Time now);
  // Grants without queueing what a prepared branch held before a restart (rule 11). Only before any
  // request(); a conflict between two prepared branches is a broken contract.
  void reinstate(Owner owner, std::span<const LockRequest> requests, Time now);
  // Lets go of everything held and waited for. Appends to `ready`, in the order of their requests,
  // the owners that thereby hold all they asked for.
  void release(Owner owner, Time now, std::vector<Owner>& ready);

  // Gives up what it waits for and keeps what it holds. Appends to `ready` as release() does.
  void withdraw(Owner owner, Time now, std::vector<Owner>& ready);

  bool waiting(Owner owner) const;  // for at least one key
  // Whom this owner waits for next: in each queue those right before it that it may not pass. They
  // wait for those before them, so that following blockers() leads to every holder and every
  // earlier waiter that this owner may not pass, and to nobody else. Sorted, each once.
  std::vector<Owner> blockers(Owner owner) const;
  // What a person should be told of a wait: the first key not granted, and who has held it longest.
  struct Wait {
    std::string key;
    Owner holder;
  };
  std::optional<Wait> first_wait(Owner owner) const;
  std::vector<LockRequest> locks_of(Owner owner) const;  // asked for, granted or not

  struct Held {
    Owner owner;
    LockMode mode;
    Time since;
  };
  struct Entry {
    std::string_view key;  // valid until the table changes
    std::vector<Held> holders;
    std::vector<Held> waiters;  // first come first; since: the request
  };
  std::vector<Entry> entries(std::size_t entries_max) const;  // by key
  std::size_t keys() const;

  const Histogram& hold_us() const;  // one value per lock released: grant to release
  const Histogram& wait_us() const;  // one value per lock granted: request to grant

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace twofold::resource_manager
