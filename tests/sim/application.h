// A client program: it submits transactions, or works in interactive ones, loses its connection,
// asks again, vanishes and comes back. What it is told is checked by the world's history.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/coordinator_process.h"

namespace twofold::sim {

struct Workload {
  std::size_t keys = 4;                                // at each participant; few are hot
  unsigned interactive = 30, checks = 10, reads = 40;  // per cent
  std::size_t branches_max = 4;
  unsigned client_loss = 3;
  Duration pause{8'000};  // between a client's transactions
};

class Application final : public CoordinatorCaller {
 public:
  Application(Surroundings& world, Host host, std::string name, CoordinatorProcess& coordinator,
              std::vector<Participant*> participants, const Workload& workload);
  ~Application() override;

  void begin();  // and goes on until stop()
  void stop() { stopped_ = true; }
  // Or what it waits for may be lost with its coordinator's log.
  bool idle() const { return !current_ || world_.history.went_back(coordinator_.name()); }
  std::string waits_for() const;  // for people, while not idle

  void welcomed(TxnId newest) override;
  void told(std::uint64_t request, const Outcome& outcome) override;
  void enlisted(std::uint64_t request, co::RmId rm, const Xid& xid) override;

 private:
  class Talk;  // to a participant, in an interactive transaction
  struct Current {
    bool interactive = false;
    std::string request_id;
    std::vector<co::SubmittedBranch> branches;
    TxnId known;
    Time since;
    int attempts = 0;
    bool sent = false;   // on an earlier connection: ask before sending again
    std::string gtrid;   // of an interactive one
    std::size_t at = 0;  // branch that is worked on
    std::vector<co::WorkCount> counts;
    bool ending = false;  // its end has been asked for
  };

  void connect();
  void lost();
  void next();
  void proceed();
  void submit();
  void ask();
  void again(Duration pause);
  void done();
  void vanish();
  void make();
  std::string some_work();
  void ask_of_the_past();
  void check_works(const std::string& gtrid, const std::string& rm, std::uint64_t asked);

  void enlist_next();
  void worked(bool ok, std::uint64_t items);
  void finish(bool commit);

  std::uint64_t send(co::Event event);
  void after(Duration pause, std::function<void()> what);

  Surroundings& world_;
  const Host host_;
  const std::string name_;
  CoordinatorProcess& coordinator_;
  const std::vector<Participant*> participants_;
  const Workload& workload_;

  std::uint64_t client_ = 0, counter_ = 0, requests_ = 0, life_ = 0, attempt_ = 0;
  std::uint64_t request_number_ = 0;
  std::uint64_t last_request_ = 0;  // whose answer is awaited
  std::uint64_t past_request_ = 0;  // the question about what is over
  std::string past_id_;
  std::shared_ptr<Connection> connection_;
  bool welcome_ = false, stopped_ = false, thinking_ = false;
  TxnId newest_;
  std::optional<Current> current_;
  std::unique_ptr<Talk> talk_;
  struct Settled {
    TxnId known;
    Outcome outcome;
    std::vector<co::SubmittedBranch> branches;
  };
  std::map<std::string, Settled> settled_;  // by request id: told for good
};

}  // namespace twofold::sim
