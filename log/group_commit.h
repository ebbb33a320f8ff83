// Group commit (rule 23): one writer thread drains what arrived while the last sync ran, writes it
// as one group, and tells of the whole group at once. The coordinator's log and a store's data both
// write through it.
//
// The order of submit() is the order on disk: if a write is durable, so is every earlier one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "log/lmdb.h"

namespace twofold {

// One change to one table of an environment.
struct Mutation {
  enum class Kind : std::uint8_t { put, erase, erase_range };
  Kind kind = Kind::put;
  std::uint32_t table = 0;  // index into the environment's tables
  std::string key;
  std::string value;  // erase_range: the first key that stays; empty: none does
};

// How long a write may wait for company.
enum class Urgency : std::uint8_t {
  now,   // not at all
  soon,  // about one forced write, so that it rides with what comes next (rule 13)
  lazy,  // up to lazy_flush (rule 6)
};

struct Write {
  std::uint64_t ticket = 0;         // the caller's; 0: nobody waits for it
  std::vector<Mutation> mutations;  // applied together
  Urgency urgency = Urgency::now;
  bool refusable = true;  // false: must be written; never answered with refused (rule 23)
};

// What became of one group. Sent once per group, in group order. When a group was refused,
// `refused` names everything refusable that was queued then; what must be written is tried again
// every full_retry, and as soon as there is room again a result says so, with durable tickets or
// with none.
struct GroupResult {
  std::vector<std::uint64_t> durable;  // tickets, in order of submission
  std::vector<std::uint64_t> refused;  // certainly not written
  double used_fraction = 0;            // of the map, after the group
  bool full = false;                   // the last attempt found no room
  std::uint64_t group = 0;
  std::chrono::nanoseconds sync{0};  // the forced write's time
};

// Where groups go. apply() is called on the writer thread only. A replicated store could stand
// here.
class GroupTarget {
 public:
  enum class Applied { durable, refused };
  virtual ~GroupTarget() = default;
  // Writes all of `writes` atomically with `group`, synced. `refused` only if certainly nothing was
  // written; any other failure ends the process (rule 23). `group` is last_group() + 1; without
  // writes only the number is written.
  virtual Applied apply(std::uint64_t group, std::span<const Write* const> writes) = 0;
  virtual std::uint64_t last_group() = 0;
  virtual double used_fraction() = 0;
};

// The number of the last group is under key "group" of table 0.
class LmdbTarget final : public GroupTarget {
 public:
  explicit LmdbTarget(lmdb::Environment& environment) : environment_(environment) {}
  Applied apply(std::uint64_t group, std::span<const Write* const> writes) override;
  std::uint64_t last_group() override;
  double used_fraction() override { return environment_.used_fraction(); }

 private:
  lmdb::Environment& environment_;
};

struct GroupCommitOptions {
  std::chrono::milliseconds lazy_flush{20};
  std::chrono::milliseconds full_retry{200};  // pause before must-write records are tried again
  std::size_t group_writes_max = 4096;
  std::size_t group_bytes_max = 16u << 20;  // a group takes at least one write, whatever its size
};

// submit() and drain() may be called from one thread (the engine's). `done` is called on the writer
// thread: post. The target must outlive this, and nobody else may apply to it meanwhile.
//
// Waiting for the end is bounded: when there is no room and kLastTries more attempts, full_retry
// apart, have found none, records that must be written stay unwritten and untold. Those are the
// ones that recovery can do without (rule 6: an end is found again by asking).
class GroupCommit {
 public:
  GroupCommit(GroupTarget& target, GroupCommitOptions options,
              std::function<void(GroupResult)> done);
  static constexpr int kLastTries = 5;
  ~GroupCommit();  // drains what is queued, then joins the thread

  void submit(Write write);
  void submit(std::vector<Write> writes);  // one wake-up for many
  // Waits until all that was submitted has been told, unforced writes included, and takes no pause
  // for company. False: there was no room for some records that must be written; they are still
  // queued.
  bool drain();
  std::uint64_t queued() const;  // submitted and not yet told

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace twofold
