// Who made a transaction, and which branch of it this is (rules 1 to 3).
//
// An Xid is X/Open's (C193 section 4.2): a format id, a global transaction id and a branch
// qualifier of at most 64 bytes each, any bytes. Ours carry meaning:
//   gtrid = log id (8) | epoch (8) | nonce (8) | sequence (8) | node name (1 to 32 bytes)
//   bqual = branch index (2) | resource manager's name (1 to 62 bytes)
// Integers are big-endian, so that gtrids of one log sort by TxnId. Nobody may match a node by
// prefix: parse the gtrid and compare whole fields.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/result.h"

namespace twofold {

inline constexpr std::int32_t kFormatId = 0x54574F46;  // "TWOF"
inline constexpr std::size_t kXidPartBytesMax = 64;
inline constexpr std::size_t kNodeBytesMax = 32;
inline constexpr std::size_t kRmNameBytesMax = 62;
// How many of the epochs before its own a coordinator names in Hello, where there are so many
// (rule 2).
inline constexpr std::size_t kEarlierEpochsMax = 1'000;

// Names one decision log. Random, made by init (rule 1). Zero is never a log id.
struct LogId {
  std::uint64_t value = 0;
  auto operator<=>(const LogId&) const = default;
};

// Monotonic within a log: a later epoch, or a later sequence in it.
struct TxnId {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  auto operator<=>(const TxnId&) const = default;
};
std::string to_text(const TxnId& id);  // "3.17"
Result<TxnId> parse_txn_id(std::string_view text);

struct Gtrid {
  LogId log_id;
  std::uint64_t epoch = 0;
  std::uint64_t nonce = 0;
  std::uint64_t sequence = 0;
  std::string node;

  TxnId txn_id() const { return {epoch, sequence}; }
  std::string encode() const;
  static std::optional<Gtrid> decode(std::string_view bytes);  // none: not one of ours
  auto operator<=>(const Gtrid&) const = default;
};

struct Bqual {
  std::uint16_t index = 0;  // the branch's place in its transaction
  std::string rm;

  std::string encode() const;
  static std::optional<Bqual> decode(std::string_view bytes);
  auto operator<=>(const Bqual&) const = default;
};

struct Xid {
  std::int32_t format_id = kFormatId;
  std::string gtrid;  // bytes
  std::string bqual;  // bytes
  auto operator<=>(const Xid&) const = default;
};

// formatID.base64url(gtrid).base64url(bqual), without padding: the one text form, at most 184
// characters, so it fits a PostgreSQL gid (rule 3). parse_xid(to_text(x)) == x for every valid x.
std::string to_text(const Xid& xid);
Result<Xid> parse_xid(std::string_view text);
bool valid(const Xid& xid);  // sizes within the limits, gtrid not empty, format id not negative

// The middle part of that form names a transaction for people: `twofold show GTRID`.
std::string gtrid_text(std::string_view gtrid);
Result<std::string> parse_gtrid_text(std::string_view text);

std::string base64url_encode(std::string_view bytes);
std::optional<std::string> base64url_decode(std::string_view text);  // none: not base64url

}  // namespace twofold
