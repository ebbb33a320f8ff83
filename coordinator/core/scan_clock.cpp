#include "coordinator/core/scan_clock.h"

namespace twofold::coordinator {

void ScanClock::ended(TxnId id) {
  if (!ends_.empty() && ends_.back().at == now_) {
    ends_.back().lowest = std::min(ends_.back().lowest, id);
    return;
  }
  ends_.push_back({now_, id});
  if (ends_.size() >
      kEndsMax) {  // a resource manager is away for long: the older waits with the newer
    ends_[1].lowest = std::min(ends_[0].lowest, ends_[1].lowest);
    ends_.pop_front();
  }
}

void ScanClock::completed(RmId rm, std::uint64_t scan, std::optional<TxnId> listed) {
  listed_[rm] = listed;
  scanned_[rm] = true;
  completed_[rm] = std::max(completed_[rm], scan);
  const std::uint64_t all = *std::min_element(completed_.begin(), completed_.end());
  while (!ends_.empty() && ends_.front().at < all) ends_.pop_front();
}

std::optional<TxnId> ScanClock::lowest_uncovered() const {
  if (std::find(scanned_.begin(), scanned_.end(), false) != scanned_.end()) return TxnId{0, 0};
  std::optional<TxnId> lowest;
  const auto at = [&lowest](TxnId id) { lowest = lowest ? std::min(*lowest, id) : id; };
  for (const Ends& ends : ends_) at(ends.lowest);
  for (const auto& listed : listed_) {
    if (listed) at(*listed);
  }
  return lowest;
}

}  // namespace twofold::coordinator
