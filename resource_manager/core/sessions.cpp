// Sessions (rules 2 and 15): one per coordinator's node, the newest; a newer one fences the older.
#include <algorithm>

#include "protocol/planted.h"
#include "resource_manager/core/branches_impl.h"

namespace twofold::resource_manager {

namespace {

using Why = RefuseSession::Why;

std::string hex(std::uint64_t value) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = digits[value & 15];
  return text;
}

// Rule 2: whether the coordinator's log recorded the epoch that is known here. Of one so old that
// Hello does not go back to it nothing can be said.
bool may_have_recorded(const SessionRequested& request, const NodeRecord& known) {
  const std::uint64_t back = request.epoch - known.epoch - 1;
  if (back >= request.earlier.size()) return request.earlier.size() >= kEarlierEpochsMax;
  return request.earlier[back] == known.nonce;
}

const FormerLog* former_of(const NodeRecord& node, LogId log_id) {
  for (const FormerLog& log : node.former) {
    if (log.log_id == log_id) return &log;
  }
  return nullptr;
}

// What the new record keeps of the logs that the coordinator's log has been, so that their branches
// can still be ended and asked about.
std::vector<FormerLog> former_logs(const NodeRecord& known, const std::vector<LogId>& named) {
  std::vector<FormerLog> former;
  for (const LogId log_id : named) {
    FormerLog& log = former.emplace_back(FormerLog{log_id, {}});
    const FormerLog* before = former_of(known, log_id);
    if (log_id == known.log_id)
      log.low_water = known.low_water;
    else if (before)
      log.low_water = before->low_water;
  }
  return former;
}

}  // namespace

const TxnId* mark_of(const NodeRecord& node, const Gtrid& gtrid) {
  if (TWOFOLD_PLANTED(other_log_presumed_aborted)) return &node.low_water;
  if (gtrid.node != node.node) return nullptr;
  if (gtrid.log_id == node.log_id) return &node.low_water;
  const FormerLog* former = former_of(node, gtrid.log_id);
  return former ? &former->low_water : nullptr;
}

void Branches::Impl::on(SessionRequested event) {
  if (std::optional<RefuseSession> no = refusal(event)) return emit(std::move(*no));
  Node& node = nodes_[event.node];
  if (node.connection != 0) {
    connections_.erase(node.connection);
    emit(CloseConnection{node.connection, "fenced: a newer session of node " + event.node +
                                              " (epoch " + std::to_string(event.epoch) +
                                              ", session " + std::to_string(event.counter) +
                                              ") has taken over"});
  }
  if (node.pending) {
    emit(RefuseSession{node.pending->connection, Why::stale,
                       "a newer session of node " + event.node + " has been asked for meanwhile"});
    drop_pending(node);
  }
  end_session(node);
  record_session(node, event);
  node.pending = PendingSession{event.connection, now_ + options_.fence, false};
  fences_.emplace(node.pending->fence, event.node);
  connections_.emplace(event.connection, &node);
  accept_ = true;
}

std::optional<RefuseSession> Branches::Impl::refusal(const SessionRequested& request) const {
  auto refuse = [&](Why why, std::string text) {
    return RefuseSession{request.connection, why, std::move(text)};
  };
  if (connections_.contains(request.connection)) {
    return refuse(Why::stale, "this connection has asked for a session already: one each");
  }
  if (request.node.empty() || request.node.size() > kNodeBytesMax || request.log_id == LogId{}) {
    return refuse(Why::wrong_log, "a session needs a node name of 1 to " +
                                      std::to_string(kNodeBytesMax) + " bytes and a log id");
  }
  const auto at = nodes_.find(request.node);
  if (at == nodes_.end() || at->second.record.log_id == LogId{}) return std::nullopt;
  const NodeRecord& known = at->second.record;
  if (request.log_id == known.log_id) return refusal_of_epoch(request, at->second);
  const bool restored =
      std::find(request.former.begin(), request.former.end(), known.log_id) != request.former.end();
  if (request.rebuild || restored) return std::nullopt;
  return refuse(Why::wrong_log,
                "node " + request.node + " is known here with log " + hex(known.log_id.value) +
                    ", and the coordinator has log " + hex(request.log_id.value) +
                    ": start it with its own log, or confirm the new one with --rebuild");
}

