// The branch core of a resource manager: verb order, sessions and fencing, locks, votes, prepared
// branches (rules 2, 10, 11, 12, 13, 15, 16 and 18). Decides, and does nothing else: no I/O, no
// clock, no randomness, no logging. Verbs and codes are X/Open's (XA C193 chapter 3 and 5).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "resource_manager/core/events.h"

namespace twofold::resource_manager {

struct Options {
  std::string name;
  std::uint64_t incarnation = 0;                     // random, of this process
  std::size_t branches_max = 100'000;                // beyond: a Start is answered XA_RBTRANSIENT
  std::size_t locks_max = 10'000;                    // of one branch
  std::size_t items_max = 1'000;                     // that clients have asked of a branch, waiting
  Duration lock_timeout = std::chrono::seconds{10};  // a wait for locks; jittered down by up to a
                                                     // quarter, by a hash of the xid (rule 12)
  Duration fence = std::chrono::seconds{2};          // fence_ms (rule 15)
  bool early_release = true;                         // rule 13
};

// A wait for locks is told to the coordinator when it has lasted so long (rule 12).
inline constexpr Duration kLongWait = std::chrono::milliseconds{20};

enum class BranchState : std::uint8_t {
  waiting,        // for locks
  running,        // its work is with the adapter
  active,         // work done, not prepared
  read_only,      // voted XA_RDONLY: holds its locks until Release (rule 11)
  rollback_only,  // voted no: holds its locks until Rollback
  preparing,      // its prepared record is being written
  prepared,       // in doubt
  committing,     // the commit is being written
  rolling_back,   // an abandoned verb is still at work; rolled back as soon as that has ended
};
std::string_view name(BranchState state);

struct BranchView {
  Xid xid;
  BranchState state = BranchState::active;
  std::vector<LockRequest> locks;
  Duration age{0};  // since its start, or since the vote if prepared
};

struct Counts {
  std::uint64_t started = 0, committed = 0, committed_one_phase = 0, rolled_back = 0, read_only = 0;
  std::uint64_t voted_yes = 0, voted_no = 0, lock_timeouts = 0, deadlocks = 0, fenced = 0;
  std::uint64_t branches = 0, prepared = 0, waiting = 0;
};

class Branches {
 public:
  Branches(Options options, Recovered recovered, Time now);
  ~Branches();

  // Appends to `effects`. Any event may come in any state.
  void step(Event event, Time now, std::vector<Effect>& effects);
  std::optional<Time> next_deadline() const;

  const LockTable& locks() const;
  std::optional<BranchView> view(BranchId branch, Time now) const;
  std::vector<BranchView> in_doubt(Time now) const;  // prepared ones, all nodes, by xid
  Counts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace twofold::resource_manager
