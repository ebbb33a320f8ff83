// twofold-sim: the deterministic simulator. docs/testing.md tells how to read it.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>

#include "tests/sim/world.h"

namespace twofold::sim {
namespace {

// The trace around a failure: what concerns the suspect, and the end of everything.
void print_trace(const Result& result, bool whole) {
  constexpr std::size_t kEnd = 60;
  const std::string id = result.suspect.substr(result.suspect.find(':') + 1);
  const std::size_t size = result.trace.size();
  for (std::size_t i = 0; i < size; ++i) {
    const std::string& line = result.trace[i];
    const bool about =
        !id.empty() &&
        (line.find(" " + id + "/") != std::string::npos ||
         line.find(" " + id + " ") != std::string::npos || line.ends_with(" " + id) ||
         line.find(":" + id + "/") != std::string::npos ||
         line.find(":" + id + " ") != std::string::npos || line.ends_with(":" + id));
    if (whole || about || i + kEnd >= size || line.find(" ! ") != std::string::npos) {
      std::puts(line.c_str());
    }
  }
}

int fail(const Result& result) {
  const Result again = simulate(result.seed, true);
  print_trace(again, false);
  for (const std::string& fault : result.faults) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(result.seed), fault.c_str());
  }
  std::printf("the whole conversation: twofold-sim --seed %llu --trace\n",
              static_cast<unsigned long long>(result.seed));
  return 1;
}

}  // namespace
}  // namespace twofold::sim

int main(int argc, char** argv) {
  using namespace twofold::sim;
  CLI::App app{"Runs the deciding cores in worlds that go wrong, one for each seed"};
  std::uint64_t seed = 0;
  bool trace = false;
  std::string seeds;
  app.add_option("--seed", seed, "Runs one seed, and prints its digest");
  app.add_flag("--trace", trace, "With --seed: prints the conversation");
  app.add_option("--seeds", seeds, "A..B: runs them all");
  CLI11_PARSE(app, argc, argv);
  if (seeds.empty()) {
    const Result result = simulate(seed, trace);
    if (trace) print_trace(result, true);
    std::printf("digest %016llx\n", static_cast<unsigned long long>(result.digest));
    for (const std::string& fault : result.faults) std::printf("fault: %s\n", fault.c_str());
    return result.faults.empty() ? 0 : 1;
  }
  const auto dots = seeds.find("..");
  const std::uint64_t from = std::stoull(seeds.substr(0, dots));
  const std::uint64_t to = std::stoull(seeds.substr(dots + 2));
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t counted = 0;
  Tally sum;
  for (std::uint64_t one = from; one <= to; ++one) {
    const Result result = simulate(one, false);
    if (!result.faults.empty()) return fail(result);
    counted += result.counts();
    sum.steps += result.tally.steps;
    sum.transactions += result.tally.transactions;
    sum.committed += result.tally.committed;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%llu seeds, %llu count, %.1f s, %.0f a second; %llu steps, %llu transactions, %llu "
      "committed\n",
      static_cast<unsigned long long>(to - from + 1), static_cast<unsigned long long>(counted),
      seconds, static_cast<double>(to - from + 1) / seconds,
      static_cast<unsigned long long>(sum.steps), static_cast<unsigned long long>(sum.transactions),
      static_cast<unsigned long long>(sum.committed));
  return 0;
}
