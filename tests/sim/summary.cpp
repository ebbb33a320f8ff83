#include "tests/sim/summary.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace twofold::sim {

namespace {

constexpr std::pair<const char*, std::uint64_t Tally::*> kCounts[] = {
    {"transactions", &Tally::transactions},
    {"committed", &Tally::committed},
    {"interactive", &Tally::interactive},
    {"read-only votes", &Tally::read_only},
    {"one-phase commits", &Tally::one_phase},
    {"steps of a core", &Tally::steps},
    {"crashes", &Tally::crashes},
    {"of them with the power", &Tally::power_losses},
    {"partitions", &Tally::partitions},
    {"connections broken", &Tally::breaks},
    {"clients that vanished", &Tally::clients_lost},
    {"asked again", &Tally::asked_again},
    {"full disks", &Tally::full_disks},
    {"failed syncs", &Tally::failed_syncs},
    {"recovered transactions", &Tally::recovered},
    {"listed as busy", &Tally::busy_listed},
    {"deadlocks told", &Tally::deadlocks},
    {"ended by hand", &Tally::by_hand},
    {"heuristic records", &Tally::heuristics},
    {"logs restored", &Tally::restores},
    {"logs lost", &Tally::lost_logs},
};

void print(const char* what, const Distribution& one) {
  std::printf("  %-14s %4zu %4zu %4zu %4zu %4zu\n", what, one.percentile(0), one.percentile(0.1),
              one.percentile(0.5), one.percentile(0.9), one.percentile(1));
}

}  // namespace

void Distribution::add(std::uint64_t value) {
  ++seeds[std::min<std::uint64_t>(value, seeds.size() - 1)];
}

void Distribution::add(const Distribution& other) {
  for (std::size_t i = 0; i < seeds.size(); ++i) seeds[i] += other.seeds[i];
}

std::size_t Distribution::percentile(double share) const {
  const auto all = std::accumulate(seeds.begin(), seeds.end(), std::uint64_t{0});
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    sum += seeds[i];
    if (sum > 0 && static_cast<double>(sum) >= share * static_cast<double>(all)) return i;
  }
  return 0;
}

void Summary::add(const Result& result) {
  ++seeds;
  counted += result.counts();
  for (const auto& [what, count] : kCounts) tally.*count += result.tally.*count;
  transactions.add(result.tally.transactions);
  crashes.add(result.tally.crashes);
  partitions.add(result.tally.partitions);
}

void Summary::add(const Summary& other) {
  seeds += other.seeds;
  counted += other.counted;
  for (const auto& [what, count] : kCounts) tally.*count += other.tally.*count;
  transactions.add(other.transactions);
  crashes.add(other.crashes);
  partitions.add(other.partitions);
}

void Summary::print(double seconds) const {
  std::printf(
      "%llu seeds in %.1f s, %.0f a second; %llu count, with 20 transactions, a crash and a "
      "partition at least\n",
      static_cast<unsigned long long>(seeds), seconds,
      static_cast<double>(seeds) / std::max(seconds, 1e-9),
      static_cast<unsigned long long>(counted));
  for (const auto& [what, count] : kCounts) {
    std::printf("  %-24s %12llu\n", what, static_cast<unsigned long long>(tally.*count));
  }
  std::printf("of a seed:       least  10%%  50%%  90%% most (%zu: or more)\n",
              transactions.seeds.size() - 1);
  sim::print("transactions", transactions);
  sim::print("crashes", crashes);
  sim::print("partitions", partitions);
}

}  // namespace twofold::sim
