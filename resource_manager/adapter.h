// What a kind of resource manager supplies: the meaning of its operations, and durability. The branch
// core does the rest. One file each in resource_manager/adapters/, one target each, so that programs
// link only what they need.
//
// Threads: every call comes on the engine's thread and must not block for long; a driver that blocks
// belongs on a pool of its own. Completions are posted to the engine's thread through Host.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/operation.h"
#include "protocol/result.h"
#include "protocol/wire.pb.h"
#include "resource_manager/core/events.h"

namespace twofold::resource_manager {

// What the engine offers its adapter. post() may be called from any thread, never re-enters.
class Host {
 public:
  virtual ~Host() = default;
  virtual void post(Event event) = 0;
};

struct Plan {
  std::vector<LockRequest> locks;   // normalised; empty for a kind that locks by itself
  std::vector<Refusal> invalid;     // operations that cannot be understood
};

enum class Evidence : std::uint8_t { committed, none };

class Adapter {
 public:
  virtual ~Adapter() = default;

  virtual std::uint64_t store_id() const = 0;             // random, made with the data
  virtual Recovered recover(Time now) = 0;                // once, before anything else
  virtual void attach(Host& host) = 0;                    // once, after recover()
  virtual void stop() = 0;                                // what was asked for is written; no more posts

  virtual Plan plan(std::string_view work) const = 0;     // reads no data
  virtual void run(const Run& effect) = 0;
  virtual void discard(const Discard& effect) = 0;
  virtual void persist(PersistPrepare effect) = 0;
  virtual void persist(PersistCommit effect) = 0;
  virtual void persist(PersistRollback effect) = 0;
  virtual void persist(PersistNode effect) = 0;
  virtual Evidence evidence(const Xid& xid) = 0;          // of a branch that is not here

  virtual Result<wire::ScanAnswer> scan(const wire::Scan& scan) = 0;   // unsupported: has no keys
  virtual void add_stats(wire::StatsAnswer& stats) const = 0;
};

}  // namespace twofold::resource_manager
