// What has ended and is still remembered (rules 6 to 8): the newest outcomes_max commits and
// business refusals by TxnId and by request id, and the floor below which nothing is remembered.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "log/record.h"

namespace twofold::coordinator {

struct KeptOutcome {
  std::string gtrid;
  RequestRef request;
  bool refused = false;             // else committed
  std::vector<std::string> bquals;  // of the branches that were committed
  std::vector<Refusal> refusals;
};

class Outcomes {
 public:
  Outcomes(std::size_t outcomes_max, TxnId floor) : outcomes_max_(outcomes_max), floor_(floor) {}
  Outcomes(const Outcomes&) = delete;  // the index points into the table
  Outcomes& operator=(const Outcomes&) = delete;

  void keep(TxnId id, KeptOutcome outcome);  // an id is kept once
  const KeptOutcome* find(TxnId id) const;
  // The outcome that consumed this request id, or none. Valid until the next keep() or purge().
  std::optional<std::pair<TxnId, const KeptOutcome*>> find_request(std::string_view id) const;

  // Forgets the oldest beyond outcomes_max, if enough are, and only ids below `limit`: the record
  // that makes it durable, with at most 256 ids. The floor rises at once; that a crash may lower it
  // again makes no answer wrong.
  std::optional<PurgeRecord> purge(TxnId limit);

  TxnId floor() const { return floor_; }
  // Rule 7: whether something that a client first sent when it knew `known` may have been
  // forgotten.
  bool expired(TxnId known) const { return floor_ != TxnId{} && known <= floor_; }
  std::size_t size() const { return kept_.size(); }

 private:
  std::size_t outcomes_max_;
  TxnId floor_;
  std::map<TxnId, KeptOutcome> kept_;
  std::unordered_map<std::string_view, TxnId> by_request_;  // views into kept_; never iterated
};

}  // namespace twofold::coordinator
