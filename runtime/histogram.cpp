#include "runtime/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "protocol/check.h"

namespace twofold {
namespace {

// Below kExact each value has a bucket of its own; each power of two above is cut into kPerOctave.
constexpr std::uint64_t kPerOctave = 64;
constexpr std::uint64_t kExact = 2 * kPerOctave;
constexpr std::uint64_t kBuckets = kExact + (64 - std::bit_width(kExact - 1)) * kPerOctave;

std::size_t bucket_of(std::uint64_t value) {
  if (value < kExact) return value;
  const auto shift = static_cast<std::uint64_t>(std::bit_width(value) - std::bit_width(kExact - 1));
  return kExact + (shift - 1) * kPerOctave + ((value >> shift) - kPerOctave);
}

// The largest value that the bucket holds.
std::uint64_t bound_of(std::size_t bucket) {
  if (bucket < kExact) return bucket;
  const std::uint64_t shift = (bucket - kExact) / kPerOctave + 1;
  const std::uint64_t lead = (bucket - kExact) % kPerOctave + kPerOctave;
  return (lead << shift) + ((std::uint64_t{1} << shift) - 1);
}

}  // namespace

Histogram::Histogram() : buckets_(kBuckets) {}

void Histogram::record(std::uint64_t value) {
  ++buckets_[bucket_of(value)];
  ++count_;
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
}

void Histogram::merge(const Histogram& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

void Histogram::clear() {
  std::fill(buckets_.begin(), buckets_.end(), 0);
  count_ = 0;
  max_ = 0;
  sum_ = 0;
}

double Histogram::mean() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

std::uint64_t Histogram::quantile(double q) const {
  TWOFOLD_CHECK(q > 0 && q <= 1);
  if (count_ == 0) return 0;
  const auto rank = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(bound_of(i), max_);
  }
  return max_;
}

}  // namespace twofold
