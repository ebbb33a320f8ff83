// Between wire messages and the plain types. Every conversion checks what a peer may have got wrong.
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

}  // namespace twofold
