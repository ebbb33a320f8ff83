// A disk as rule 23 has it: what was asked for while the last sync ran is written as one group,
// which a crash leaves whole or not at all; what was not part of it is lost. It may be slow, full,
// or fail in a way that leaves nobody certain.
#pragma once

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "tests/sim/kernel.h"

namespace twofold::sim {

struct DiskTrouble {
  Duration sync{1'500};
  bool full = false;
  bool failing = false;   // the next sync
  Duration lazy{20'000};  // until what is not forced is written
};

template <class Record>
class Disk {
 public:
  struct Write {
    Record record;
    std::uint64_t ticket = 0;  // 0: nobody is told
    bool forced = true;
    bool refusable = false;
  };
  struct Owner {
    std::function<void(Record&)> apply;                     // it is durable
    std::function<void(std::uint64_t, bool durable)> told;  // by a group that has ended
    std::function<void(bool room)> space;
    std::function<void()> failed;  // nothing may be told any more: the process ends
  };

  Disk(Schedule& schedule, Random& random, DiskTrouble& trouble, Owner owner)
      : schedule_(schedule), random_(random), trouble_(trouble), owner_(std::move(owner)) {}

  void submit(Write write) {
    forced_ = forced_ || write.forced;
    queue_.push_back(std::move(write));
    if (forced_) return begin();
    wake_after(trouble_.lazy);
  }

  // The group under way may have been written; what the owner submits now never will be.
  void crash() {
    ++life_;
    if (syncing_ && random_.chance(50)) {
      for (Write& write : group_) owner_.apply(write.record);
    }
    queue_.clear();
    group_.clear();
    forced_ = syncing_ = false;
    room_ = true;
  }

 private:
  void wake_after(Duration pause) {
    schedule_.after(pause, [this, life = life_] {
      if (life == life_) begin();
    });
  }

  void begin() {
    if (syncing_ || queue_.empty()) return;
    syncing_ = true;
    // What the present step still asks for belongs to the group.
    schedule_.after(Duration{0}, [this, life = life_] {
      if (life != life_) return;
      group_.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.end()));
      queue_.clear();
      forced_ = false;
      schedule_.after(random_.about(trouble_.sync), [this, life] {
        if (life == life_) end();
      });
    });
  }

  void end() {
    if (std::exchange(trouble_.failing, false)) return owner_.failed();
    syncing_ = false;
    std::vector<Write> group = std::exchange(group_, {});
    const std::uint64_t life = life_;
    const bool full = trouble_.full;
    if (full) {
      for (std::size_t i = group.size(); i-- > 0;) {
        if (group[i].refusable) continue;
        forced_ = forced_ || group[i].forced;
        queue_.push_front(std::move(group[i]));  // the head of the queue (rule 23)
        group.erase(group.begin() + static_cast<std::ptrdiff_t>(i));
      }
    } else {
      for (Write& write : group) owner_.apply(write.record);
    }
    if (full == room_) {
      room_ = !full;
      owner_.space(room_);
    }
    for (const Write& write : group) {
      if (life != life_) return;
      if (write.ticket != 0) owner_.told(write.ticket, !full);
    }
    if (life != life_ || queue_.empty()) return;
    if (full) return wake_after(std::chrono::milliseconds{5});
    if (forced_) return begin();
    wake_after(trouble_.lazy);
  }

  Schedule& schedule_;
  Random& random_;
  DiskTrouble& trouble_;
  Owner owner_;
  std::deque<Write> queue_;
  std::vector<Write> group_;
  std::uint64_t life_ = 0;
  bool forced_ = false;
  bool syncing_ = false;
  bool room_ = true;
};

}  // namespace twofold::sim
