// What a simulated world runs on: one seed's randomness, and one queue of what happens when.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "protocol/time.h"

namespace twofold::sim {

// splitmix64: the same numbers from the same seed everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  bool chance(std::uint64_t percent) { return below(100) < percent; }
  // Mostly around `usual`, now and then ten times as long, so that everything overtakes everything.
  Duration about(Duration usual) {
    const auto base = static_cast<std::uint64_t>(std::max<std::int64_t>(usual.count(), 1));
    const std::uint64_t most = below(12) == 0 ? 10 * base : 2 * base;
    return Duration{static_cast<std::int64_t>(1 + below(most))};
  }

 private:
  std::uint64_t state_;
};

class Schedule {
 public:
  Time now() const { return now_; }
  void at(Time when, std::function<void()> what) {
    heap_.push_back({std::max(when, now_), ++number_, std::move(what)});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }
  void after(Duration pause, std::function<void()> what) { at(now_ + pause, std::move(what)); }
  // What is due next, if it is before `end`; false: then it is `end`.
  bool run_one(Time end) {
    if (heap_.empty() || heap_.front().when > end) {
      now_ = std::max(now_, end);
      return false;
    }
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    Entry entry = std::move(heap_.back());
    heap_.pop_back();
    now_ = entry.when;
    entry.what();
    return true;
  }

 private:
  struct Entry {
    Time when;
    std::uint64_t number;
    std::function<void()> what;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return std::pair(a.when, a.number) > std::pair(b.when, b.number);
    }
  };
  Time now_{std::chrono::seconds{1}};
  std::uint64_t number_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace twofold::sim
