#include "runtime/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace twofold {
namespace {

TEST(Histogram, EmptyAnswersZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.mean(), 0.0);
  EXPECT_EQ(histogram.quantile(0.5), 0u);
}

TEST(Histogram, ExactBelow128) {
  Histogram histogram;
  for (std::uint64_t value = 0; value < 128; ++value) histogram.record(value);
  for (std::uint64_t value = 0; value < 128; ++value) {
    EXPECT_EQ(histogram.quantile(static_cast<double>(value + 1) / 128.0), value);
  }
  EXPECT_DOUBLE_EQ(histogram.mean(), 63.5);
}

TEST(Histogram, OneValueIsNeverOverstated) {
  for (std::uint64_t value :
       {std::uint64_t{128}, std::uint64_t{1'000'003}, std::numeric_limits<std::uint64_t>::max()}) {
    Histogram histogram;
    histogram.record(value);
    EXPECT_EQ(histogram.quantile(1.0), value);
    EXPECT_EQ(histogram.quantile(0.001), value);
    EXPECT_EQ(histogram.max(), value);
  }
}

// Each quantile against the sorted values: never below the true one, at most 1/64 above.
TEST(Histogram, QuantilesWithinOneSixtyFourth) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> spread(9.0, 3.0);
  Histogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(static_cast<std::uint64_t>(spread(random)));
    histogram.record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (double q : {0.0001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
    const std::uint64_t truth = values[rank - 1];
    EXPECT_GE(histogram.quantile(q), truth) << q;
    EXPECT_LE(static_cast<double>(histogram.quantile(q)), static_cast<double>(truth) * 65.0 / 64.0)
        << q;
  }
}

TEST(Histogram, BucketBoundsAroundPowersOfTwo) {
  for (int shift = 7; shift < 64; ++shift) {
    const std::uint64_t power = std::uint64_t{1} << shift;
    for (std::uint64_t value : {power - 1, power, power + 1}) {
      Histogram histogram;
      histogram.record(value);
      histogram.record(std::numeric_limits<std::uint64_t>::max());  // so that max() does not cap it
      EXPECT_GE(histogram.quantile(0.5), value);
      EXPECT_LE(histogram.quantile(0.5) - value, value / 64);
    }
  }
}

TEST(Histogram, MergeIsAsIfAllWereRecordedInOne) {
  Histogram one;
  Histogram other;
  Histogram both;
  for (std::uint64_t i = 0; i < 1'000; ++i) {
    (i % 3 == 0 ? one : other).record(i * i);
    both.record(i * i);
  }
  one.merge(other);
  EXPECT_EQ(one.count(), both.count());
  EXPECT_EQ(one.max(), both.max());
  EXPECT_DOUBLE_EQ(one.mean(), both.mean());
  for (double q : {0.1, 0.5, 0.99}) EXPECT_EQ(one.quantile(q), both.quantile(q));
}

TEST(Histogram, ClearForgetsAll) {
  Histogram histogram;
  histogram.record(5'000);
  histogram.clear();
  EXPECT_EQ(histogram.count(), 0u);
  histogram.record(3);
  EXPECT_EQ(histogram.quantile(1.0), 3u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 3.0);
}

}  // namespace
}  // namespace twofold
