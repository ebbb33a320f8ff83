// The inside of the two-phase commit core. Only coordinator/core/*.cpp include it:
//   submission.cpp  what clients ask for: submissions, outcomes, shutdown
//   interactive.cpp what clients ask for of interactive transactions
//   waits.cpp       deadlocks across resource managers
//   voting.cpp      first phase: votes, refusals, the decision, one-phase commits, timeouts
//   phase_two.cpp   second phase: acknowledgements, retries, heuristics, the end of a transaction
//   membership.cpp  who takes part: participants and their stores, draining
//   recovery.cpp    links, and the initial state that the log's records give
//   scans.cpp       what scans list and do not list, evidence, and whose a branch is
//   views.cpp       what a person is shown
#pragma once

#include <deque>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "coordinator/core/outcomes.h"
#include "coordinator/core/scan_clock.h"
#include "coordinator/core/transaction.h"

namespace twofold::coordinator {

class Coordinator::Impl {
 public:
  Impl(Options options, Epoch epoch, Recovered recovered, Time now);

  void step(Event& event, Time now, std::vector<Effect>& effects);
  std::optional<Time> next_deadline() const;

  TxnId newest() const { return {epoch_.current.number, sequence_}; }
  TxnId low_water() const;
  TxnId floor() const { return outcomes_.floor(); }
  Counts counts() const;

  std::vector<TransactionView> list(bool with_ended, std::size_t entries_max) const;
  std::optional<TransactionView> show(TxnId id) const;
  std::optional<TransactionView> show_gtrid(std::string_view gtrid) const;
  std::optional<TransactionView> show_request(std::string_view request_id) const;
  ParticipantView participant(RmId rm, bool with_open) const;
  std::optional<RmId> find_participant(std::string_view name) const;

 private:
  using Verb = Acknowledged::Verb;

  struct ResourceManager {
    std::string name;
    bool linked = false;
    std::uint64_t incarnation = 0;
    // As recorded, or being recorded.
    std::uint64_t store_id = 0;  // 0: it has never been seen
    Participant::State state = Participant::State::active;
    std::optional<std::uint64_t> recording;  // the ticket of the newest record with a change here
    std::optional<std::uint64_t> recording_store;  // of the record that has this store first
    std::optional<LinkUp> arriving;                // waits for that one
    bool barred = false;                           // its session leads to another store
    bool accept_store = false;
    std::uint64_t draining_since = 0;    // scan clock: only later scans tell that it is drained
    std::uint64_t last_end = 0;          // scan clock: likewise, of the last branch to end there
    std::vector<Requester> drain_asked;  // wait until nothing is being recorded
    std::size_t listed = 0;              // own branches that the last complete scan named
    std::optional<std::uint64_t> scan;   // the outstanding one's number
    bool scan_again = false;             // as soon as that one is answered: it began too early
    std::uint32_t scans_failed = 0;      // in a row
    Time next_scan{};
    std::optional<TxnId> mark_sent;     // on this session
    std::set<BranchKey> unsure;         // branches of live transactions, unsure or asking
    std::set<Xid> orphans;              // asked to end in this session, and not answered yet
    std::set<Xid> alarmed;              // listed here, reported, and still listed
    bool alarmed_enough = false;        // it was reported that there are more
    std::multimap<TxnId, TxnId> waits;  // waiter → holder, as last reported
  };
  // A transaction and its branch; null if it is no longer live, or never was.
  struct Found {
    Transaction* txn = nullptr;
    Branch* branch = nullptr;
  };
  // What a ticket stands for.
  struct Pending {
    enum class Kind : std::uint8_t {
      intent,
      decision,
      refusal,
      end,
      heuristic,
      purge,
      participants
    };
    Kind kind = Kind::end;
    TxnId id;
  };
  struct Heuristic {
    HeuristicRecord record;
    bool durable = false;
  };
  // Of a heuristic whose record is being written. Key {0,0}: its transaction is no longer live.
  struct HeuristicWait {
    RmId rm = kNoRm;
    BranchKey branch;
    Xid xid;
    bool forget = false;  // the resource manager remembers it until told to forget
  };
  struct Retry {
    Time at;
    BranchKey branch;
    auto operator<=>(const Retry&) const = default;
  };

