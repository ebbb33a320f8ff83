#include "tests/sim/world.h"

#include <algorithm>
#include <utility>

namespace twofold::sim {

namespace {

// Which kinds of trouble a world has, and how much: not all seeds have all (a world in which
// everything breaks at once shows little).
struct Troubles {
  unsigned crash_coordinator = 0, crash_participant = 0, partition = 0, break_connection = 0;
  unsigned disk = 0, shutdown = 0, drain = 0, by_hand = 0, restore = 0, lose_log = 0;
  unsigned sum() const {
    return crash_coordinator + crash_participant + partition + break_connection + disk + shutdown +
           drain + by_hand + restore + lose_log;
  }
};

class World {
 public:
  World(std::uint64_t seed, bool traced);
  Result run();

 private:
  bool chance(std::uint64_t percent) { return random_.chance(percent); }
  co::Options coordinator_options();
  void trouble();
  void meddle();
  void crash(Process& process, Duration down);
  void start_after(Process& process, Duration down);
  void partition();
  void disk_trouble(Process& process);
  void heal();
  void run_until(Time end);
  void check_end();
  std::vector<Process*> processes();

  const std::uint64_t seed_;
  Random random_;
  Schedule schedule_;
  std::vector<std::string> trace_;
  History history_;
  Tally tally_;
  Troubles troubles_;
  Workload workload_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Surroundings> world_;
  std::vector<std::unique_ptr<Participant>> participants_;
  std::vector<std::unique_ptr<CoordinatorProcess>> coordinators_;
  std::vector<std::unique_ptr<Application>> applications_;
  std::size_t hosts_ = 0;
};

World::World(std::uint64_t seed, bool traced) : seed_(seed), random_(seed) {
  const std::size_t participants = chance(15) ? 5 + random_.below(4) : 2 + random_.below(3);
  const std::size_t coordinators = chance(30) ? 2 : 1;
  const std::size_t applications = 2 + random_.below(chance(30) ? 8 : 4);
  hosts_ = participants + coordinators + applications;
  network_ = std::make_unique<Network>(schedule_, random_, hosts_);
  world_ =
      std::make_unique<Surroundings>(Surroundings{schedule_, random_, *network_, history_, tally_});
  if (traced) world_->trace = &trace_;

  const auto some = [&](unsigned most) -> unsigned {
    return chance(60) ? static_cast<unsigned>(random_.below(most)) : 0;
  };
  troubles_.crash_coordinator = some(20) + 2;
  troubles_.crash_participant = some(20);
  troubles_.partition = some(20) + 3;
  troubles_.break_connection = some(30);
  troubles_.disk = some(15);
  troubles_.shutdown = some(8);
  if (chance(15)) troubles_.drain = 8;
  if (chance(10)) troubles_.by_hand = 10;
  if (chance(8)) troubles_.restore = 10;
  if (chance(4)) troubles_.lose_log = 3;

  workload_.keys = 1 + random_.below(6);
  if (chance(30)) workload_.pause = std::chrono::milliseconds{1};
  if (chance(25)) world_->work = std::chrono::milliseconds{1 + random_.below(15)};
  workload_.interactive = chance(70) ? static_cast<unsigned>(random_.below(60)) : 0;
  world_->first_come = workload_.interactive == 0;
  workload_.reads = static_cast<unsigned>(random_.below(70));
  workload_.checks = static_cast<unsigned>(random_.below(20));
  workload_.branches_max = chance(70) ? 3 : 8;

  static const char* const names[] = {"orders", "payments", "dispatch", "kitchen",
                                      "stock",  "ledger",   "points",   "mail"};
  Host host = 0;
  std::vector<Participant*> all;
  co::Options options = coordinator_options();
  for (std::size_t i = 0; i < participants; ++i) {
    network_->silence_after(host, kParticipantSilence);
    participants_.push_back(std::make_unique<Participant>(*world_, host++, names[i]));
    all.push_back(participants_.back().get());
    options.resource_managers.push_back(names[i]);
  }
  for (std::size_t i = 0; i < coordinators; ++i) {
    network_->silence_after(host, kCoordinatorSilence);
    coordinators_.push_back(std::make_unique<CoordinatorProcess>(
        *world_, host++, i == 0 ? "main" : "main-2", options, all));
    coordinators_.back()->fail_scans = chance(30);
  }
  if (chance(30)) {
    for (Process* process : processes()) {
      process->disk_trouble().lazy = std::chrono::milliseconds{20 + random_.below(200)};
    }
  }
  for (std::size_t i = 0; i < applications; ++i) {
    network_->silence_after(host, kClientSilence);
    CoordinatorProcess& coordinator = *coordinators_[random_.below(coordinators)];
    applications_.push_back(std::make_unique<Application>(
        *world_, host++, "client" + std::to_string(i), coordinator, all, workload_));
  }
}

co::Options World::coordinator_options() {
  co::Options options;
  options.timeout_default = kTransactionTimeout;
  options.timeout_max = 2 * kTransactionTimeout;
  options.scan_period =
      chance(60) ? kScanPeriod : std::chrono::milliseconds{15 + random_.below(80)};
  options.mark_period = std::chrono::milliseconds{20 + random_.below(60)};
  options.retry_first = std::chrono::milliseconds{5};
  options.retry_max = std::chrono::milliseconds{40};
  options.outcomes_max = chance(40) ? 1 + random_.below(5) : 1'000;
  options.traces_max = chance(50) ? 0 : 20;
  options.early_prepare = chance(70);
  options.one_phase = chance(80);
  options.read_only_votes = chance(85);
  return options;
}

std::vector<Process*> World::processes() {
  std::vector<Process*> all;
  for (auto& one : participants_) all.push_back(one.get());
  for (auto& one : coordinators_) all.push_back(one.get());
  return all;
}

void World::run_until(Time end) {
  while (history_.faults().empty() && schedule_.run_one(end)) {
  }
}

Result World::run() {
  for (Process* process : processes()) process->boot();
  for (auto& one : applications_) one->begin();
  // Until enough has happened, however slowly it goes.
  const std::uint64_t wanted = 22 + random_.below(20);
  const Time latest = schedule_.now() + std::chrono::seconds{20};
  Time next = schedule_.now() + random_.about(std::chrono::milliseconds{30});
  while (history_.faults().empty() && schedule_.now() < latest) {
    if (tally_.transactions >= wanted && tally_.crashes > 0 && tally_.partitions > 0) break;
    run_until(next);
    trouble();
    next = schedule_.now() + random_.about(std::chrono::milliseconds{25});
  }
  if (history_.faults().empty()) heal();
  if (history_.faults().empty()) check_end();
  if (history_.faults().empty()) history_.judge();
  tally_.committed = history_.transactions_committed();
  return {seed_,
          world_->digest,
          tally_,
          history_.faults(),
          std::move(trace_),
          history_.suspect().empty() ? "" : id_of(history_.suspect())};
}

// ---- what goes wrong ----------------------------------------------------------------------------

void World::trouble() {
  std::uint64_t dice = random_.below(troubles_.sum());
  const auto is = [&](unsigned share) {
    const bool hit = dice < share;
    dice -= hit ? 0 : share;
    return hit;
  };
  CoordinatorProcess& coordinator = *coordinators_[random_.below(coordinators_.size())];
  Participant& participant = *participants_[random_.below(participants_.size())];
  const Duration down = random_.about(std::chrono::milliseconds{chance(20) ? 100 : 15});
  if (is(troubles_.crash_coordinator)) return crash(coordinator, down);
  if (is(troubles_.crash_participant)) {
    for (auto& one : participants_) {  // the worst moment is while a branch is in doubt
      if (one->in_doubt() && chance(50)) return crash(*one, down);
    }
    return crash(participant, down);
  }
  if (is(troubles_.partition)) return partition();
  if (is(troubles_.break_connection)) {
    ++tally_.breaks;
    return network_->break_one();
  }
  if (is(troubles_.disk)) {
    auto all = processes();
    return disk_trouble(*all[random_.below(all.size())]);
  }
  if (is(troubles_.shutdown)) {
    coordinator.shut_down();
    return start_after(coordinator, std::chrono::milliseconds{20} + down);
  }
  if (is(troubles_.drain)) return coordinator.drain();
  if (is(troubles_.by_hand)) {
    participant.crash(false);
    participant.end_by_hand();
    return start_after(participant, down);
  }
  if (is(troubles_.restore)) {
    if (chance(50)) return coordinator.back_up();
    coordinator.crash(false);
    coordinator.put_backup_back(chance(80));
    return start_after(coordinator, down);
  }
  coordinator.crash(false);
  coordinator.lose_log();
  start_after(coordinator, down);
}

void World::crash(Process& process, Duration down) {
  ++tally_.crashes;
  const bool power = chance(25);
  tally_.power_losses += power;
  if (chance(60)) {
    process.crash_at(1 + random_.below(40), power);  // in the midst of what it does
  } else {
    process.crash(power);
  }
  start_after(process, down);
}

// Also the one that will be killed in the course of a later crossing, or is by a failed sync.
void World::start_after(Process& process, Duration down) {
  schedule_.after(down, [this, &process] {
    if (!process.alive()) return process.boot();
    if (world_->calm) return;
    start_after(process, std::chrono::milliseconds{10});
  });
}

void World::partition() {
  ++tally_.partitions;
  const Host one = random_.below(hosts_);
  const bool alone = chance(30);  // from everybody
  const Host other = random_.below(hosts_);
  const bool there = chance(80), back = !there || chance(70);
  const Duration lasts = random_.about(std::chrono::milliseconds{chance(50) ? 30 : 150});
  for (Host host = 0; host < hosts_; ++host) {
    if (host == one || (!alone && host != other)) continue;
    if (there) network_->block(one, host);
    if (back) network_->block(host, one);
    schedule_.after(lasts, [this, one, host] {
      network_->unblock(one, host);
      network_->unblock(host, one);
    });
  }
  world_->note("network", [&] {
    return "! partition of host " + std::to_string(one) +
           (alone ? "" : " from " + std::to_string(other)) + (there && back ? "" : ", one way");
  });
}

void World::disk_trouble(Process& process) {
  DiskTrouble& disk = process.disk_trouble();
  const Duration lasts = random_.about(std::chrono::milliseconds{60});
  const std::uint64_t kind = random_.below(3);
  world_->note(process.name(), [&] {
    const char* kinds[] = {"! its disk is full", "! its disk is slow", "! its next sync fails"};
    return std::string(kinds[kind]);
  });
  if (kind == 0) {
    ++tally_.full_disks;
    disk.full = true;
  } else if (kind == 1) {
    disk.sync = std::chrono::milliseconds{15};
  } else {
    disk.failing = true;
    start_after(process, lasts);
  }
  schedule_.after(lasts, [&disk] {
    disk.full = false;
    disk.sync = DiskTrouble{}.sync;
  });
}

// ---- the end ------------------------------------------------------------------------------------

void World::heal() {
  world_->calm = true;
  world_->note("world", [] { return "! is healed"; });
  for (auto& one : applications_) one->stop();
  for (Host from = 0; from < hosts_; ++from) {
    for (Host to = 0; to < hosts_; ++to) network_->unblock(from, to);
  }
  // A coordinator on an outdated log ends once more, and its operator says --restored.
  for (int i = 0; i < 10; ++i) {
    for (Process* process : processes()) {
      process->crash_at(0, false);
      process->disk_trouble().full = process->disk_trouble().failing = false;
      if (!process->alive()) process->boot();
    }
    run_until(schedule_.now() + std::chrono::milliseconds{20});
  }
  // Connections that are half open end by silence, transactions by their timeouts; then two scan
  // periods (invariant 5).
  run_until(schedule_.now() + kParticipantSilence + 2 * kTransactionTimeout + 2 * kScanPeriod +
            std::chrono::milliseconds{300});
}

void World::check_end() {
  for (auto& one : coordinators_) {
    for (std::string& left : one->leftovers()) history_.fault(std::move(left) + " (invariant 5)");
  }
  for (auto& one : participants_) {
    for (std::string& left : one->leftovers()) history_.fault(std::move(left) + " (invariant 5)");
  }
  // Rule 12: what is submitted to one coordinator cannot deadlock.
  if (coordinators_.size() == 1 && workload_.interactive == 0) {
    if (tally_.deadlocks > 0) history_.fault("a deadlock across participants (rule 12)");
    for (auto& one : participants_) {
      if (one->deadlocks() > 0) history_.fault(one->name() + " met a deadlock (rule 12)");
    }
  }
  for (auto& one : applications_) {
    if (!one->idle()) history_.fault(one->waits_for() + " (invariant 5)");
  }
}

}  // namespace

Result simulate(std::uint64_t seed, bool traced) {
  World world(seed, traced);
  return world.run();
}

}  // namespace twofold::sim
