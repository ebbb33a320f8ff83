// What a kind of resource manager supplies: the meaning of its operations, and durability. The
// branch core does the rest. One file each in resource_manager/adapters/, one target each, so that
// programs link only what they need.
//
// Threads: every call comes on the engine's thread and must not block for long; a driver that
// blocks belongs on a pool (adapters/blocking.h). Completions are posted to the engine's thread
// through Host. docs/adding_a_resource_manager.md explains step by step what a kind owes.
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

// What the engine offers its adapter. Both may be called from any thread, never re-enter, and keep
// the order in which they were called.
class Host {
 public:
  virtual ~Host() = default;
  virtual void post(Event event) = 0;
  virtual void call(std::function<void()> job) = 0;  // runs it on the engine's thread
};

struct Plan {
  std::vector<LockRequest> locks;  // normalised; empty for a kind that locks by itself
  std::vector<Refusal> invalid;    // operations that can never be done
};

enum class Evidence : std::uint8_t { committed, none };

class Adapter {
 public:
  virtual ~Adapter() = default;

  virtual std::uint64_t store_id() const = 0;  // random, made with the data
  // Once, before anything else. Throws std::runtime_error for data that it cannot read (starting
  // up).
  virtual Recovered recover(Time now) = 0;
  virtual void attach(Host& host) = 0;  // once, after recover()
  // Nothing is asked for and nothing posted afterwards; stopping twice is stopping once. True: what
  // was asked for is written. False: some records found no room; they end branches that are
  // decided, which stay in doubt here and are asked for again.
  virtual bool stop() = 0;

  virtual Plan plan(std::string_view work) const = 0;  // reads no data
  virtual void run(const Run& effect) = 0;
  virtual void discard(const Discard& effect) = 0;
  virtual void persist(PersistPrepare effect) = 0;
  virtual void persist(PersistCommit effect) = 0;
  virtual void persist(PersistRollback effect) = 0;
  virtual void persist(PersistNode effect) = 0;
  // Called after each batch of effects: what persist() took in may have waited for it, so that one
  // turn of the engine goes to the disk as one group.
  virtual void flush() = 0;

  // Questions: `done` is called once, on the engine's thread, at once or later; after stop()
  // perhaps never.
  //
  // Of a branch that is not here. It must see every commit that has been told (Persisted).
  virtual void evidence(const Xid& xid, std::function<void(Evidence)> done) = 0;
  // Whole branches only. At most `bytes_max` of keys and values, or less if `scan` asks for less.
  // unsupported: this kind has no keys.
  virtual void scan(const wire::Scan& scan, std::uint64_t bytes_max,
                    std::function<void(Result<wire::ScanAnswer>)> done) = 0;
  virtual void add_stats(wire::StatsAnswer& stats) const = 0;
};

}  // namespace twofold::resource_manager
