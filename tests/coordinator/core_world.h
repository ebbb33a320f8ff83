// A small world around the coordinator's core, driven at random from a seed: resource managers that
// vote, refuse, lose their links and crash; a log whose unwritten end a crash drops; clients that
// ask again. What must hold is checked as it happens (docs/rules.md: invariants 1 to 3 and 5).
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/coordinator/core_text.h"

namespace twofold::coordinator::test {

class World {
 public:
  World(std::uint64_t seed, Options options);

  void run(int turns);  // with faults
  void heal();          // without: everything must end

  // What was found to be wrong; empty if nothing was.
  const std::vector<std::string>& faults() const { return faults_; }
  const std::vector<std::string>& history() const { return history_; }
  int committed() const { return static_cast<int>(committed_requests_.size()); }
  int crashes() const { return crashes_; }
  int drained() const { return drained_; }

 private:
  enum class State { running, worked, preparing, prepared, read_only, refused, committing };
  struct RmBranch {
    State state = State::running;
    Start start;
    bool old_session = false;  // its verb still runs; the session that asked is gone
    bool wrote = true;
  };
  struct Rm {
    RmId id = 0;
    bool linked = false;
    bool hung_up = false;      // its session is over, and the coordinator has not noticed
    std::deque<Effect> inbox;  // frames on their way here
    std::deque<Event> outbox;  // answers on their way back
    std::map<Xid, RmBranch> branches;
    std::set<Xid> committed;              // outcome rows
    std::map<Xid, RmBranch> rolled_back;  // prepared ones whose rollback is not yet forced (rule 4)
    TxnId mark;
  };
  struct Client {
    std::vector<SubmittedBranch> branches;
    std::optional<TxnId> known;  // when first sent
    bool waiting = false;
    bool settled = false;  // told for good
    std::optional<Verdict> told;
  };

  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  void turn();
  void event(Event event);
  void carry_out(Effect& effect);
  void fault(std::string text) { faults_.push_back(std::move(text)); }
  void note(std::string text) { history_.push_back(std::move(text)); }

  void submit(std::size_t client);
  void ask(std::size_t client);
  void reply(const Reply& reply);
  void flush(bool may_refuse);
  void crash();
  void pass(Duration duration);
  void write(const LogRecord& record);

  void deliver(Rm& rm);              // one frame to a resource manager
  void answer(Rm& rm);               // one answer back
  void progress(Rm& rm, bool sure);  // one verb goes on
  void progress(Rm& rm, const Xid& xid, RmBranch& branch, bool sure);
  void vote(Rm& rm, const Xid& xid, RmBranch& branch, Xa code);
  void drain(Rm& rm);
  void link_up(Rm& rm);
  void hang_up(Rm& rm);
  void end_session(Rm& rm);
  bool at_work(const std::string& gtrid) const;
  void crash(Rm& rm);
  void commit(Rm& rm, const Xid& xid, const RmBranch& branch);
  Xa commit_verb(Rm& rm, const Xid& xid);
  Xa rollback_verb(Rm& rm, const Xid& xid);
  InDoubtListed scan(Rm& rm);
  void check_drain_told(const DrainTold& told);
  OutcomeTold evidence(Rm& rm, const AskOutcome& asked);
  void check_commit(const Commit& effect);
  void check_readers(const std::string& gtrid);
  void check_told(const std::string& gtrid, const Outcome& outcome);
  void check_drained(const std::string& name);
  void check_healed();
  static TxnId id_of(const Xid& xid) { return Gtrid::decode(xid.gtrid)->txn_id(); }

  std::mt19937_64 random_;
  Options options_;
  Epoch epoch_;
  FakeLog log_;
  Time now_{std::chrono::seconds{1}};
  std::optional<Coordinator> core_;
  std::vector<Rm> rms_;
  std::vector<Client> clients_;
  std::deque<Persist> writing_;
  std::deque<Event> written_;  // Durable and Refused, on their way
  std::map<std::string, std::string>
      committed_requests_;                            // request → gtrid, at some resource manager
  std::map<std::string, Verdict> told_;               // by gtrid, for good
  std::map<std::string, std::set<std::string>> yes_;  // gtrid → bquals that voted yes
  std::map<std::string, std::set<std::string>> done_;  // gtrid → bquals that were committed
  std::set<std::string> lost_readers_;                 // gtrids of which a reader ended too early
  std::set<std::string> no_;                           // gtrids with a no vote
  std::vector<std::string> faults_;
  std::vector<std::string> history_;
  int crashes_ = 0;
  int drained_ = 0;
  std::uint64_t asked_ = 0;
  bool calm_ = false;
};

}  // namespace twofold::coordinator::test
