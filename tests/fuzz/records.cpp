// Rows of the decision log, damaged and whole: what is decoded is encoded to the same again, and
// what is not has a reason.
//
// Input: how (1) | size of key (1) | key | what is left. How is a sum of
//   1: what is left is kind and payload of a row, sealed with version and checksum; else a row
//   2: of a heuristic's row: under its own key, in place of the given one
#include "log/record_codec.h"

#include <zlib.h>

#include "log/record.pb.h"
#include "tests/fuzz/fuzz.h"

namespace twofold::fuzz {
namespace {

constexpr std::uint8_t kSealed = 1;
constexpr std::uint8_t kOwnKey = 2;

std::string sealed(std::string_view key, std::string_view kind_and_payload) {
  const std::string row = static_cast<char>(kRowVersion) + std::string(kind_and_payload);
  const std::string checked = std::string(key) + row;
  const auto crc = static_cast<std::uint32_t>(::crc32(
      0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())));
  std::string trailer;
  for (int shift = 24; shift >= 0; shift -= 8) trailer.push_back(static_cast<char>(crc >> shift));
  return row + trailer;
}

std::string own_key(std::string_view kind_and_payload) {
  record::Heuristic message;
  const std::string payload(
      kind_and_payload.substr(std::min<std::size_t>(1, kind_and_payload.size())));
  if (!message.ParseFromString(payload)) return {};
  const record::Branch& branch = message.branch();
  return heuristic_key({branch.format_id(), branch.gtrid(), branch.bqual()});
}

template <class Record>
std::string encode(std::string_view key, const Record& record) {
  return encode_row(key, record);
}
std::string encode(std::string_view key, const TxnId& floor) {
  return encode_floor(key, floor);
}

void check_decoded(std::string_view key, std::string_view bytes, const Row& row) {
  const std::string encoded =
      std::visit([&](const auto& record) { return encode(key, record); }, row);
  const Result<Row> back = decode_row(key, encoded);
  require(back.has_value(), "what was decoded and encoded is decoded again");
  require(*back == row, "a row comes back from its bytes");
  require(encoded.substr(0, 2) == bytes.substr(0, 2), "a row keeps its version and kind");
  const auto kind = static_cast<RowKind>(encoded[1]);
  require(name(kind) != "unknown", "a decoded row's kind has a name");
}

void check(std::string_view key, std::string_view bytes) {
  const Result<Row> row = decode_row(key, bytes);
  if (row) return check_decoded(key, bytes, *row);
  require_sentence(row.error());
  require(row.error().fault == Fault::damaged || row.error().fault == Fault::unsupported,
          "a row that does not decode is damaged, or of a newer program");
}

// One bit, chosen by the row itself: a checksum notices it, wherever it is.
void check_damage(std::string_view key, std::string bytes) {
  const std::size_t bit = static_cast<unsigned char>(bytes.back()) * std::size_t{131} +
                          static_cast<unsigned char>(bytes[bytes.size() - 2]);
  char& damaged = bytes[bit / 8 % bytes.size()];
  damaged = static_cast<char>(damaged ^ (1 << bit % 8));
  require(decode_row(key, bytes).has_error(), "a damaged bit is noticed");
}

void check_keys(std::string_view key) {
  if (const auto id = parse_transaction_key(key)) {
    require(transaction_key(*id) == key, "a transaction's key comes back");
  }
  if (const auto number = parse_epoch_key(key)) {
    require(epoch_key(*number) == key, "an epoch's key comes back");
  }
}

}  // namespace
}  // namespace twofold::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace twofold::fuzz;
  Input input(data, size);
  const std::uint8_t how = input.byte();
  std::string key(input.take(input.byte()));
  const std::string_view rest = input.rest();
  if (how & kOwnKey) key = own_key(rest);
  check_keys(key);
  if (!(how & kSealed)) {
    check(key, rest);
    return 0;
  }
  const std::string row = sealed(key, rest);
  check(key, row);
  check_damage(key, row);
  return 0;
}