  // Events; each changes nothing if it no longer matters.
  void on(Submit& event);
  void on(Begin& event);
  void on(Enlist& event);
  void on(CommitRequested& event);
  void on(RollbackRequested& event);
  void on(WaitsReported& event);
  void on(WorkDone& event);
  void on(Voted& event);
  void on(Acknowledged& event);
  void on(Durable& event);
  void on(Refused& event);
  void on(InDoubtListed& event);
  void on(OutcomeTold& event);
  void on(OutcomeAsked& event);
  void on(Drain& event);
  void on(LinkUp& event);
  void on(LinkDown& event);
  void on(SpaceChanged& event) { room_ = event.room; }
  void on(Tick& event);
  void on(Shutdown& event);

  // submission.cpp
  bool answer_known(const Submit& event, std::uint64_t hash);
  std::optional<std::string> malformed(const Submit& event) const;
  const ResourceManager* away(const Submit& event) const;
  bool may_begin(Requester requester);
  Transaction& create(Duration timeout, Duration age);
  void add_branch(Transaction& txn, RmId rm, std::string work);
  void begin(Submit& event, std::uint64_t hash);
  void reject(Requester requester, Reason reason, std::string detail);
  void ask_gtrid(const OutcomeAsked& event);
  void ask_request(const OutcomeAsked& event);
  void join(Transaction& txn, Waiter waiter);
  void reply(Requester requester, Outcome outcome);
  void tell(Transaction& txn, bool ended);  // whom it may be told; all of them if it has ended
  Outcome outcome_of(const Transaction& txn, bool ended) const;
  Outcome outcome_of(TxnId id, const KeptOutcome& kept) const;
  Outcome outcome_of_unknown(std::string_view gtrid, const Gtrid& parts) const;

  // interactive.cpp
  Transaction* active_of(Requester requester, const std::string& gtrid, bool at_end, bool ask);
  void enlisted(Transaction& txn, Branch& branch);

  // waits.cpp
  std::vector<TxnId> holders_for(TxnId waiter) const;
  std::vector<TxnId> circle_of(TxnId waiter) const;
  bool is_undecided(TxnId id) const;
  bool can_wait(TxnId id) const;

  // voting.cpp. Those marked * may end the transaction: it may be gone afterwards.
  void start_branches(Transaction& txn);
  void intend(Transaction& txn);
  void start_branch(Transaction& txn, Branch& branch, Then then);
  void said_no(Transaction& txn, Branch& branch, Voted&& no);  // *
  void check_answers(Transaction& txn);                        // *
  void prepare_branches(Transaction& txn);
  void release_readers(Transaction& txn);
  void released(Transaction& txn, Branch& branch, const Acknowledged& event);  // *
  void decide(Transaction& txn);
  void only_read(Transaction& txn);                                 // *
  void refuse(Transaction& txn);                                    // *
  void abort(Transaction& txn, Reason reason, std::string detail);  // *
  void roll_back_branches(Transaction& txn);
  void leave_undecided(Transaction& txn);
  void time_out(Transaction& txn);                                                 // *
  void intent_durable(Transaction& txn);                                           // *
  void one_phase_answered(Transaction& txn, Branch& branch, Acknowledged& event);  // *
  void committed_in_one_phase(Transaction& txn);                                   // *
  void decided(Transaction& txn);                                                  // *

  // phase_two.cpp
  void end_branch(Transaction& txn, Branch& branch, Verb verb);
  void send(RmId rm, BranchKey key, Xid xid, Verb verb, bool awaited = false);
  void become_unsure(Transaction& txn, Branch& branch);
  void retry_later(Transaction& txn, Branch& branch);
  void branch_done(Transaction& txn, Branch& branch);
  void answered(Transaction& txn, Branch& branch, const Acknowledged& event);  // *
  void orphan_answered(const Acknowledged& event);
  // The branch's end waits for the log.
  void end_heuristically(Transaction& txn, Branch& branch, Xa code, bool forget);
  void keep_heuristic(HeuristicRecord record, HeuristicWait wait);
  void heuristic_durable(std::uint64_t ticket);  // *
  void finish_if_done(Transaction& txn);         // *
  void finish(Transaction& txn);                 // *
  void purge();

  // membership.cpp
  bool admit(const LinkUp& event);
  void bar(RmId rm, std::uint64_t store_id);
  bool takes_new(const ResourceManager& rm) const;
  std::string why_not(const ResourceManager& rm) const;
  std::vector<TxnId> open_at(RmId rm) const;
  void begin_draining(RmId rm);
  void record_participant(RmId rm);
  void participants_recorded(std::uint64_t ticket);
  void settle_drained(const InDoubtListed& complete, std::uint64_t scan);

