#include "log/record_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

#include "tests/log/sample_records.h"

namespace twofold {
namespace {

using test::commit_record;
using test::end_record;
using test::heuristic_record;
using test::intent_record;
using test::refusal_record;
using ::testing::HasSubstr;
using namespace std::string_literals;
using namespace std::string_view_literals;

template <class Record>
void expect_round_trip(const std::string& key, const Record& record) {
  const auto decoded = decode_row(key, encode_row(key, record));
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
  ASSERT_TRUE(std::holds_alternative<Record>(*decoded));
  EXPECT_TRUE(std::get<Record>(*decoded) == record);
}

TEST(RecordCodec, EveryRecordComesBackAsItWas) {
  const TxnId id{3, 17};
  const auto key = transaction_key(id);
  expect_round_trip(key, intent_record(id));
  expect_round_trip(key, commit_record(id));
  expect_round_trip(key, refusal_record(id));
  expect_round_trip(key, end_record(id));
  const auto heuristic = heuristic_record(id);
  expect_round_trip(heuristic_key(heuristic.xid), heuristic);
  expect_round_trip("identity", LogIdentity{"main", {42}, kLogFormat});
  expect_round_trip(epoch_key(7), EpochRef{7, ~std::uint64_t{0}});
  expect_round_trip("served", ServedEpoch{~std::uint64_t{0}});
  expect_round_trip("backup", BackupMark{1'700'000'000'000'000, 7, ""});
  expect_round_trip("backup", BackupMark{-1, 0, "payments"});
  expect_round_trip("former", FormerLogs{{{42}, 7}, {{~std::uint64_t{0}}, 0}});
  expect_round_trip("former", FormerLogs{});
  expect_round_trip("participants",
                    Participants{{"kitchen", 0, Participant::State::active},
                                 {"orders", ~std::uint64_t{0}, Participant::State::draining},
                                 {"payments", 7, Participant::State::drained}});
  const TxnId floor{2, 99};
  const auto decoded = decode_row("floor", encode_floor("floor", floor));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(std::get<TxnId>(*decoded), floor);
}

TEST(RecordCodec, EmptyAndExtremeFieldsComeBack) {
  const TxnId id{~std::uint64_t{0}, ~std::uint64_t{0}};
  const auto key = transaction_key(id);
  expect_round_trip(key, CommitRecord{id, {}, {}, {}});
  expect_round_trip(key, EndRecord{id, std::string(64, '\0'), {"", "\xff"}, {"\xff\0"s, 1}});
  auto foreign = commit_record(id);
  foreign.branches[1].xid.gtrid = "another";
  foreign.branches[1].xid.format_id = 0;
  expect_round_trip(key, foreign);
}

TEST(RecordCodec, KeysSortAsTransactionsDo) {
  const std::vector<TxnId> ids{{0, 0}, {0, 255}, {0, 256}, {1, 0}, {1, 1ull << 40}, {256, 1}};
  std::vector<std::string> keys;
  for (const auto& id : ids) {
    keys.push_back(transaction_key(id));
    EXPECT_EQ(parse_transaction_key(keys.back()), id);
  }
  EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
  EXPECT_LT(epoch_key(255), epoch_key(256));
  EXPECT_EQ(parse_epoch_key(epoch_key(1ull << 60)), 1ull << 60);
  EXPECT_EQ(parse_transaction_key("short"), std::nullopt);
  EXPECT_EQ(parse_epoch_key("longer than 8"), std::nullopt);
}

TEST(RecordCodec, KeysOfHeuristicsAreWithinLmdbsLimitAndDiffer) {
  const Xid one{1, std::string(64, 'g'), std::string(64, 'b')};
  EXPECT_LE(heuristic_key(one).size(), 511u);
  EXPECT_NE(heuristic_key({1, "ab", "c"}), heuristic_key({1, "a", "bc"}));
}

// The format document's own example.
TEST(RecordCodec, TheBytesAreThoseOfTheFormatDocument) {
  const auto row = encode_row(epoch_key(7), EpochRef{7, 0x1122334455667788});
  EXPECT_EQ(row, "\x01\x03\x09\x88\x77\x66\x55\x44\x33\x22\x11\x50\x9c\xdc\x3f"sv);
}

TEST(RecordCodec, EveryDamagedByteIsNoticed) {
  const auto key = transaction_key({3, 17});
  const auto row = encode_row(key, commit_record({3, 17}));
  for (std::size_t at = 0; at < row.size(); ++at) {
    for (const int flip : {0x01, 0x80}) {
      auto bytes = row;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      EXPECT_TRUE(decode_row(key, bytes).has_error()) << "byte " << at;
    }
    EXPECT_TRUE(decode_row(key, row.substr(0, at)).has_error()) << "cut at " << at;
  }
}

TEST(RecordCodec, ARowUnderAnotherKeyIsDamaged) {
  const auto row = encode_row(transaction_key({3, 17}), commit_record({3, 17}));
  const auto decoded = decode_row(transaction_key({3, 18}), row);
  ASSERT_TRUE(decoded.has_error());
  EXPECT_EQ(decoded.error().fault, Fault::damaged);
}

// A row as a newer program might write it: well formed, with what this one does not know.
std::string row_with(std::string_view key, char version, char kind, std::string_view payload) {
  std::string row{version, kind};
  row += payload;
  auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(key.data()), static_cast<uInt>(key.size()));
  crc = ::crc32(crc, reinterpret_cast<const Bytef*>(row.data()), static_cast<uInt>(row.size()));
  for (int shift = 24; shift >= 0; shift -= 8)
    row.push_back(static_cast<char>(crc >> shift & 0xff));
  return row;
}

TEST(RecordCodec, ANewerVersionOrKindIsUnsupported) {
  const auto key = transaction_key({3, 17});
  const auto version = decode_row(key, row_with(key, 2, 5, "whatever"));
  ASSERT_TRUE(version.has_error());
  EXPECT_EQ(version.error().fault, Fault::unsupported);
  EXPECT_EQ(version.error().message, "it has version 2, this program knows 1");
  const auto kind = decode_row(key, row_with(key, 1, 99, ""));
  ASSERT_TRUE(kind.has_error());
  EXPECT_EQ(kind.error().fault, Fault::unsupported);
  EXPECT_THAT(kind.error().message, HasSubstr("kind 99"));
}

TEST(RecordCodec, WhatChecksButMakesNoSenseIsDamaged) {
  const auto key = transaction_key({3, 17});
  for (const char kind : {1, 2, 4, 5, 6, 7}) {
    const auto decoded = decode_row(key, row_with(key, 1, kind, "\xff\xff\xff"));
    ASSERT_TRUE(decoded.has_error());
    EXPECT_EQ(decoded.error().fault, Fault::damaged);
  }
  EXPECT_TRUE(decode_row("odd", row_with("odd", 1, 5, "")).has_error());  // no transaction's key
  EXPECT_TRUE(decode_row("odd", row_with("odd", 1, 3, "")).has_error());  // no epoch's key
  EXPECT_TRUE(decode_row("odd", row_with("odd", 1, 8, "")).has_error());  // no heuristic's key
  EXPECT_TRUE(decode_row("odd", row_with("odd", 0, 1, "")).has_error());  // version 0
}

}  // namespace
}  // namespace twofold
