// What a client is told of a transaction, as values (no I/O, no wire types).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/xid.h"

namespace twofold {

// One failed check of one operation: a business refusal's reason.
struct Refusal {
  std::string rm;               // filled in by the coordinator
  std::uint32_t operation = 0;  // its index in the branch's work
  std::string op;               // "add"
  std::string check;  // "min", "max", "absent", "present", "overflow", "expect", "type", "invalid"
  std::string key;
  std::string value;  // what was found, as text; empty if the key is absent
  std::string limit;  // what was asked for, as text
  bool operator==(const Refusal&) const = default;
};
std::string to_text(const Refusal& refusal);  // "payments: add customer/c-1: 100 below min 0 …"

enum class Verdict : std::uint8_t {
  committed = 1,
  aborted = 2,
  pending = 3,    // not decided yet, or an intent whose one-phase commit is still in doubt
  expired = 4,    // too old: the coordinator no longer keeps its outcome
  not_found = 5,  // never issued, or a request id never seen: nothing has happened
  unknown = 6,    // cannot be told: another log, or an epoch that this log did not record
  rejected = 7,   // not accepted: nothing has happened, the reason says what to change
};
std::string_view name(Verdict verdict);

// Why a transaction aborted, or why a submission was rejected.
enum class Reason : std::uint8_t {
  none = 0,
  refused = 1,   // business refusal: a check failed; consumes the request id (rule 7)
  deadlock = 2,  // the following, down to rolled_back, may be retried with the same request id
  timeout = 3,
  unavailable = 4,  // a resource manager is not connected
  lost = 5,         // a link or a resource manager was lost on the way
  shutdown = 6,
  space = 7,        // the log or a store has no room
  overload = 8,     // transactions_max reached
  rolled_back = 9,  // a resource manager or the client rolled back
  invalid = 10,     // malformed: unknown resource manager, too many branches, bad operation
  mismatch = 11,    // this request id was used with another payload (rule 7)
};
std::string_view name(Reason reason);
constexpr bool retryable(Reason reason) {
  return reason >= Reason::deadlock && reason <= Reason::rolled_back;
}

struct BranchResult {
  std::string rm;
  std::string results;  // an encoded wire Results message; empty where the branch did not answer
};

struct Outcome {
  Verdict verdict = Verdict::unknown;
  Reason reason = Reason::none;
  std::string detail;             // for people: which participant, what to do
  std::string gtrid;              // bytes; empty where no transaction was made
  std::vector<Refusal> refusals;  // every failed check, by branch and operation (reason refused)
  std::vector<BranchResult> results;  // only of the first reply to a committed submission
  bool ended = false;                 // every branch has finished
  bool heuristic = false;             // a branch ended against the decision: see `twofold show`
  std::uint32_t timeout_ms = 0;       // of one just begun: what holds of the time it asked for
};

}  // namespace twofold
