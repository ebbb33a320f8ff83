// What a coordinator asks in order to recover: scans, outcomes, and the low-water mark.
#include <algorithm>

#include "protocol/planted.h"
#include "resource_manager/core/branches_impl.h"

namespace twofold::resource_manager {

namespace {

// In doubt, or soon: a verb of an ended session is still at work on it (rule 15). A branch that the
// current session itself is preparing or committing is not listed: that session waits for the
// answer.
bool listed(const Branch& branch) {
  if (TWOFOLD_PLANTED(busy_taken_as_absent) && branch.state != BranchState::prepared) return false;
  return branch.state == BranchState::prepared || branch.busy;
}

constexpr std::uint32_t kBatchMax = 10'000;  // keeps an answer well below a frame's limit

}  // namespace

// Lists the node's branches whatever their log, so that those of an unknown one are reported (rule
// 2). What is listed is fixed at the start of the scan: a branch that becomes prepared later is for
// the next.
// A rollback that is not durable yet may be undone by a crash; its branch would be listed again
// after a scan that lacked it, and by then the floor may have passed it (rule 6). So a scan waits
// until the rollbacks before it are durable.
void Branches::Impl::on(Recover event) {
  Node* node = session_of_question(event.requester);
  if (!node) return;
  if (!event.start) {
    if (node->scan) return tell_batch(*node, event.requester, event.batch, event.close);
    return emit(
        AnswerFailure{event.requester, "no scan is open in this session: begin one with start"});
  }
  node->scan.reset();
  if (node->waiting_scan) {
    emit(AnswerFailure{node->waiting_scan->requester, "a newer scan was begun in this session"});
    node->waiting_scan.reset();
  }
  if (newest_rollback_ == 0 || TWOFOLD_PLANTED(scan_before_rollbacks_durable)) {
    return begin_scan(*node, event.requester, event.batch, event.close);
  }
  node->waiting_scan = {event.requester, event.batch, event.close, newest_rollback_};
}

// Records become durable in order, so this one tells of all before it.
void Branches::Impl::rollback_durable(std::uint64_t ticket) {
  if (newest_rollback_ == ticket) newest_rollback_ = 0;
  for (auto& [name, node] : nodes_) {
    if (!node.waiting_scan || node.waiting_scan->rollback != ticket) continue;
    const WaitingScan asked = *std::exchange(node.waiting_scan, std::nullopt);
    begin_scan(node, asked.requester, asked.batch, asked.close);
  }
}

void Branches::Impl::begin_scan(Node& node, const Requester& requester, std::uint32_t batch,
                                bool close) {
  node.scan.emplace();
  for (const Branch& branch : node.branches) {
    if (listed(branch)) node.scan->xids.push_back(branch.xid);
  }
  if (TWOFOLD_PLANTED(node_matched_by_prefix)) {
    for (const auto& [name, other] : nodes_) {
      if (&other == &node || !name.starts_with(node.record.node)) continue;
      for (const Branch& branch : other.branches) {
        if (listed(branch)) node.scan->xids.push_back(branch.xid);
      }
    }
  }
  std::sort(node.scan->xids.begin(), node.scan->xids.end());
  tell_batch(node, requester, batch, close);
}

void Branches::Impl::tell_batch(Node& node, const Requester& requester, std::uint32_t asked,
                                bool close) {
  OpenScan& scan = *node.scan;
  AnswerRecover told{requester, {}, false};
  const std::uint32_t batch = std::clamp(asked, 1u, kBatchMax);
  for (; scan.told < scan.xids.size() && told.branches.size() < batch; ++scan.told) {
    const Branch* branch = find(scan.xids[scan.told]);
    if (!branch || !listed(*branch)) continue;  // ended since the scan began
    const Time since = branch->busy ? branch->started : branch->since;
    told.branches.push_back({branch->xid, branch->busy, now_ - since});
  }
  told.end = scan.told == scan.xids.size();
  if (told.end || close) node.scan.reset();
  emit(std::move(told));
}

void Branches::Impl::on(AskOutcome event) {
  using Kind = AnswerEvidence::Kind;
  const Node* node = session_of_question(event.requester);
  if (!node) return;
  const std::optional<Gtrid> gtrid = Gtrid::decode(event.xid.gtrid);
  const TxnId* mark =
      gtrid && event.xid.format_id == kFormatId ? mark_of(node->record, *gtrid) : nullptr;
  if (!mark) return emit(AnswerEvidence{event.requester, Kind::impossible});
  const Branch* branch = find(event.xid);
  if (TWOFOLD_PLANTED(busy_taken_as_absent) && branch && branch->busy) branch = nullptr;
  if (branch) {
    const bool in_doubt = branch->state == BranchState::prepared;
    return emit(AnswerEvidence{event.requester, in_doubt ? Kind::prepared : Kind::busy});
  }
  if (gtrid->txn_id() < *mark) {  // its outcome row may be purged
    return emit(AnswerEvidence{event.requester, Kind::impossible});
  }
  emit(AnswerFromEvidence{event.requester, std::move(event.xid), false, event.store_id});
}

// Stored together with the purge that it permits, so never later (rule 18).
void Branches::Impl::on(Mark event) {
  Node* const session = current_session(event.connection);
  if (!session) return;
  Node& node = *session;
  if (event.low_water <= node.record.low_water) return;
  if (event.low_water.epoch > node.record.epoch) {
    return emit(Alarm{"ignored a low-water mark " + to_text(event.low_water) + " of node " +
                      node.record.node + ", which is in epoch " +
                      std::to_string(node.record.epoch)});
  }
  node.record.low_water = event.low_water;
  persist_node(node, false, true);
}

}  // namespace twofold::resource_manager
