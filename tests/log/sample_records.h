// Records with something in every field.
#pragma once

#include <string>
#include <utility>

#include "log/record.h"

namespace twofold::test {

// Of the log and epochs that the test has made.
struct Origin {
  std::string node = "main";
  LogId log_id{42};
  std::uint64_t nonce = 7;
};

inline std::string gtrid_of(const TxnId& id, const Origin& origin = {}) {
  return Gtrid{origin.log_id, id.epoch, origin.nonce, id.sequence, origin.node}.encode();
}

inline BranchRecord branch(const std::string& gtrid, std::uint16_t index, std::string rm) {
  return {{kFormatId, gtrid, Bqual{index, std::move(rm)}.encode()}, 900u + index};
}

inline IntentRecord intent_record(const TxnId& id, const Origin& origin = {}) {
  const auto gtrid = gtrid_of(id, origin);
  return {id, gtrid, branch(gtrid, 0, "orders"), {"request " + to_text(id), 11}};
}

inline CommitRecord commit_record(const TxnId& id, const Origin& origin = {}) {
  const auto gtrid = gtrid_of(id, origin);
  return {id,
          gtrid,
          {branch(gtrid, 0, "orders"), branch(gtrid, 1, "payments")},
          {"request " + to_text(id), 12}};
}

inline RefusalRecord refusal_record(const TxnId& id, const Origin& origin = {}) {
  return {id,
          gtrid_of(id, origin),
          {"request " + to_text(id), 13},
          {{"payments", 2, "add", "min", "customer/c-1", "100", "0"},
           {"kitchen", 0, "insert", "absent", std::string("k\0\xff", 3), "", ""}}};
}

inline EndRecord end_record(const TxnId& id, const Origin& origin = {}) {
  return {id,
          gtrid_of(id, origin),
          {Bqual{0, "orders"}.encode(), Bqual{1, "payments"}.encode()},
          {"request " + to_text(id), 14}};
}

inline HeuristicRecord heuristic_record(const TxnId& id, const Origin& origin = {}) {
  return {id, branch(gtrid_of(id, origin), 1, "payments").xid, Xa::heurrb, true};
}

}  // namespace twofold::test
