// What processes of a simulated world have in common: a host, a life that ends at a crash, a clock
// of their own, and callers that talk to them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/events.h"
#include "resource_manager/core/events.h"
#include "tests/sim/disk.h"
#include "tests/sim/history.h"
#include "tests/sim/network.h"

namespace twofold::sim {

namespace rm = resource_manager;
namespace co = coordinator;

// Times of the world, a hundredth of the usual where the ratio does not matter.
inline constexpr Duration kScanPeriod = std::chrono::milliseconds{400};
inline constexpr Duration kFence = std::chrono::milliseconds{20};
inline constexpr Duration kLockTimeout = std::chrono::milliseconds{150};
inline constexpr Duration kTransactionTimeout = std::chrono::milliseconds{250};
inline constexpr Duration kCoordinatorSilence = std::chrono::milliseconds{80};
inline constexpr Duration kParticipantSilence = std::chrono::milliseconds{160};
inline constexpr Duration kClientSilence = std::chrono::milliseconds{40};
inline constexpr Duration kReconnect = std::chrono::milliseconds{10};

// What happened in a world, counted: a seed in which nothing happened proves nothing.
struct Tally {
  std::uint64_t transactions = 0, committed = 0, crashes = 0, partitions = 0, breaks = 0;
  std::uint64_t power_losses = 0, full_disks = 0, failed_syncs = 0, restores = 0, lost_logs = 0;
  std::uint64_t by_hand = 0, deadlocks = 0, one_phase = 0, read_only = 0, interactive = 0;
  std::uint64_t recovered = 0, busy_listed = 0, heuristics = 0, clients_lost = 0, asked_again = 0;
  std::uint64_t steps = 0;
};

// What every process sees of its world.
struct Surroundings {
  Schedule& schedule;
  Random& random;
  Network& network;
  History& history;
  Tally& tally;
  std::vector<std::string>* trace = nullptr;  // null: nobody reads it
  std::uint64_t digest = 14695981039346656037u;
  Duration work{400};       // of a branch, usually
  bool first_come = false;  // no branch asks for locks twice
  bool calm = false;        // healed: nothing goes wrong any more
  bool has_by_hand = false;
  bool has_gone_back = false;

  void digested(std::uint64_t value) {
    for (int i = 0; i < 8; ++i, value >>= 8) digest = (digest ^ (value & 255)) * 1099511628211u;
  }
  void note(const std::string& who, const std::function<std::string()>& what);
};

class Process {
 public:
  Process(Surroundings& world, Host host, std::string name)
      : world_(world), host_(host), name_(std::move(name)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  virtual ~Process() = default;

  const std::string& name() const { return name_; }
  Host host() const { return host_; }
  bool alive() const { return alive_; }
  // The process is killed in the course of its n-th crossing from now on; 0: it is not.
  void crash_at(std::uint64_t crossing, bool power) {
    crossing_ = crossing;
    power_ = power;
  }
  virtual void boot() = 0;
  void crash(bool power);
  DiskTrouble& disk_trouble() { return disk_trouble_; }

 protected:
  virtual void died(bool power) = 0;  // ends of connections go, the disk keeps what it has
  void born();
  Time local_now() const { return world_.schedule.now() + skew_; }
  void after(Duration pause, std::function<void()> what);  // if this life still lasts then
  void tick_at(std::optional<Time> due, std::function<void()> tick);
  // Between what a core is told and asks for; true: the process has just been killed.
  bool crosses();
  // Its connections end as those of a killed process, or of a host without power.
  void drop(const std::shared_ptr<Connection>& connection, int end, bool power) const;

  Surroundings& world_;
  const Host host_;
  const std::string name_;
  DiskTrouble disk_trouble_;

 private:
  Duration skew_{0};  // monotonic clocks begin anywhere
  bool alive_ = false;
  std::uint64_t life_ = 0;
  std::uint64_t crossing_ = 0;
  bool power_ = false;
  std::optional<Time> armed_;
};

// Who asks a resource manager: a coordinator's link, or a client. Called where it lives.
class ParticipantCaller {
 public:
  virtual ~ParticipantCaller() = default;
  virtual void welcomed(std::uint64_t incarnation, std::uint64_t store_id) = 0;
  virtual void refused(rm::RefuseSession::Why why) = 0;
  virtual void answered(std::uint64_t request, const rm::Answer& answer) = 0;
  virtual void listed(std::uint64_t request, const rm::AnswerRecover& answer) = 0;
  virtual void evidence(std::uint64_t request, co::OutcomeTold::Evidence evidence) = 0;
  virtual void failed(std::uint64_t request) = 0;
  virtual void waits(const std::vector<rm::WaitEdge>& waits) = 0;
};

// Who asks a coordinator.
class CoordinatorCaller {
 public:
  virtual ~CoordinatorCaller() = default;
  virtual void welcomed(TxnId newest) = 0;
  virtual void told(std::uint64_t request, const Outcome& outcome) = 0;
  virtual void enlisted(std::uint64_t request, co::RmId rm, const Xid& xid) = 0;
};

}  // namespace twofold::sim
