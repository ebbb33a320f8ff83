// The bytes of the decision log's rows; docs/log_format.md describes them.
//
//   row = version (1) | kind (1) | protobuf payload | CRC-32 of key, version, kind and payload (4)
//
// The key is in the checksum, so that a row in the wrong place is noticed. Integers are big-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "log/record.h"
#include "protocol/result.h"

namespace twofold {

inline constexpr std::uint8_t kRowVersion = 1;
inline constexpr std::uint32_t kLogFormat = 1;

enum class RowKind : std::uint8_t {
  identity = 1,
  floor = 2,
  epoch = 3,
  intent = 4,
  commit = 5,
  refusal = 6,
  end = 7,
  heuristic = 8,
  served = 9,
  backup = 10,
  former = 11,
  participants = 12,
};
std::string_view name(RowKind kind);

struct LogIdentity {
  std::string node;
  LogId log_id;
  std::uint32_t format = kLogFormat;
  bool operator==(const LogIdentity&) const = default;
};

// Keys. Those of transactions and epochs sort as their numbers do.
std::string transaction_key(const TxnId& id);  // epoch (8) | sequence (8)
std::optional<TxnId> parse_transaction_key(std::string_view key);
std::string epoch_key(std::uint64_t number);  // number (8)
std::optional<std::uint64_t> parse_epoch_key(std::string_view key);
// format id (4) | size of gtrid (1) | gtrid | bqual
std::string heuristic_key(const Xid& xid);

std::string encode_row(std::string_view key, const LogIdentity& identity);
std::string encode_floor(std::string_view key, const TxnId& floor);
std::string encode_row(std::string_view key, const EpochRef& epoch);
std::string encode_row(std::string_view key, const ServedEpoch& served);
std::string encode_row(std::string_view key, const BackupMark& mark);
std::string encode_row(std::string_view key, const FormerLogs& former);
std::string encode_row(std::string_view key, const Participants& participants);
std::string encode_row(std::string_view key, const IntentRecord& record);
std::string encode_row(std::string_view key, const CommitRecord& record);
std::string encode_row(std::string_view key, const RefusalRecord& record);
std::string encode_row(std::string_view key, const EndRecord& record);
std::string encode_row(std::string_view key, const HeuristicRecord& record);

using Row =
    std::variant<LogIdentity, TxnId, EpochRef, IntentRecord, CommitRecord, RefusalRecord, EndRecord,
                 HeuristicRecord, ServedEpoch, BackupMark, FormerLogs, Participants>;

// damaged: too short, a wrong checksum, a payload or a key that does not parse; unsupported: a
// version or kind of a newer Twofold. The message names neither table nor row: the caller knows
// them.
Result<Row> decode_row(std::string_view key, std::string_view bytes);

}  // namespace twofold
