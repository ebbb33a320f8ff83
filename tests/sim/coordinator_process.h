// A coordinator: the shipped core, its links and its clients over a simulated log.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <variant>
#include <vector>

#include "coordinator/core/client_fence.h"
#include "coordinator/core/coordinator.h"
#include "tests/coordinator/core_text.h"
#include "tests/sim/participant.h"
#include "tests/sim/process.h"

namespace twofold::sim {

class CoordinatorProcess final : public Process {
 public:
  CoordinatorProcess(Surroundings& world, Host host, std::string node, co::Options options,
                     std::vector<Participant*> participants);
  ~CoordinatorProcess() override;

  void boot() override;
  void shut_down();  // in good order
  void drain();      // some participant, for a while

  // What arrives over a connection, here.
  void hello(const std::shared_ptr<Connection>& connection, std::uint64_t client,
             std::uint64_t counter, CoordinatorCaller* caller);
  void request(const std::shared_ptr<Connection>& connection, std::uint64_t request,
               co::Event event);

  // The operator's: a copy of the running process's log, and what is done while it is down.
  void back_up() {
    if (alive()) backup_ = log_;
  }
  bool put_backup_back(bool says_so);  // false: there is none
  void lose_log();                     // and makes a new one, which participants are told to take

  bool fail_scans = false;  // listings that break off half way
  std::vector<std::string> leftovers() const;

 private:
  struct Log {  // durable
    LogId id;
    std::vector<EpochRef> epochs;
    std::uint64_t served = 0;
    std::optional<BackupMark> backup;
    FormerLogs former;
    co::test::FakeLog table;
  };
  using Change = std::variant<LogRecord, ServedEpoch, BackupMark>;
  struct Client {
    std::shared_ptr<Connection> connection;
    CoordinatorCaller* caller = nullptr;
    std::uint64_t client = 0;
  };
  class Link;

  void died(bool power) override;
  void step(co::Event event);
  void closed(std::uint64_t id);
  void apply(Change& change);
  void restore();
  rm::SessionRequested session() const;

  void on(co::Persist& effect);
  void on(co::Reply& effect);
  void on(co::Enlisted& effect);
  void on(co::DrainTold&) {}
  void on(co::Alarm& effect);
  template <class Send>
  void on(Send& effect);

  const std::vector<Participant*> participants_;
  co::Options options_;
  Log log_;
  std::optional<Log> backup_;
  bool restored_ = false;  // the operator says so, at the next start
  bool rebuild_ = false;
  bool outdated_ = false;  // it was told that its log is
  Disk<Change> disk_;
  Epoch epoch_;
  bool served_ = false;
  std::unique_ptr<co::Coordinator> core_;
  std::vector<std::unique_ptr<Link>> links_;
  std::unique_ptr<co::ClientFence> fence_;
  std::map<std::uint64_t, Client> clients_;
  std::uint64_t last_client_ = 0;
};

}  // namespace twofold::sim