  // recovery.cpp
  void link_up(const LinkUp& event);
  void recover(IntentRecord& record, Time now);
  void recover(CommitRecord& record, Time now);
  Transaction& recovered(TxnId id, std::string& gtrid, RequestRef& request, Time now);
  void recover_branch(Transaction& txn, BranchRecord& record);
  void resume_at_start();
  void lost_session(Transaction& txn, Branch& branch);  // *

  // scans.cpp
  void want_scan(RmId rm);
  void scan(RmId rm);
  std::optional<TxnId> lowest_listed(const InDoubtListed& event) const;
  void consult(RmId rm, const ListedBranch& listed, std::uint64_t scan, std::set<Xid>& alarmed);
  void consult_live(Transaction& txn, RmId rm, const ListedBranch& listed, std::uint64_t scan,
                    std::set<Xid>& alarmed);
  void consult_ended(const Gtrid& gtrid, RmId rm, const ListedBranch& listed,
                     std::set<Xid>& alarmed);
  void end_orphan(RmId rm, const Xid& xid, Verb verb);
  void alarm_listed(RmId id, const Xid& xid, std::set<Xid>& alarmed, std::string_view what);
  void settle_unlisted(RmId rm, std::uint64_t scan);  // *
  void ask_evidence(Transaction& txn, Branch& branch);
  std::optional<Gtrid> of_this_node(const Xid& xid) const;
  bool recorded(const Gtrid& gtrid) const;
  const FormerLog* former_log(const Gtrid& gtrid) const;
  bool own_log(const Gtrid& gtrid) const;
  bool decision_may_be_lost(const Gtrid& gtrid) const;
  bool issued(const Gtrid& gtrid) const;
  const Heuristic* heuristic_of(TxnId id, const Xid& xid) const;

  // coordinator.cpp
  void retry_branches();  // *
  void scan_periodically();
  void send_marks();
  void alarm_oldest();
  std::uint64_t persist(LogRecord record, bool forced, bool refusable, Pending pending);
  void enter(Transaction& txn, Phase phase);
  void alarm(std::string text);
  Transaction* live(TxnId id);
  const Transaction* live(TxnId id) const;
  Found find(BranchKey key);
  void unlink_request(const Transaction& txn);
  std::string rm_name(const Branch& branch) const;
  Duration pause(std::uint32_t attempts) const;
  Xid xid(const Transaction& txn, const Branch& branch) const {
    return {kFormatId, txn.gtrid, branch.bqual};
  }
  BranchKey key(const Transaction& txn, const Branch& branch) const {
    return {txn.id, branch.index};
  }
  template <class Kind>
  void emit(Kind effect) {
    effects_->emplace_back(std::move(effect));
  }

  // views.cpp
  TransactionView view(const Transaction& txn) const;
  TransactionView view(TxnId id, const KeptOutcome& kept) const;
  const Transaction* trace(TxnId id) const;
  std::optional<TransactionView> view(TxnId id) const;
  std::optional<TransactionView> view_of_unknown(const Gtrid& parts) const;
  std::optional<Gtrid> gtrid_of(TxnId id) const;

  Options options_;
  Epoch epoch_;
  std::uint64_t sequence_ = 0;
  std::uint64_t ticket_ = 0;
  bool room_ = true;
  bool shutting_down_ = false;
  bool purging_ = false;  // one PurgeRecord at a time

  std::vector<ResourceManager> rms_;
  std::unordered_map<std::string_view, RmId> rm_ids_;  // never iterated
  Participants former_participants_;                   // recorded, and no longer configured
  std::map<TxnId, Transaction> live_;
  std::unordered_map<std::string_view, TxnId> live_requests_;  // views into live_; never iterated
  std::set<TxnId> ends_not_durable_;                           // no longer live, but for the mark
  std::unordered_map<std::uint64_t, Pending> pending_;         // by ticket; never iterated
  std::map<std::uint64_t, HeuristicWait> heuristic_waits_;     // by ticket
  std::map<TxnId, std::vector<Heuristic>> heuristics_;
  std::set<std::pair<Time, TxnId>> deadlines_;  // of the undecided
  std::set<Retry> retries_;
  ScanClock clock_;
  Outcomes outcomes_;
  std::deque<Transaction> traces_;  // ended; newest last
  Time next_mark_{};
  TxnId mark_alarmed_;  // the last one that was alarmed for holding the mark back
  Counts counts_;
  std::vector<std::string> startup_alarms_;
  std::vector<TxnId> startup_done_;  // recovered, and nothing is left to do but to end them

  Time now_{};                              // of the current step
  std::vector<Effect>* effects_ = nullptr;  // of the current step
};

}  // namespace twofold::coordinator
