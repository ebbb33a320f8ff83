// For kinds whose driver blocks: files, a database's client library. The driver is written as plain
// calls that take as long as they take; a bounded pool of threads makes them, so that the engine's
// thread never waits and a branch needs no thread of its own.
//
// What the pool promises a driver:
//   - prepare(), commit(), roll_back(), record() and scan() come one at a time, in the order in
//     which the core asked: the order that early release rests on (rule 13);
//   - run() and discard() of different branches come side by side, each after every write that was
//     asked for before it. So whoever gets a lock that an early release freed reads what its holder
//     wrote, with no overlay of unsynced writes in the driver;
//   - calls for one branch never overlap;
//   - evidence() waits for nothing: a commit that has been told is there for it to see.
// One thread's writes are seen by the next call of the same list; what calls of different lists
// share is the driver's to guard.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "resource_manager/adapter.h"

namespace twofold::resource_manager {

// What became of a write. Every fault but a lack of room ends the process, inside the driver (rule
// 23).
enum class Written : std::uint8_t {
  durable,
  refused,  // no room, and certainly not written: of a prepare or a one-phase commit only
  no_room,  // not finished: the same call is made again, after a pause, before any other write
};

class BlockingDriver {
 public:
  virtual ~BlockingDriver() = default;

  // ---- on the engine's thread; quick ----
  virtual std::uint64_t store_id() const = 0;
  virtual Plan plan(std::string_view work) const = 0;
  virtual void add_stats(wire::StatsAnswer& stats) const = 0;
  virtual Recovered recover(Time now) = 0;  // before there are threads; may throw and may block

  // ---- on the pool's threads; may block ----
  virtual Ran run(const Run& effect) = 0;
  virtual void discard(const Discard& effect) = 0;
  virtual Written prepare(const PersistPrepare& effect) = 0;
  virtual Written commit(const PersistCommit& effect) = 0;
  virtual Written roll_back(const PersistRollback& effect) = 0;  // may be durable or not
  virtual Written record(const PersistNode& effect) = 0;
  virtual Evidence evidence(const Xid& xid) = 0;
  virtual Result<wire::ScanAnswer> scan(const wire::Scan& scan, std::uint64_t bytes_max) = 0;
};

struct BlockingOptions {
  std::size_t threads = 4;
  std::chrono::milliseconds full_retry{200};  // pause before a write that found no room is repeated
};

// While a write that must be made finds no room, everything that may be refused is (as
// GroupCommit does), the core is told (SpaceChanged), and work waits behind that write. At stop()
// it is tried kLastTries times more; if it still finds none, stop() is false.
std::unique_ptr<Adapter> run_on_pool(std::unique_ptr<BlockingDriver> driver,
                                     BlockingOptions options);

}  // namespace twofold::resource_manager
