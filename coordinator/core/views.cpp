// What a person is shown.
#include <algorithm>
#include <iterator>
#include <utility>

#include "coordinator/core/impl.h"

namespace twofold::coordinator {

TransactionView Coordinator::Impl::view(const Transaction& txn) const {
  TransactionView view;
  view.id = txn.id;
  view.gtrid = txn.gtrid;
  view.request_id = txn.request.id;
  view.phase = txn.phase;
  view.outcome = outcome_of(txn, txn.phase == Phase::ended);
  for (const Branch& branch : txn.branches) {
    view.branches.push_back({rm_name(branch), xid(txn, branch), branch.state, branch.vote});
  }
  view.phases = txn.phases;
  view.started = txn.started;
  return view;
}

TransactionView Coordinator::Impl::view(TxnId id, const KeptOutcome& kept) const {
  TransactionView view;
  view.id = id;
  view.gtrid = kept.gtrid;
  view.request_id = kept.request.id;
  view.outcome = outcome_of(id, kept);
  for (const std::string& bytes : kept.bquals) {
    const auto bqual = Bqual::decode(bytes);
    view.branches.push_back(
        {bqual ? bqual->rm : "?", {kFormatId, kept.gtrid, bytes}, BranchState::done, std::nullopt});
  }
  return view;
}

const Transaction* Coordinator::Impl::trace(TxnId id) const {
  const auto found = std::find_if(traces_.rbegin(), traces_.rend(),
                                  [id](const Transaction& txn) { return txn.id == id; });
  return found == traces_.rend() ? nullptr : &*found;
}

// Live, recently ended, or kept.
std::optional<TransactionView> Coordinator::Impl::view(TxnId id) const {
  if (const Transaction* txn = live(id)) return view(*txn);
  if (const Transaction* txn = trace(id)) return view(*txn);
  if (const KeptOutcome* kept = outcomes_.find(id)) return view(id, *kept);
  return std::nullopt;
}

// Of what has left no trace a question for its outcome is answered all the same (rule 8), and so is
// this: an id and its gtrid, here and there, must not be told different things.
std::optional<TransactionView> Coordinator::Impl::view_of_unknown(const Gtrid& parts) const {
  if (!own_log(parts) || !recorded(parts) || !issued(parts)) return std::nullopt;
  TransactionView view;
  view.id = parts.txn_id();
  view.gtrid = parts.encode();
  view.outcome = outcome_of_unknown(view.gtrid, parts);
  return view;
}

// None: not of this log, or of an epoch that may be one of a former log's: an id does not say
// which.
std::optional<Gtrid> Coordinator::Impl::gtrid_of(TxnId id) const {
  EpochRef ref = epoch_.current;
  if (id.epoch != ref.number) {
    const auto found =
        std::find_if(epoch_.earlier.begin(), epoch_.earlier.end(),
                     [id](const EpochRef& earlier) { return earlier.number == id.epoch; });
    if (found == epoch_.earlier.end() || !epoch_.former.empty()) return std::nullopt;
    ref = *found;
  }
  return Gtrid{epoch_.log_id, ref.number, ref.nonce, id.sequence, epoch_.node};
}

std::optional<TransactionView> Coordinator::Impl::show(TxnId id) const {
  if (auto found = view(id)) return found;
  const auto parts = gtrid_of(id);
  return parts ? view_of_unknown(*parts) : std::nullopt;
}

std::optional<TransactionView> Coordinator::Impl::show_gtrid(std::string_view gtrid) const {
  const auto parts = Gtrid::decode(gtrid);
  if (!parts) return std::nullopt;
  auto found = view(parts->txn_id());
  if (found && found->gtrid == gtrid) return found;  // else another log's, with the same numbers
  return view_of_unknown(*parts);
}

// Also a retryable abort that was remembered for a while, if nothing newer has this id.
std::optional<TransactionView> Coordinator::Impl::show_request(std::string_view request_id) const {
  const auto running = live_requests_.find(request_id);
  if (running != live_requests_.end()) return view(running->second);
  if (const auto kept = outcomes_.find_request(request_id)) return view(kept->first);
  const auto ended =
      std::find_if(traces_.rbegin(), traces_.rend(),
                   [request_id](const Transaction& txn) { return txn.request.id == request_id; });
  if (request_id.empty() || ended == traces_.rend()) return std::nullopt;
  return view(*ended);
}

std::vector<TransactionView> Coordinator::Impl::list(bool with_ended,
                                                     std::size_t entries_max) const {
  const auto older = [](const Transaction* a, const Transaction* b) { return a->id < b->id; };
  std::vector<const Transaction*> ended, running, chosen;
  if (with_ended) {
    for (const Transaction& txn : traces_) ended.push_back(&txn);
    std::sort(ended.begin(), ended.end(), older);
  }
  for (const auto& [id, txn] : live_) {
    if (running.size() == entries_max) break;
    running.push_back(&txn);
  }
  std::merge(ended.begin(), ended.end(), running.begin(), running.end(), std::back_inserter(chosen),
             older);
  if (chosen.size() > entries_max) chosen.resize(entries_max);
  std::vector<TransactionView> views;
  views.reserve(chosen.size());
  for (const Transaction* txn : chosen) views.push_back(view(*txn));
  return views;
}

}  // namespace twofold::coordinator
