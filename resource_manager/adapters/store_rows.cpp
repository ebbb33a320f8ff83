#include "resource_manager/adapters/store_rows.h"

#include <concepts>

#include "protocol/check.h"

namespace twofold::resource_manager::store {
namespace {

constexpr std::uint8_t kRowVersion = 1;
constexpr char kOurs = 1;     // outcome keys: an xid that a coordinator of Twofold made
constexpr char kForeign = 2;  // any other

template <std::unsigned_integral T>
void put(std::string& out, T number) {
  for (int shift = 8 * (static_cast<int>(sizeof(T)) - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(static_cast<std::uint8_t>(number >> shift)));
  }
}

// Length first, in as many bytes as T has.
template <std::unsigned_integral T>
void put_sized(std::string& out, std::string_view bytes) {
  put(out, static_cast<T>(bytes.size()));
  out.append(bytes);
}

// Takes a row apart; after a read beyond its end everything reads as zero and whole() is false.
class Parser {
 public:
  explicit Parser(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    std::uint64_t result = 0;
    for (char byte : bytes(sizeof(T))) result = result << 8 | static_cast<std::uint8_t>(byte);
    return static_cast<T>(result);
  }
  std::string_view bytes(std::size_t count) {
    if (count > rest_.size()) failed_ = true;
    if (failed_) return {};
    std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <std::unsigned_integral T>
  std::string_view sized() {
    return bytes(number<T>());
  }
  std::string_view rest() { return bytes(rest_.size()); }
  bool failed() const { return failed_; }
  bool whole() const { return !failed_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

void put_ordered(std::string& out, LogId log_id, TxnId id) {
  out.push_back(kOurs);
  put(out, log_id.value);
  put(out, id.epoch);
  put(out, id.sequence);
}

}  // namespace

std::string encode_value(const Value& value) {
  std::string out;
  if (const auto* number = std::get_if<std::int64_t>(&value.data)) {
    out.push_back('i');
    put(out, static_cast<std::uint64_t>(*number));
    return out;
  }
  const auto* text = std::get_if<std::string>(&value.data);
  TWOFOLD_CHECK(text != nullptr);
  out.reserve(text->size() + 1);
  out.push_back('t');
  return out.append(*text);
}

Value decode_value(std::string_view bytes) {
  Parser parser(bytes);
  const std::string_view kind = parser.bytes(1);
  if (kind == "t") return Value{std::string(parser.rest())};
  const auto number = static_cast<std::int64_t>(parser.number<std::uint64_t>());
  TWOFOLD_CHECK(kind == "i" && parser.whole());
  return Value{number};
}

std::string prepared_key(const Xid& xid) {
  std::string out;
  put(out, static_cast<std::uint32_t>(xid.format_id));
  put_sized<std::uint8_t>(out, xid.gtrid);
  return out.append(xid.bqual);
}

std::string encode_prepared(std::int64_t wall_us, std::span<const LockRequest> locks,
                            const WriteSet& writes) {
  std::string out;
  put(out, kRowVersion);
  put(out, static_cast<std::uint64_t>(wall_us));
  put(out, static_cast<std::uint32_t>(locks.size()));
  for (const LockRequest& lock : locks) {
    put(out, static_cast<std::uint8_t>(lock.mode));
    put_sized<std::uint16_t>(out, lock.key);
  }
  put(out, static_cast<std::uint32_t>(writes.size()));
  for (const auto& [key, value] : writes) {
    put_sized<std::uint16_t>(out, key);
    put(out, static_cast<std::uint8_t>(value.has_value()));
    if (value) put_sized<std::uint32_t>(out, *value);
  }
  return out;
}

std::optional<PreparedRow> decode_prepared(std::string_view key, std::string_view value) {
  PreparedRow row;
  Parser name(key);
  row.xid.format_id = static_cast<std::int32_t>(name.number<std::uint32_t>());
  row.xid.gtrid = name.sized<std::uint8_t>();
  row.xid.bqual = name.rest();
  Parser parser(value);
  if (parser.number<std::uint8_t>() != kRowVersion) return std::nullopt;
  row.wall_us = static_cast<std::int64_t>(parser.number<std::uint64_t>());
  const auto locks = parser.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < locks && !parser.failed(); ++i) {
    const auto mode = parser.number<std::uint8_t>();
    if (mode > static_cast<std::uint8_t>(LockMode::exclusive)) return std::nullopt;
    row.locks.push_back({std::string(parser.sized<std::uint16_t>()), static_cast<LockMode>(mode)});
  }
  const auto writes = parser.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < writes && !parser.failed(); ++i) {
    std::optional<std::string>& written = row.writes[std::string(parser.sized<std::uint16_t>())];
    if (parser.number<std::uint8_t>() != 0) written = parser.sized<std::uint32_t>();
  }
  if (name.failed() || !parser.whole() || !valid(row.xid)) return std::nullopt;
  return row;
}

std::string outcome_key(const Xid& xid) {
  std::string out;
  const std::optional<Gtrid> gtrid =
      xid.format_id == kFormatId ? Gtrid::decode(xid.gtrid) : std::nullopt;
  if (!gtrid) {
    out.push_back(kForeign);
    return out.append(prepared_key(xid));
  }
  put_ordered(out, gtrid->log_id, gtrid->txn_id());
  put(out, gtrid->nonce);
  put_sized<std::uint8_t>(out, gtrid->node);
  return out.append(xid.bqual);
}

std::string encode_outcome() {
  return std::string(1, static_cast<char>(kRowVersion));
}

std::pair<std::string, std::string> outcomes_below(LogId log_id, TxnId low_water) {
  std::pair<std::string, std::string> range;
  put_ordered(range.first, log_id, TxnId{});
  put_ordered(range.second, log_id, low_water);
  return range;
}

std::string encode_node(const NodeRecord& record) {
  std::string out;
  put(out, kRowVersion);
  put(out, record.log_id.value);
  put(out, record.epoch);
  put(out, record.nonce);
  put(out, record.low_water.epoch);
  put(out, record.low_water.sequence);
  for (const FormerLog& log : record.former) {
    put(out, log.log_id.value);
    put(out, log.low_water.epoch);
    put(out, log.low_water.sequence);
  }
  return out;
}

std::optional<NodeRecord> decode_node(std::string_view node, std::string_view value) {
  Parser parser(value);
  if (parser.number<std::uint8_t>() != kRowVersion) return std::nullopt;
  NodeRecord record;
  record.node = node;
  record.log_id.value = parser.number<std::uint64_t>();
  record.epoch = parser.number<std::uint64_t>();
  record.nonce = parser.number<std::uint64_t>();
  record.low_water.epoch = parser.number<std::uint64_t>();
  record.low_water.sequence = parser.number<std::uint64_t>();
  while (!parser.failed() && !parser.whole()) {
    FormerLog& log = record.former.emplace_back();
    log.log_id.value = parser.number<std::uint64_t>();
    log.low_water.epoch = parser.number<std::uint64_t>();
    log.low_water.sequence = parser.number<std::uint64_t>();
  }
  if (!parser.whole()) return std::nullopt;
  return record;
}

}  // namespace twofold::resource_manager::store
