// A resource manager: the shipped branch core over a simulated store.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <variant>

#include "resource_manager/core/branches.h"
#include "tests/sim/process.h"

namespace twofold::sim {

class Participant final : public Process {
 public:
  Participant(Surroundings& world, Host host, std::string name);
  ~Participant() override;

  void boot() override;

  // What arrives over a connection, here.
  struct SessionHello {
    rm::SessionRequested request;
    ParticipantCaller* caller = nullptr;
  };
  void hello(const std::shared_ptr<Connection>& connection, SessionHello hello);
  void client_hello(const std::shared_ptr<Connection>& connection, ParticipantCaller* caller);
  // A verb; `event`'s requester is filled in.
  void request(const std::shared_ptr<Connection>& connection, std::uint64_t request,
               rm::Event event);

  // An operator ends a prepared branch behind the core's back, while the process is down.
  bool end_by_hand();
  std::vector<std::string> leftovers() const;  // after the world has healed
  std::uint64_t deadlocks() const;
  bool in_doubt() const { return alive() && core_->counts().prepared > 0; }

 private:
  struct Prepared {
    std::vector<rm::LockRequest> locks;
    std::map<std::string, Writer> writes;
  };
  struct Image {  // durable
    std::uint64_t store_id = 0;
    std::map<std::string, Writer> rows;
    std::map<Xid, Prepared> prepared;
    std::set<Xid> outcomes;
    std::map<std::string, rm::NodeRecord> nodes;
  };
  struct Pending {  // a branch's work so far, volatile
    Xid xid;
    std::map<std::string, Writer> writes;
    bool wrote = false;
    bool at_work = false;
  };
  struct Peer {
    std::shared_ptr<Connection> connection;
    ParticipantCaller* caller = nullptr;
    bool session = false, welcome = false;
  };
  struct Asked {
    Xid xid;
    bool votes = false;  // XA_OK is a yes
  };
  // What the disk is asked to write.
  struct Change {
    std::variant<rm::PersistPrepare, rm::PersistCommit, rm::PersistRollback, rm::PersistNode> what;
    std::map<std::string, Writer> writes;
  };

  void died(bool power) override;
  void step(rm::Event event);
  void check_queues();
  void closed(rm::ConnectionId id);
  Peer* peer(rm::ConnectionId id);
  rm::ConnectionId id_of(const std::shared_ptr<Connection>& connection) const;
  void fill(rm::Event& event, const rm::Requester& requester);
  rm::Recovered recovered() const;

  void on(const rm::AcceptSession& effect);
  void on(const rm::RefuseSession& effect);
  void on(const rm::CloseConnection& effect);
  void on(rm::Run& effect);
  void ran(rm::BranchId branch, const std::string& work);
  void on(const rm::Discard& effect);
  void on(rm::PersistPrepare& effect);
  void on(rm::PersistCommit& effect);
  void on(rm::PersistRollback& effect);
  void on(rm::PersistNode& effect);
  void on(rm::Answer& effect);
  void on(rm::AnswerRecover& effect);
  void on(rm::AnswerFromEvidence& effect);
  void on(rm::AnswerEvidence& effect);
  void on(rm::AnswerFailure& effect);
  void on(rm::ReportWaits& effect);
  void on(rm::Alarm& effect);
  void tell_evidence(const rm::Requester& requester, co::OutcomeTold::Evidence evidence);
  void submit(Change change, std::uint64_t ticket, bool forced, bool refusable);
  void apply(Change& change);
  void apply_to_rows(const Xid& xid, const std::map<std::string, Writer>& writes);

  Image image_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t deadlocks_ = 0;  // of earlier lives
  Disk<Change> disk_;
  std::unique_ptr<rm::Branches> core_;
  std::map<rm::ConnectionId, Peer> peers_;
  rm::ConnectionId last_connection_ = 0;
  std::map<std::string, Writer> rows_;  // as they are read: applied, perhaps not synced
  std::map<rm::BranchId, Pending> pending_;
  std::map<std::pair<rm::ConnectionId, std::uint64_t>, Asked> asked_;
};

}  // namespace twofold::sim
