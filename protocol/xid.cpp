#include "protocol/xid.h"

#include <array>
#include <charconv>

#include "protocol/check.h"
#include "protocol/text.h"

namespace twofold {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t kGtridFixedBytes = 32;
constexpr std::size_t kBqualFixedBytes = 2;

constexpr auto kDigitValues = [] {
  std::array<signed char, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<signed char>(i);
  }
  return values;
}();

void put_big_endian(std::uint64_t value, int bytes, std::string& out) {
  for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>((value >> shift) & 0xff));
  }
}

std::uint64_t get_big_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char byte : bytes) value = (value << 8) | static_cast<unsigned char>(byte);
  return value;
}

// The one decimal form of a number: digits only, no leading zero.
template <class Number>
std::optional<Number> parse_decimal(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  if (text[0] == '0' && text.size() > 1) return std::nullopt;
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

Error invalid(std::string message) {
  return {Fault::invalid, std::move(message)};
}

}  // namespace

std::string to_text(const TxnId& id) {
  return std::to_string(id.epoch) + "." + std::to_string(id.sequence);
}

Result<TxnId> parse_txn_id(std::string_view text) {
  const std::size_t dot = text.find('.');
  if (dot != std::string_view::npos) {
    const auto epoch = parse_decimal<std::uint64_t>(text.substr(0, dot));
    const auto sequence = parse_decimal<std::uint64_t>(text.substr(dot + 1));
    if (epoch && sequence) return TxnId{*epoch, *sequence};
  }
  return invalid("'" + shown(text) +
                 "' is no transaction number: write EPOCH.SEQUENCE, as in 3.17");
}

std::string Gtrid::encode() const {
  TWOFOLD_CHECK(!node.empty() && node.size() <= kNodeBytesMax);
  TWOFOLD_CHECK(log_id.value != 0);
  std::string out;
  out.reserve(kGtridFixedBytes + node.size());
  put_big_endian(log_id.value, 8, out);
  put_big_endian(epoch, 8, out);
  put_big_endian(nonce, 8, out);
  put_big_endian(sequence, 8, out);
  out += node;
  return out;
}

std::optional<Gtrid> Gtrid::decode(std::string_view bytes) {
  if (bytes.size() <= kGtridFixedBytes || bytes.size() > kGtridFixedBytes + kNodeBytesMax) {
    return std::nullopt;
  }
  Gtrid gtrid;
  gtrid.log_id.value = get_big_endian(bytes.substr(0, 8));
  gtrid.epoch = get_big_endian(bytes.substr(8, 8));
  gtrid.nonce = get_big_endian(bytes.substr(16, 8));
  gtrid.sequence = get_big_endian(bytes.substr(24, 8));
  gtrid.node = bytes.substr(kGtridFixedBytes);
  if (gtrid.log_id.value == 0) return std::nullopt;
  return gtrid;
}

std::string Bqual::encode() const {
  TWOFOLD_CHECK(!rm.empty() && rm.size() <= kRmNameBytesMax);
  std::string out;
  out.reserve(kBqualFixedBytes + rm.size());
  put_big_endian(index, 2, out);
  out += rm;
  return out;
}

std::optional<Bqual> Bqual::decode(std::string_view bytes) {
  if (bytes.size() <= kBqualFixedBytes || bytes.size() > kBqualFixedBytes + kRmNameBytesMax) {
    return std::nullopt;
  }
  return Bqual{static_cast<std::uint16_t>(get_big_endian(bytes.substr(0, 2))),
               std::string(bytes.substr(kBqualFixedBytes))};
}

bool valid(const Xid& xid) {
  return xid.format_id >= 0 && !xid.gtrid.empty() && xid.gtrid.size() <= kXidPartBytesMax &&
         xid.bqual.size() <= kXidPartBytesMax;
}

std::string to_text(const Xid& xid) {
  return std::to_string(xid.format_id) + "." + base64url_encode(xid.gtrid) + "." +
         base64url_encode(xid.bqual);
}

Result<Xid> parse_xid(std::string_view text) {
  const std::size_t first = text.find('.');
  const std::size_t second = first == std::string_view::npos ? first : text.find('.', first + 1);
  if (second != std::string_view::npos) {
    const auto format_id = parse_decimal<std::int32_t>(text.substr(0, first));
    auto gtrid = base64url_decode(text.substr(first + 1, second - first - 1));
    auto bqual = base64url_decode(text.substr(second + 1));
    if (format_id && gtrid && bqual) {
      Xid xid{*format_id, std::move(*gtrid), std::move(*bqual)};
      if (valid(xid)) return xid;
      return invalid("'" + shown(text) + "' is no xid: each part has at most 64 bytes, the first " +
                     "at least one");
    }
  }
  return invalid("'" + shown(text) + "' is no xid: expected FORMAT.GTRID.BQUAL, a number and two " +
                 "parts in base64url");
}

std::string gtrid_text(std::string_view gtrid) {
  return base64url_encode(gtrid);
}

Result<std::string> parse_gtrid_text(std::string_view text) {
  auto gtrid = base64url_decode(text);
  if (gtrid && !gtrid->empty() && gtrid->size() <= kXidPartBytesMax) return std::move(*gtrid);
  return invalid("'" + shown(text) +
                 "' is no transaction's name: expected the 1 to 64 bytes of a " +
                 "gtrid in base64url, as `twofold list` prints them");
}

std::string base64url_encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() * 4 + 2) / 3);
  std::uint32_t bits = 0;
  int held = 0;
  for (const char byte : bytes) {
    bits = (bits << 8) | static_cast<unsigned char>(byte);
    for (held += 8; held >= 6; held -= 6) out.push_back(kDigits[(bits >> (held - 6)) & 63]);
  }
  if (held > 0) out.push_back(kDigits[(bits << (6 - held)) & 63]);
  return out;
}

std::optional<std::string> base64url_decode(std::string_view text) {
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int held = 0;
  for (const char digit : text) {
    const int value = kDigitValues[static_cast<unsigned char>(digit)];
    if (value < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      out.push_back(static_cast<char>((bits >> held) & 0xff));
    }
  }
  // Unused bits must be zero: two texts never mean the same bytes.
  if ((bits & ((1u << held) - 1)) != 0) return std::nullopt;
  return out;
}

}  // namespace twofold
