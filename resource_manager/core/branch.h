// What the branch core keeps of a branch and of a coordinator's node. Internal to the core.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "resource_manager/core/branches.h"
#include "resource_manager/core/events.h"

namespace twofold::resource_manager {

struct Node;

// A client's thread of control.
struct Thread {
  ConnectionId connection = 0;
  std::uint64_t number = 0;
  auto operator<=>(const Thread&) const = default;
};

// What clients asked of an interactive branch, done one after the other.
struct Item {
  enum class Kind : std::uint8_t { join, resume, work, end } kind = Kind::work;
  Requester requester;
  Thread thread;
  End::Flag flag = End::Flag::success;
  std::string work;
  std::vector<LockRequest> locks;
  std::vector<Refusal> invalid;
};

// Why a branch can only be rolled back, for whoever asks it to prepare.
struct No {
  Xa code = Xa::rbrollback;
  std::string text;
  std::vector<Refusal> refusals;
};

struct Branch {
  BranchId id = 0;
  Xid xid;
  Node* node = nullptr;
  BranchState state = BranchState::waiting;
  Then then = Then::nothing;
  bool read_only_vote = true;
  bool wrote = false;
  bool frees = false;        // as Ran says
  bool handed = false;       // the adapter has been given its work, so it must be told of its end
  bool at_work = false;      // its Run has not been answered by Ran
  bool interactive = false;  // clients bring its work
  bool busy = false;         // an ended session's verb is still with the adapter (rule 15)
  std::uint64_t work_items = 0;    // done (rule 10)
  std::uint64_t ticket = 0;        // of the persist effect whose answer matters; 0: none
  std::string work;                // until it runs
  std::vector<LockRequest> locks;  // until they are asked for
  std::string results;             // until they are answered
  std::optional<Requester> asked;  // waits for the work, the vote or the one-phase commit
  std::vector<Requester> closing;  // wait for the end: Commit or Rollback
  std::deque<Item> items;          // of an interactive branch, behind what is under way
  std::set<Thread> joined, suspended;
  std::set<ConnectionId> clients;  // that have ever joined
  std::optional<No> no;            // with rollback_only
  Time born;         // its request's first attempt: the youngest is a deadlock's victim
  Time waits_since;  // while waiting
  Time started;
  Time since;                 // of the vote, once prepared
  Time deadline;              // its own (rule 10)
  std::optional<Time> alarm;  // its entry among the deadlines: only while waiting or active
};

// A session that has been asked for and cannot be accepted yet (rule 15).
struct PendingSession {
  ConnectionId connection = 0;
  Time fence;
  bool fence_over = false;
};

// What was listed at a scan's start, and how much of it has been told.
struct OpenScan {
  std::vector<Xid> xids;
  std::size_t told = 0;
};

// A Recover that waits until the rollbacks before it are durable.
struct WaitingScan {
  Requester requester;
  std::uint32_t batch = 0;
  bool close = false;
  std::uint64_t rollback = 0;  // the ticket of the newest of them
};

// The low-water mark of the log that made this gtrid, if it is the node's: its own or a former one
// (rule 2). null: another node's, or another log's.
const TxnId* mark_of(const NodeRecord& node, const Gtrid& gtrid);

struct Node {
  NodeRecord record;            // as last handed to the adapter; log_id 0: never seen
  std::uint64_t counter = 0;    // of the newest session of record.epoch that was asked for
  ConnectionId connection = 0;  // the current session's; 0: there is none
  std::optional<PendingSession> pending;
  std::uint64_t ticket = 0;                 // of the forced record that is not durable yet; 0: none
  std::size_t busy = 0;                     // branches that are
  std::list<Branch> branches;               // oldest first
  std::optional<OpenScan> scan;             // of the current session
  std::optional<WaitingScan> waiting_scan;  // likewise
  std::set<BranchId> long_waits;            // have waited for kLongWait, and may wait still
  std::vector<WaitEdge> told_waits;         // in this session
  std::optional<Time> report_at;            // when it is looked at them next
};

// Whose answer a persist effect's ticket brings. Branch tickets name their branch, so no table is
// kept.
enum class TicketKind : std::uint8_t { prepare, commit, rollback, node };
constexpr std::uint64_t make_ticket(std::uint64_t number, TicketKind kind) {
  return number * 4 + static_cast<std::uint64_t>(kind);
}
constexpr TicketKind ticket_kind(std::uint64_t ticket) {
  return static_cast<TicketKind>(ticket % 4);
}
constexpr BranchId ticket_branch(std::uint64_t ticket) {
  return ticket / 4;
}

}  // namespace twofold::resource_manager
