// The branch core's inside, one class over several files by subject: branches.cpp (a branch's
// life), verbs.cpp (what a coordinator asks of a branch), threads.cpp (what clients do in one),
// waits.cpp (deadlocks), recovery.cpp (scans, outcomes, marks) and sessions.cpp (who may ask).
#pragma once

#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "protocol/check.h"
#include "protocol/planted.h"
#include "resource_manager/core/branch.h"

namespace twofold::resource_manager {

class Branches::Impl {
 public:
  Impl(Options options, Recovered recovered, Time now);

  void step(Event event, Time now, std::vector<Effect>& effects);
  std::optional<Time> next_deadline() const;
  const LockTable& locks() const { return locks_; }
  std::optional<BranchView> view(BranchId id, Time now) const;
  std::vector<BranchView> in_doubt(Time now) const;
  Counts counts() const;

 private:
  using BranchList = std::list<Branch>;

  // ---- one per event --------------------------------------------------------------------------
  void on(SessionRequested event);
  void on(ConnectionClosed event);
  void on(Start event);
  void on(Prepare event);
  void on(Commit event);
  void on(Rollback event);
  void on(Release event);
  void on(Forget event);
  void on(Recover event);
  void on(AskOutcome event);
  void on(Mark event);
  void on(Join event);
  void on(Execute event);
  void on(End event);
  void on(Ran event);
  void on(Persisted event);
  void on(Refused event);
  void on(SpaceChanged event);
  void on(Tick event);

  // ---- a branch's life (branches.cpp) ---------------------------------------------------------
  Branch& create(Node& node, Start& start);
  void run(Branch& branch);
  void vote(Branch& branch);
  void prepared(Branch& branch);
  bool lacks_room(const Branch& branch) const;
  void vote_no_room(Branch& branch);
  void commit_prepared(Branch& branch, bool awaited);
  void commit_one_phase(Branch& branch);
  void committed(Branch& branch);
  void roll_back_prepared(Branch& branch);
  void finish_rollback(Branch& branch);
  void ran_badly(Branch& branch, Ran& ran);
  void doom(Branch& branch, Xa code, std::string text);

  void set_state(Branch& branch, BranchState state);
  void set_alarm(Branch& branch, Time at);
  void clear_alarm(Branch& branch);
  void verb_ended(Branch& branch);
  void release_locks(Branch& branch);
  // The next two destroy the branch. discard() tells the adapter, where it knows the branch.
  void discard(Branch& branch);
  void end(Branch& branch);

  void expire();
  void expire(Branch& branch);
  void run_ready();

  Branch* find(BranchId id);
  const Branch* find(BranchId id) const;
  Branch* find(const Xid& xid);

  // ---- what clients do in an interactive branch (threads.cpp) ----------------------------------
  void take(const Xid& xid, Item item);
  Branch* client_target(const Requester& requester, const Xid& xid);
  void next_item(Branch& branch);
  void carry_out(Branch& branch, Item& item);
  void join(Branch& branch, const Item& item);
  void begin_work(Branch& branch, Item& item);
  void end_part(Branch& branch, const Item& item);
  std::size_t more_locks(const Branch& branch, const std::vector<LockRequest>& locks) const;
  void work_done(Branch& branch);
  void drop_items(Branch& branch, Xa code, const std::string& text);
  void leave_threads(Branch& branch);
  void client_gone(ConnectionId connection);
  void client_gone(Branch& branch, ConnectionId connection);

  // ---- deadlocks (waits.cpp) ------------------------------------------------------------------
  bool acquire(Branch& branch);  // true: it holds its locks; else it waits, or has been ended
  void break_circles(BranchId waiter);
  struct Circle {
    std::vector<Branch*> waiters;
    bool own = false;  // closed by another branch of the waiter's own transaction
  };
  std::string describe_blocker(const Branch& branch) const;
  std::string describe_wait(const Branch& branch) const;
  Circle circle_of(Branch& waiter);
  void end_victim(Branch& victim, const Branch& waiter);
  void note_long_wait(BranchId id, Time since);
  void report_waits();
  void report_waits(Node& node);

