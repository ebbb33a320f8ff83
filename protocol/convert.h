// Between wire messages and the plain types. Every conversion checks what a peer may have got
// wrong.
#pragma once

#include "protocol/outcome.h"
#include "protocol/result.h"
#include "protocol/wire.pb.h"
#include "protocol/xid.h"

namespace twofold {

void to_wire(const Xid& xid, wire::Xid& out);
Result<Xid> from_wire(const wire::Xid& xid);
void to_wire(const TxnId& id, wire::TxnId& out);
TxnId from_wire(const wire::TxnId& id);
void to_wire(const Refusal& refusal, wire::Refusal& out);
Refusal from_wire(const wire::Refusal& refusal);
void to_wire(const Outcome& outcome, wire::Outcome& out);
Outcome from_wire(const wire::Outcome& outcome);

// A peer's Failure as an Error with its text. Version and unknown message: unsupported; corrupt:
// damaged; stale: exists (a newer session); outdated; not here: not_found; busy; shutdown: closed;
// a code that this version does not know: io; all others: invalid.
Error to_error(const wire::Failure& failure);
Fault fault_of(wire::FailureCode code);

}  // namespace twofold
