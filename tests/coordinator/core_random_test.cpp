// Thousands of short lives of a whole small system, each from its seed: see core_world.h. A seed
// that fails is a test case: TWOFOLD_SEED=n runs it alone and prints what happened,
// TWOFOLD_LIVES=n runs more of them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/coordinator/core_world.h"

namespace twofold::coordinator::test {
namespace {

Options options_of(std::uint64_t seed) {
  Options options;
  options.resource_managers = {"orders", "payments", "dispatch"};
  options.early_prepare = seed % 3 != 0;
  options.one_phase = seed % 4 != 0;
  options.outcomes_max = seed % 5 == 0 ? 2 : 1'000;
  options.scan_period = std::chrono::seconds{1};
  options.mark_period = std::chrono::milliseconds{20};
  options.traces_max = seed % 2 == 0 ? 0 : 10;
  return options;
}

struct Happened {
  int committed = 0, crashes = 0, drained = 0;
};

void expect_well(std::uint64_t seed, Happened& happened) {
  World world(seed, options_of(seed));
  world.run(600);
  if (world.faults().empty()) world.heal();
  happened.committed += world.committed();
  happened.crashes += world.crashes();
  happened.drained += world.drained();
  if (std::getenv("TWOFOLD_SEED")) {
    for (const std::string& line : world.history()) std::puts(line.c_str());
  }
  for (const std::string& fault : world.faults()) {
    ADD_FAILURE() << "seed " << seed << ": " << fault;
  }
}

TEST(Random, lives_keep_the_invariants) {
  Happened all;
  if (const char* seed = std::getenv("TWOFOLD_SEED")) {
    return expect_well(std::strtoull(seed, nullptr, 10), all);
  }
  const char* asked = std::getenv("TWOFOLD_LIVES");
  const std::uint64_t lives = asked ? std::strtoull(asked, nullptr, 10) : 1'500;
  for (std::uint64_t seed = 1; seed <= lives && !HasFailure(); ++seed) {
    expect_well(seed, all);
  }
  // A world in which nothing happens proves nothing.
  EXPECT_GT(all.committed, static_cast<int>(lives));
  EXPECT_GT(all.crashes, static_cast<int>(lives));
  EXPECT_GT(all.drained, static_cast<int>(lives / 10));
}

}  // namespace
}  // namespace twofold::coordinator::test