  // ---- verbs (verbs.cpp) ----------------------------------------------------------------------

  // A verb's target, as the session it came in sees it. `branch` is null if it is not here.
  struct Target {
    Node& node;
    Branch* branch;
    bool below_mark;
  };
  Node* current_session(ConnectionId connection) const;
  Node* session_of(const Requester& requester);           // none: answered XAER_PROTO
  Node* session_of_question(const Requester& requester);  // none: answered by a Failure
  std::optional<Target> target(const Requester& requester, const Xid& xid);
  // Adds to start.invalid what a limit forbids for good.
  bool may_start(Node& node, Start& start);
  Refusal too_many_locks(std::size_t locks) const;
  std::optional<Target> known_target(const Requester& requester, const Xid& xid);
  bool may_vote(Branch& branch, const Requester& requester, std::string_view verb,
                std::uint64_t incarnation, std::uint64_t work_items);

  void answer(const Requester& requester, Xa code, std::string text = {});
  void answer_no(const Requester& requester, const Branch& branch);
  void wrong_state(const Requester& requester, std::string_view verb, const Branch& branch);
  void refuse_start(const Start& start, Xa code, std::string text);
  // Answers whoever waits for the branch's work or vote; takes the results along if code is not a
  // rollback. Nobody waits: nothing.
  void answer_asked(Branch& branch, Xa code, std::string text = {}, bool no_room = false,
                    std::vector<Refusal> refusals = {});
  void answer_closing(Branch& branch, Xa code, std::string_view text = {}, bool no_room = false);

  // ---- scans (recovery.cpp) -------------------------------------------------------------------
  void rollback_durable(std::uint64_t ticket);
  void begin_scan(Node& node, const Requester& requester, std::uint32_t batch, bool close);
  void tell_batch(Node& node, const Requester& requester, std::uint32_t batch, bool close);

  // ---- sessions (sessions.cpp) ----------------------------------------------------------------
  std::optional<RefuseSession> refusal(const SessionRequested& request) const;
  std::optional<RefuseSession> refusal_of_epoch(const SessionRequested& request,
                                                const Node& node) const;
  void record_session(Node& node, const SessionRequested& request);
  void end_session(Node& node);
  void end_with_session(Branch& branch);
  void drop_pending(Node& node);
  void accept_sessions();
  void refuse_unrecorded(Node& node);
  void persist_node(Node& node, bool forced, bool purge);

  template <class E>
  void emit(E effect) {
    effects_->emplace_back(std::move(effect));
  }

  const Options options_;
  Time now_;  // of the step under way, as the next
  std::vector<Effect>* effects_ = nullptr;

  LockTable locks_;
  std::map<std::string, Node> nodes_;                    // few
  std::unordered_map<ConnectionId, Node*> connections_;  // of current and pending sessions
  std::unordered_map<BranchId, BranchList::iterator> by_id_;
  // By gtrid, as views into the branches: one branch of a transaction, rarely more. Only ever
  // searched within one gtrid, where the order does not matter.
  std::unordered_multimap<std::string_view, Branch*> by_gtrid_;
  std::set<std::pair<Time, BranchId>> deadlines_;
  std::map<Thread, BranchId> threads_;                  // joined, not suspended
  std::map<ConnectionId, std::set<BranchId>> clients_;  // which branches they have had a part in
  std::set<std::pair<Time, BranchId>> long_at_;         // when a wait has lasted kLongWait
  std::set<std::pair<Time, std::string>> fences_;       // of pending sessions, by node
#ifdef TWOFOLD_PLANTED_BUGS
  std::vector<PersistCommit> late_;  // unlocked_before_it_is_queued
#endif
  std::vector<BranchId> ready_;  // granted all their locks in this step
  BranchId newest_branch_ = 0;
  std::uint64_t newest_node_ticket_ = 0;
  std::uint64_t newest_rollback_ = 0;  // the ticket of the newest that is not durable; 0: all are
  bool room_ = true;
  bool accept_ = false;  // a pending session may have become acceptable
  Counts counts_;
};

}  // namespace twofold::resource_manager
