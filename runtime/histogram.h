// A log-linear histogram of non-negative integers: 64 buckets per power of two, so a quantile is at
// most 1.6 % above the true value; below 128 exact. Fixed size, no allocation after construction,
// mergeable. The unit is the caller's and belongs in the histogram's name. Not thread-safe. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace twofold {

class Histogram {
 public:
  Histogram();
  void record(std::uint64_t value);
  void merge(const Histogram& other);
  void clear();

  std::uint64_t count() const { return count_; }
  std::uint64_t max() const { return max_; }
  double mean() const;
  // The smallest recorded value's bucket bound v with at least q of all values at or below v, never
  // above max(). q in (0, 1]; 0 if empty.
  std::uint64_t quantile(double q) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace twofold
