// What many seeds held, in sum and as a distribution.
#pragma once

#include <array>
#include <cstdint>

#include "tests/sim/world.h"

namespace twofold::sim {

// How many seeds had so many of something; the last class stands for more.
struct Distribution {
  std::array<std::uint32_t, 48> seeds{};
  void add(std::uint64_t value);
  void add(const Distribution& other);
  std::size_t percentile(double share) const;
};

// Plain data: it goes through a pipe.
struct Summary {
  std::uint64_t seeds = 0, counted = 0;
  Tally tally;
  Distribution transactions, crashes, partitions;

  void add(const Result& result);
  void add(const Summary& other);
  void print(double seconds) const;
};

}  // namespace twofold::sim
