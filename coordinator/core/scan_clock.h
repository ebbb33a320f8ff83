// One counter for what must not be confused in recovery: which scan began after what.
//
// Time would not do: a scan answered now may have begun before a branch became unsure, or before a
// transaction ended, and says nothing about either.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "coordinator/core/events.h"

namespace twofold::coordinator {

class ScanClock {
 public:
  // What an earlier epoch left counts as ended before the first scan: no id at all may be passed by
  // the floor until every resource manager has been scanned once (rule 6).
  explicit ScanClock(std::size_t resource_managers)
      : completed_(resource_managers, 0),
        scanned_(resource_managers, false),
        listed_(resource_managers) {
    ends_.push_back({0, TxnId{0, 0}});
  }

  // The number of a scan that begins now. A later scan has a higher one.
  std::uint64_t begin_scan() { return ++now_; }
  // What happens now is covered by scans with a higher number only.
  std::uint64_t now() const { return now_; }

  void ended(TxnId id);
  // `listed`: the lowest of our ids that it named. What is listed has not ended there, whatever was
  // decided: its rollback is still on the way.
  void completed(RmId rm, std::uint64_t scan, std::optional<TxnId> listed);
  // Its session is gone. Rollbacks are not forced, so a resource manager that crashed may list
  // again what an earlier scan lacked: nothing is covered until a scan of the new session has said
  // otherwise.
  void lost(RmId rm) { scanned_[rm] = false; }

  // The lowest id that some resource manager has not answered a full scan for since it ended; none:
  // all ended ids are covered. The floor stays below it.
  std::optional<TxnId> lowest_uncovered() const;

 private:
  static constexpr std::size_t kEndsMax = 1024;
  struct Ends {
    std::uint64_t at;  // clock
    TxnId lowest;      // of the ids that ended then
  };
  std::uint64_t now_ = 0;
  std::vector<std::uint64_t> completed_;      // by RmId: the latest complete scan
  std::vector<bool> scanned_;                 // by RmId: in its present session
  std::vector<std::optional<TxnId>> listed_;  // by RmId: by that scan
  std::deque<Ends> ends_;  // uncovered, by time; one entry for each reading of the clock
};

}  // namespace twofold::coordinator
