#include "protocol/outcome.h"

namespace twofold {
namespace {

// What was wrong, without what was found. A participant need not say what it asked for.
std::string complaint(const Refusal& refusal) {
  const auto with = [&](std::string text, std::string_view before_limit) {
    return refusal.limit.empty() ? text : text.append(before_limit).append(refusal.limit);
  };
  if (refusal.check == "min") return with("would go below min", " ");
  if (refusal.check == "max") return with("would go above max", " ");
  if (refusal.check == "overflow") return with("adding", " ") + " overflows 64 bits";
  if (refusal.check == "expect") {
    return refusal.limit.empty() ? "not as expected" : "expected " + refusal.limit;
  }
  if (refusal.check == "type") return with("wrong type", ", expected ");
  if (refusal.check == "absent") return "the key is absent";
  if (refusal.check == "present") return "the key is present";
  if (refusal.check.empty()) {
    return refusal.limit.empty() ? "refused without a reason" : refusal.limit;
  }
  return with(refusal.check, ": ");
}

void append_part(std::string_view part, std::string_view separator, std::string& out) {
  if (part.empty()) return;
  if (!out.empty()) out += separator;
  out += part;
}

}  // namespace

std::string to_text(const Refusal& refusal) {
  std::string out = refusal.rm;
  append_part(refusal.op, ": ", out);
  append_part(refusal.key, refusal.op.empty() ? ": " : " ", out);
  append_part(complaint(refusal), ": ", out);
  // What is not understood was found in the work, everything else in the data.
  const bool invalid = refusal.check == "invalid";
  if (!refusal.value.empty()) return out + (invalid ? ", not " : ", found ") + refusal.value;
  return refusal.check == "expect" ? out + ", the key is absent" : out;
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
