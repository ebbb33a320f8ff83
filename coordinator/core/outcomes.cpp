#include "coordinator/core/outcomes.h"

#include <algorithm>

#include "protocol/check.h"

namespace twofold::coordinator {

namespace {
constexpr std::size_t kPurgeBatchMax = 256;
}

void Outcomes::keep(TxnId id, KeptOutcome outcome) {
  const auto [place, fresh] = kept_.emplace(id, std::move(outcome));
  TWOFOLD_CHECK(fresh);
  const std::string& request = place->second.request.id;
  if (request.empty()) return;
  by_request_.erase(request);  // the key must not point into the older row
  by_request_.emplace(request, id);
}

const KeptOutcome* Outcomes::find(TxnId id) const {
  const auto found = kept_.find(id);
  return found == kept_.end() ? nullptr : &found->second;
}

std::optional<std::pair<TxnId, const KeptOutcome*>> Outcomes::find_request(
    std::string_view id) const {
  const auto found = by_request_.find(id);
  if (found == by_request_.end()) return std::nullopt;
  return std::pair{found->second, find(found->second)};
}

std::optional<PurgeRecord> Outcomes::purge(TxnId limit) {
  if (kept_.size() <= outcomes_max_) return std::nullopt;
  const std::size_t excess = kept_.size() - outcomes_max_;
  // Full batches: a record for every transaction that ends would double the log's work.
  if (excess < std::clamp<std::size_t>(outcomes_max_ / 8, 1, kPurgeBatchMax)) return std::nullopt;
  PurgeRecord record;
  const std::size_t count_max = std::min(excess, kPurgeBatchMax);
  while (record.ids.size() < count_max && kept_.begin()->first < limit) {
    const auto oldest = kept_.begin();
    const auto indexed = by_request_.find(oldest->second.request.id);
    if (indexed != by_request_.end() && indexed->second == oldest->first)
      by_request_.erase(indexed);
    record.ids.push_back(oldest->first);
    kept_.erase(oldest);
  }
  if (record.ids.empty()) return std::nullopt;
  floor_ = record.floor = std::max(floor_, record.ids.back());
  return record;
}

}  // namespace twofold::coordinator
