// The store's rows as bytes: docs/store.md describes them for people. Integers are big-endian.
// Every row but the data begins with a version; what does not decode is damaged or from a newer
// version.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/operation.h"
#include "protocol/xid.h"
#include "resource_manager/core/events.h"

namespace twofold::resource_manager::store {

// The tables of the environment, in order. GroupCommit keeps its group number in the first.
enum Table : std::uint32_t { kMeta, kData, kPrepared, kOutcomes, kNodes };

inline constexpr std::size_t kKeyBytesMax = 400;
inline constexpr std::size_t kTextBytesMax = 1u << 20;

// What a branch has changed, by key: the encoded value, or none where it erased the key.
using WriteSet = std::map<std::string, std::optional<std::string>, std::less<>>;

// A value in the data table: 'i' and 8 bytes, or 't' and the text. `value` is an int64 or a text.
std::string encode_value(const Value& value);
Value decode_value(std::string_view bytes);  // a damaged one ends the process

// A prepared branch. Its key holds the whole xid.
struct PreparedRow {
  Xid xid;
  std::int64_t wall_us = 0;  // of the vote, microseconds since 1970
  std::vector<LockRequest> locks;
  WriteSet writes;
};
std::string prepared_key(const Xid& xid);
std::string encode_prepared(std::int64_t wall_us, std::span<const LockRequest> locks,
                            const WriteSet& writes);
std::optional<PreparedRow> decode_prepared(std::string_view key, std::string_view value);

// Keys of outcome rows sort by log id, epoch, sequence (a gtrid has its nonce between the last
// two), so that one range holds what a low-water mark purges (rule 18). Xids of other makers sort
// after all of ours and are never purged.
std::string outcome_key(const Xid& xid);
std::string encode_outcome();
std::pair<std::string, std::string> outcomes_below(LogId log_id,
                                                   TxnId low_water);  // [first, second)

std::string encode_node(const NodeRecord& record);  // the key is the node's name
std::optional<NodeRecord> decode_node(std::string_view node, std::string_view value);

}  // namespace twofold::resource_manager::store
