// What the decision log remembers of transactions (rules 4 to 8 and 17). Plain values: the
// coordinator's core makes and reads them without I/O; log/record_codec.h gives them bytes
// (docs/log_format.md).
//
// The log is a table with one row per transaction: writing a record replaces the row of its TxnId.
//   Intent → Outcome | Dropped;  Commit → Outcome;  Refusal → (ended at once);  Heuristics lie
//   beside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "protocol/outcome.h"
#include "protocol/xa.h"
#include "protocol/xid.h"

namespace twofold {

// Which client request a transaction carried out (rule 7).
struct RequestRef {
  std::string id;  // empty: none
  std::uint64_t payload_hash = 0;
  bool operator==(const RequestRef&) const = default;
};

struct BranchRecord {
  Xid xid;
  std::uint64_t store_id = 0;  // of the store that voted (rule 16); 0 unknown
  bool operator==(const BranchRecord&) const = default;
};

// A one-phase commit may be under way; without an outcome it counts as running (rule 5). Forced.
struct IntentRecord {
  TxnId id;
  std::string gtrid;
  BranchRecord branch;
  RequestRef request;
  bool operator==(const IntentRecord&) const = default;
};

// The decision. Forced, before phase two (rule 4). Lists every branch that voted yes, and only
// those: a branch it does not name is not to be committed (rule 14).
struct CommitRecord {
  TxnId id;
  std::string gtrid;
  std::vector<BranchRecord> branches;
  RequestRef request;
  bool operator==(const CommitRecord&) const = default;
};

// A business refusal. Forced before it is told, since it consumes the request id (rule 7).
struct RefusalRecord {
  TxnId id;
  std::string gtrid;
  RequestRef request;
  std::vector<Refusal> refusals;
  bool operator==(const RefusalRecord&) const = default;
};

// Every branch of a committed transaction has finished. Unforced (rule 6). Of a transaction that
// only read, its only record.
struct EndRecord {
  TxnId id;
  std::string gtrid;
  std::vector<std::string> bquals;
  RequestRef request;
  bool operator==(const EndRecord&) const = default;
};

// An intent whose one-phase commit did not happen: the row goes, and absence means aborted.
// Unforced.
struct DroppedRecord {
  TxnId id;
  bool operator==(const DroppedRecord&) const = default;
};

// A branch that ended against, or without, the decision (rule 17). Forced before Forget.
struct HeuristicRecord {
  TxnId id;
  Xid xid;
  Xa code = Xa::heurhaz;        // heurcom, heurrb, heurmix, heurhaz
  bool decided_commit = false;  // what the coordinator had decided
  bool operator==(const HeuristicRecord&) const = default;
};
struct HeuristicForgottenRecord {  // an operator has seen it
  Xid xid;
  bool operator==(const HeuristicForgottenRecord&) const = default;
};

// Kept outcomes that go, and the floor that rises with them (rule 6). Unforced.
struct PurgeRecord {
  std::vector<TxnId> ids;
  TxnId floor;
  bool operator==(const PurgeRecord&) const = default;
};

// A resource manager that may hold branches of this log: recorded, with its store, before its first
// branch is started. Only a drained one may be left out of the configuration, or come back with
// another store (docs/decisions/0012).
struct Participant {
  enum class State : std::uint8_t {
    active = 0,
    draining = 1,  // nothing new begins there
    drained = 2,   // no branch of this log is left there
  };
  std::string name;
  std::uint64_t store_id = 0;
  State state = State::active;
  bool operator==(const Participant&) const = default;
};
using Participants = std::vector<Participant>;  // by name
constexpr std::string_view name(Participant::State state) {
  switch (state) {
    case Participant::State::active: return "active";
    case Participant::State::draining: return "draining";
    case Participant::State::drained: return "drained";
  }
  return "?";
}

// All there are, in place of those of the last such record. Forced.
struct ParticipantsRecord {
  Participants all;
  bool operator==(const ParticipantsRecord&) const = default;
};

using LogRecord =
    std::variant<IntentRecord, CommitRecord, RefusalRecord, EndRecord, DroppedRecord,
                 HeuristicRecord, HeuristicForgottenRecord, PurgeRecord, ParticipantsRecord>;

// One start of a coordinator (rule 1).
struct EpochRef {
  std::uint64_t number = 0;
  std::uint64_t nonce = 0;
  bool operator==(const EpochRef&) const = default;
};

// The newest epoch in which a resource manager has accepted a session. Whoever holds it holds every
// decision of the epochs before it (rule 2).
struct ServedEpoch {
  std::uint64_t number = 0;
  bool operator==(const ServedEpoch&) const = default;
};

// This log is a copy that others have gone on without (rule 2).
struct BackupMark {
  std::int64_t wall_us = 0;  // since 1970; when it was made or found out
  std::uint64_t certain_below = 0;
  std::string known_by;  // the resource manager that told so; empty: made by `twofold-log backup`
  bool operator==(const BackupMark&) const = default;
};

// A log id that this log had until it was restored from an older copy (rule 2). Of its epochs below
// `certain_below` this log holds every decision; those of the others may be lost.
struct FormerLog {
  LogId id;
  std::uint64_t certain_below = 0;
  bool operator==(const FormerLog&) const = default;
};

using FormerLogs = std::vector<FormerLog>;  // oldest first

struct Epoch {
  std::string node;
  LogId log_id;
  EpochRef current;
  std::vector<EpochRef> earlier{};  // all that this log recorded, in order
  FormerLogs former{};
};

// What replay found.
struct Recovered {
  std::vector<IntentRecord> intents;  // each by TxnId, ascending
  std::vector<CommitRecord> commits;
  std::vector<RefusalRecord> refusals;
  std::vector<EndRecord> ends;
  std::vector<HeuristicRecord> heuristics;
  TxnId floor;  // {0, 0}: nothing was ever purged
  Participants participants{};
};

}  // namespace twofold
