// What happened in a world, judged as it happens: invariants 1 to 3, 5 and 6 (docs/rules.md). It
// sees what is durable, what resource managers did, and what clients were told; it does not know
// which bug, if any, has been planted.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "log/record.h"
#include "protocol/outcome.h"
#include "protocol/time.h"
#include "protocol/xid.h"

namespace twofold::sim {

using Writer = std::size_t;  // a transaction, as a version's maker; 0: nobody

class History {
 public:
  // ---- what is durable at a coordinator
  void logged(const LogRecord& record);
  // Its log is lost, or an older copy of it: what it had decided may be forgotten, by name. If
  // nobody said so, nothing can be promised (rule 2).
  void log_went_back(const std::string& node, bool said);

  // ---- what branches did
  void started(const Xid& xid);
  void ran(const Xid& xid);  // one work, well
  void read(const Xid& xid, const std::string& key, Writer version);
  void voted(const Xid& xid, bool yes, bool read_only);
  void prepared(const Xid& xid);                 // durably
  void commits(const Xid& xid, bool one_phase);  // its writes can be read from now on
  void committed(const Xid& xid);                // durably
  void rolls_back(const Xid& xid);               // a prepared one
  void applied(const std::string& rm, const std::string& key, Writer writer);
  // A crash: of each key's versions, those after `last` are gone.
  void cut(const std::string& rm, const std::string& key, Writer last);
  void by_hand(const Xid& xid, bool commit);  // an operator ended it

  // ---- what clients were told
  void told(const Outcome& outcome);
  void gave_up(const std::string& request);  // its client was told that nothing has happened

  // ---- at the end
  void judge();
  void fault(std::string text, const std::string& gtrid = {});

  Writer writer(const std::string& gtrid);
  std::uint64_t works(const std::string& gtrid, const std::string& rm) const;
  bool decided_commit(const std::string& gtrid) const;
  bool excused(const std::string& gtrid) const;  // its log went back, or an operator meddled
  bool went_back(const std::string& node) const { return went_back_.contains(node); }
  const std::vector<std::string>& faults() const { return faults_; }
  const std::string& suspect() const { return suspect_; }  // the first fault's gtrid
  std::size_t transactions() const { return ended_.size(); }
  std::size_t commits_told() const { return commits_told_; }
  std::size_t transactions_committed() const;

 private:
  struct Branch {
    bool yes = false, read_only = false, no = false, prepared = false;
    bool commits = false, committed = false, one_phase = false, rolled_back = false;
    bool by_hand = false, reported = false;
    std::uint64_t works = 0;
  };
  struct Transaction {
    std::string gtrid;
    Writer writer = 0;
    std::map<std::string, Branch> branches;  // by bqual
    std::set<std::string> named;             // by a durable commit record
    bool commit = false, intent = false, ended = false;
    bool by_hand = false;
    std::string request;
    std::optional<Verdict> told;
    std::vector<std::pair<std::string, Writer>> reads;  // of "rm/key"
  };
  Transaction& of(const std::string& gtrid);
  Branch& of(const Xid& xid) { return of(xid.gtrid).branches[xid.bqual]; }
  void judge_atomicity();
  void judge_order();
  void carried_out(Transaction& txn);
  bool took_effect(const Transaction& txn) const;
  bool promised(const std::string& gtrid) const { return !silently_.contains(node_of(gtrid)); }
  static std::string node_of(const std::string& gtrid);

  std::map<std::string, Transaction> transactions_;
  std::vector<std::string> by_writer_{""};
  std::map<std::string, std::vector<Writer>> versions_;    // by "rm/key", oldest first
  std::map<std::string, std::string> requests_committed_;  // request → gtrid
  std::set<std::string> given_up_;                         // requests
  std::set<std::string> went_back_;                        // nodes
  std::set<std::string> silently_;                         // those of them of which nobody said so
  std::set<std::string> ended_;                            // gtrids that were told for good
  std::vector<std::string> faults_;
  std::string suspect_;
  std::size_t commits_told_ = 0;
};

// For people: "1.17", as in the golden scripts.
std::string id_of(const std::string& gtrid);

}  // namespace twofold::sim
