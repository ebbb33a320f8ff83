// A whole system in one process, made from a seed: coordinators, participants and clients over a
// network, disks and clocks that go wrong as the seed says; then it is healed, and everything must
// end. The same seed is the same world, step by step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/application.h"

namespace twofold::sim {

struct Result {
  std::uint64_t seed = 0;
  std::uint64_t digest = 0;
  Tally tally;
  std::vector<std::string> faults;  // what was found to be wrong
  std::vector<std::string> trace;   // if asked for
  std::string suspect;              // the transaction of the first fault, as in the trace
  // A seed in which little happened proves little.
  bool counts() const {
    return tally.transactions >= 20 && tally.crashes > 0 && tally.partitions > 0;
  }
};

Result simulate(std::uint64_t seed, bool traced);

}  // namespace twofold::sim
