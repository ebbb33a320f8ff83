#include "protocol/outcome.h"

namespace twofold {
namespace {

// What was wrong, without what was found.
std::string complaint(const Refusal& refusal) {
  if (refusal.check == "min") return "would go below min " + refusal.limit;
  if (refusal.check == "max") return "would go above max " + refusal.limit;
  if (refusal.check == "overflow") return "the result does not fit 64 bits";
  if (refusal.check == "expect") return "expected " + refusal.limit;
  if (refusal.check == "type") return "wrong type";
  if (refusal.check == "absent" || refusal.check == "present") {
    return refusal.value.empty() ? "the key is absent" : "the key is present";
  }
  return refusal.check;
}

}  // namespace

std::string to_text(const Refusal& refusal) {
  std::string out;
  if (!refusal.rm.empty()) out += refusal.rm + ": ";
  out += refusal.op;
  if (!refusal.key.empty()) out += " " + refusal.key;
  out += ": " + complaint(refusal);
  const bool says_limit =
      refusal.check == "min" || refusal.check == "max" || refusal.check == "expect";
  if (!says_limit && !refusal.limit.empty()) out += ", asked for " + refusal.limit;
  if (!refusal.value.empty()) {
    out += ", found " + refusal.value;
  } else if (says_limit) {
    out += ", the key is absent";
  }
  return out;
}

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::committed: return "committed";
    case Verdict::aborted: return "aborted";
    case Verdict::pending: return "pending";
    case Verdict::expired: return "expired";
    case Verdict::not_found: return "not_found";
    case Verdict::unknown: return "unknown";
    case Verdict::rejected: return "rejected";
  }
  return "unknown";
}

std::string_view name(Reason reason) {
  switch (reason) {
    case Reason::none: return "none";
    case Reason::refused: return "refused";
    case Reason::deadlock: return "deadlock";
    case Reason::timeout: return "timeout";
    case Reason::unavailable: return "unavailable";
    case Reason::lost: return "lost";
    case Reason::shutdown: return "shutdown";
    case Reason::space: return "space";
    case Reason::overload: return "overload";
    case Reason::rolled_back: return "rolled_back";
    case Reason::invalid: return "invalid";
    case Reason::mismatch: return "mismatch";
  }
  return "none";
}

}  // namespace twofold
