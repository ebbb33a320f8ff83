#include "protocol/convert.h"

namespace twofold {

void to_wire(const Xid& xid, wire::Xid& out) {
  out.set_format_id(xid.format_id);
  out.set_gtrid(xid.gtrid);
  out.set_bqual(xid.bqual);
}

Result<Xid> from_wire(const wire::Xid& xid) {
  Xid out{xid.format_id(), xid.gtrid(), xid.bqual()};
  if (valid(out)) return out;
  return Error{Fault::invalid,
               "an xid with format id " + std::to_string(out.format_id) + ", " +
                   std::to_string(out.gtrid.size()) + " bytes of gtrid and " +
                   std::to_string(out.bqual.size()) +
                   " of bqual: the format id must not be negative, the gtrid has 1 to "
                   "64 bytes, the bqual at most 64"};
}

void to_wire(const TxnId& id, wire::TxnId& out) {
  out.set_epoch(id.epoch);
  out.set_sequence(id.sequence);
}

TxnId from_wire(const wire::TxnId& id) {
  return {id.epoch(), id.sequence()};
}

void to_wire(const Refusal& refusal, wire::Refusal& out) {
  out.set_rm(refusal.rm);
  out.set_operation(refusal.operation);
  out.set_op(refusal.op);
  out.set_check(refusal.check);
  out.set_key(refusal.key);
  out.set_value(refusal.value);
  out.set_limit(refusal.limit);
}

Refusal from_wire(const wire::Refusal& refusal) {
  return {refusal.rm(),  refusal.operation(), refusal.op(),   refusal.check(),
          refusal.key(), refusal.value(),     refusal.limit()};
}

void to_wire(const Outcome& outcome, wire::Outcome& out) {
  out.set_verdict(static_cast<std::uint32_t>(outcome.verdict));
  out.set_reason(static_cast<std::uint32_t>(outcome.reason));
  out.set_detail(outcome.detail);
  out.set_gtrid(outcome.gtrid);
  out.clear_refusals();
  for (const Refusal& refusal : outcome.refusals) to_wire(refusal, *out.add_refusals());
  out.clear_results();
  for (const BranchResult& result : outcome.results) {
    wire::BranchResult& branch = *out.add_results();
    branch.set_rm(result.rm);
    branch.set_results(result.results);
  }
  out.set_ended(outcome.ended);
  out.set_heuristic(outcome.heuristic);
  out.set_timeout_ms(outcome.timeout_ms);
}

Outcome from_wire(const wire::Outcome& outcome) {
  Outcome out;
  // A number that this version does not know claims nothing: unknown, and never "nothing happened".
  const bool verdict_known = outcome.verdict() >= static_cast<std::uint32_t>(Verdict::committed) &&
                             outcome.verdict() <= static_cast<std::uint32_t>(Verdict::rejected);
  out.verdict = verdict_known ? static_cast<Verdict>(outcome.verdict()) : Verdict::unknown;
  const bool reason_known = outcome.reason() <= static_cast<std::uint32_t>(Reason::mismatch);
  out.reason = reason_known ? static_cast<Reason>(outcome.reason()) : Reason::none;
  out.detail = outcome.detail();
  out.gtrid = outcome.gtrid();
  out.refusals.reserve(static_cast<std::size_t>(outcome.refusals_size()));
  for (const wire::Refusal& refusal : outcome.refusals())
    out.refusals.push_back(from_wire(refusal));
  out.results.reserve(static_cast<std::size_t>(outcome.results_size()));
  for (const wire::BranchResult& branch : outcome.results()) {
    out.results.push_back({branch.rm(), branch.results()});
  }
  out.ended = outcome.ended();
  out.heuristic = outcome.heuristic();
  out.timeout_ms = outcome.timeout_ms();
  return out;
}

Error to_error(const wire::Failure& failure) {
  return {fault_of(failure.code()),
          failure.text().empty()
              ? "the peer gave no reason (failure code " + std::to_string(failure.code()) + ")"
              : failure.text()};
}

Fault fault_of(wire::FailureCode code) {
  switch (code) {
    case wire::FAILURE_VERSION:
    case wire::FAILURE_UNKNOWN_MESSAGE: return Fault::unsupported;
    case wire::FAILURE_CORRUPT: return Fault::damaged;
    case wire::FAILURE_STALE: return Fault::exists;
    case wire::FAILURE_OUTDATED: return Fault::outdated;
    case wire::FAILURE_NOT_HERE: return Fault::not_found;
    case wire::FAILURE_BUSY: return Fault::busy;
    case wire::FAILURE_SHUTDOWN: return Fault::closed;
    case wire::FAILURE_TOO_LARGE:
    case wire::FAILURE_HANDSHAKE:
    case wire::FAILURE_WRONG_LOG:
    case wire::FAILURE_REQUEST: return Fault::invalid;
    default: return Fault::io;
  }
}

}  // namespace twofold