// Of the log that is known here. An epoch that was here and is not in the coordinator's log proves
// that log an older copy, however high its own epoch has risen since (rule 2).
std::optional<RefuseSession> Branches::Impl::refusal_of_epoch(const SessionRequested& request,
                                                              const Node& node) const {
  const NodeRecord& known = node.record;
  auto refuse = [&](Why why, std::string text) {
    return RefuseSession{request.connection, why, std::move(text)};
  };
  const std::string epoch = "epoch " + std::to_string(request.epoch);
  const std::string known_epoch = "epoch " + std::to_string(known.epoch);
  if (request.epoch < known.epoch) {
    return refuse(Why::outdated, epoch + " of node " + request.node + " is over: " + known_epoch +
                                     " has been here; another coordinator runs with a newer copy "
                                     "of this log, or this log was restored from an older copy");
  }
  if (request.epoch > known.epoch) {
    if (may_have_recorded(request, known)) return std::nullopt;
    return refuse(Why::outdated, known_epoch + " of node " + request.node +
                                     " has been here, and the coordinator's log, in " + epoch +
                                     ", did not record it: another coordinator runs with a newer "
                                     "copy of this log, or this log was restored from an older "
                                     "copy");
  }
  if (request.nonce != known.nonce) {
    return refuse(Why::outdated, epoch + " of node " + request.node +
                                     " has been here from another process: two coordinators run "
                                     "from copies of one log, or this log was restored from an "
                                     "older copy");
  }
  if (request.counter <= node.counter) {
    return refuse(Why::stale, "session " + std::to_string(request.counter) + " of node " +
                                  request.node + " is not newer than session " +
                                  std::to_string(node.counter) + ": open a new one");
  }
  return std::nullopt;
}

// A new log or epoch must be durable before its session is accepted: an older one must be refused
// for ever after. What is not forced yet of the same log and epoch, an earlier request is still
// waiting for.
void Branches::Impl::record_session(Node& node, const SessionRequested& request) {
  NodeRecord& known = node.record;
  const bool same_log = request.log_id == known.log_id;
  node.counter = request.counter;
  if (same_log && request.epoch == known.epoch) return;
  std::vector<FormerLog> former = former_logs(known, request.former);
  known = {request.node,
           request.log_id,
           request.epoch,
           request.nonce,
           same_log ? known.low_water : TxnId{},
           std::move(former)};
  persist_node(node, true, false);
}

void Branches::Impl::persist_node(Node& node, bool forced, bool purge) {
  const std::uint64_t ticket = make_ticket(++newest_node_ticket_, TicketKind::node);
  if (forced) node.ticket = ticket;
  emit(PersistNode{ticket, node.record, forced, purge});
}

// ---- the end of a session ---------------------------------------------------------------------

void Branches::Impl::on(ConnectionClosed event) {
  auto at = connections_.find(event.connection);
  if (at == connections_.end()) return client_gone(event.connection);
  Node& node = *at->second;
  connections_.erase(at);
  if (node.connection == event.connection) return end_session(node);
  drop_pending(node);
}

void Branches::Impl::end_session(Node& node) {
  node.connection = 0;
  node.scan.reset();
  node.waiting_scan.reset();
  node.told_waits.clear();
  for (auto at = node.branches.begin(); at != node.branches.end();) {
    Branch& branch = *at++;  // it may be destroyed
    end_with_session(branch);
  }
}

// Rule 15. A verb that is with the adapter cannot be called back: its branch goes on, busy, until
// that has ended. Unvoted work is then thrown away; a prepare goes on to its vote, since a prepared
// record that may be durable is the coordinator's to decide about.
void Branches::Impl::end_with_session(Branch& branch) {
  switch (branch.state) {
    case BranchState::waiting:
    case BranchState::active:
    case BranchState::read_only:
    case BranchState::rollback_only:
      ++counts_.fenced;
      ++counts_.rolled_back;
      if (branch.interactive) {  // its clients are still there
        answer_asked(branch, Xa::rbrollback,
                     "the coordinator's session ended, and with it what was undecided: try again");
      }
      return discard(branch);
    case BranchState::running: set_state(branch, BranchState::rolling_back); [[fallthrough]];
    case BranchState::preparing:
    case BranchState::committing:
    case BranchState::rolling_back:
      if (branch.busy) return;
      ++counts_.fenced;
      branch.busy = true;
      ++branch.node->busy;
      return;
    case BranchState::prepared: return;
  }
}

void Branches::Impl::drop_pending(Node& node) {
  if (!node.pending) return;
  connections_.erase(node.pending->connection);
  fences_.erase({node.pending->fence, node.record.node});
  node.pending.reset();
}

// ---- the beginning of one ---------------------------------------------------------------------

// A pending session begins once its log and epoch are durable, and the older session's verbs have
// ended or the fence is over (rule 15).
void Branches::Impl::accept_sessions() {
  if (!accept_) return;
  accept_ = false;
  for (auto& [name, node] : nodes_) {
    if (!node.pending) continue;
    const bool fence_over = node.pending->fence_over || node.pending->fence <= now_;
    if (node.ticket != 0) {
      if (fence_over) refuse_unrecorded(node);
      continue;
    }
    if (node.busy > 0 && !fence_over) continue;
    fences_.erase({node.pending->fence, name});
    node.connection = node.pending->connection;
    node.pending.reset();
    emit(AcceptSession{node.connection});
  }
}

// The record is still to be written, so a later request need not wait for it again. Whoever asks is
// told why it has to, in place of waiting without a word.
void Branches::Impl::refuse_unrecorded(Node& node) {
  const std::string why =
      room_ ? "the write takes long" : "there is no room on its disk: make some";
  emit(RefuseSession{node.pending->connection, Why::busy,
                     options_.name + " has to record epoch " + std::to_string(node.record.epoch) +
                         " of node " + node.record.node + " before its session begins, and " +
                         why});
  drop_pending(node);
}

}  // namespace twofold::resource_manager
