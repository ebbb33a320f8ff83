#include "resource_manager/adapters/store_rows.h"

#include <gtest/gtest.h>

#include <limits>

namespace twofold::resource_manager::store {
namespace {

Xid xid_of(LogId log_id, std::uint64_t epoch, std::uint64_t nonce, std::uint64_t sequence,
           std::string node = "main") {
  Xid xid;
  xid.gtrid = Gtrid{log_id, epoch, nonce, sequence, std::move(node)}.encode();
  xid.bqual = Bqual{1, "payments"}.encode();
  return xid;
}

TEST(StoreRows, ValuesComeBack) {
  for (std::int64_t number :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40,
        std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(decode_value(encode_value(Value{number})), Value{number});
  }
  for (const std::string& text : {std::string(), std::string("x"), std::string("i\0t", 3)}) {
    EXPECT_EQ(decode_value(encode_value(Value{text})), Value{text});
  }
}

TEST(StoreRowsDeathTest, ADamagedValueEndsTheProcess) {
  EXPECT_DEATH(decode_value("i123"), "contract broken");
  EXPECT_DEATH(decode_value(""), "contract broken");
  EXPECT_DEATH(decode_value("x12345678"), "contract broken");
}

TEST(StoreRows, APreparedBranchComesBackWhole) {
  const Xid xid = xid_of(LogId{7}, 3, 99, 12);
  const std::vector<LockRequest> locks{{"a", LockMode::exclusive}, {"b", LockMode::shared}};
  const WriteSet writes{{"a", encode_value(Value{std::int64_t{5}})},
                        {"gone", std::nullopt},
                        {"text", encode_value(Value{std::string(100'000, 't')})}};
  const std::string row = encode_prepared(1'234'567, locks, writes);
  std::optional<PreparedRow> back = decode_prepared(prepared_key(xid), row);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->xid, xid);
  EXPECT_EQ(back->wall_us, 1'234'567);
  EXPECT_EQ(back->locks, locks);
  EXPECT_EQ(back->writes, writes);
}

TEST(StoreRows, ABranchOfAnotherMakerComesBackToo) {
  Xid xid;
  xid.format_id = 0;
  xid.gtrid = std::string("\0\xff", 2);
  std::optional<PreparedRow> back = decode_prepared(prepared_key(xid), encode_prepared(0, {}, {}));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->xid, xid);
}

// Cut anywhere, lengthened, or of another version: refused, never misread.
TEST(StoreRows, DamagedPreparedRowsAreRefused) {
  const std::string key = prepared_key(xid_of(LogId{7}, 3, 99, 12));
  const std::string row = encode_prepared(1, std::vector<LockRequest>{{"key", LockMode::shared}},
                                          {{"key", encode_value(Value{std::int64_t{5}})}});
  ASSERT_TRUE(decode_prepared(key, row));
  for (std::size_t length = 0; length < row.size(); ++length) {
    EXPECT_FALSE(decode_prepared(key, row.substr(0, length))) << length;
  }
  EXPECT_FALSE(decode_prepared(key, row + "x"));
  EXPECT_FALSE(decode_prepared(key.substr(0, 10), row));
  std::string newer = row;
  newer[0] = 2;
  EXPECT_FALSE(decode_prepared(key, newer));
}

TEST(StoreRows, ALowWaterMarkCoversExactlyWhatIsBelowIt) {
  const LogId log_id{7};
  const auto [from, to] = outcomes_below(log_id, TxnId{3, 12});
  auto covered = [&, &first = from, &last = to](const Xid& xid) {
    const std::string key = outcome_key(xid);
    return first <= key && key < last;
  };
  EXPECT_TRUE(covered(xid_of(log_id, 3, 99, 11)));
  EXPECT_TRUE(covered(xid_of(log_id, 2, ~0ull, ~0ull)));  // an older epoch, whatever its nonce
  EXPECT_TRUE(covered(xid_of(log_id, 0, 0, 0)));
  EXPECT_FALSE(covered(xid_of(log_id, 3, 0, 12)));
  EXPECT_FALSE(covered(xid_of(log_id, 3, 0, 13)));
  EXPECT_FALSE(covered(xid_of(log_id, 4, 0, 1)));
  EXPECT_FALSE(covered(xid_of(LogId{6}, 1, 1, 1)));
  EXPECT_FALSE(covered(xid_of(LogId{8}, 1, 1, 1)));
  Xid foreign;
  foreign.format_id = 0;
  foreign.gtrid = "foreign";
  EXPECT_FALSE(covered(foreign));
}

TEST(StoreRows, OutcomeKeysOfDifferentXidsDiffer) {
  Xid one = xid_of(LogId{7}, 3, 99, 12, "ab");
  Xid other = xid_of(LogId{7}, 3, 99, 12, "a");
  other.bqual = "b" + one.bqual;  // the same bytes if the node's length were not there
  EXPECT_NE(outcome_key(one), outcome_key(other));
  Xid branch = one;
  branch.bqual = Bqual{2, "payments"}.encode();
  EXPECT_NE(outcome_key(one), outcome_key(branch));
}

TEST(StoreRows, NodeRecordsComeBack) {
  const NodeRecord record{"main", LogId{7}, 3, ~0ull, TxnId{2, 40}};
  EXPECT_EQ(decode_node("main", encode_node(record)), record);
  NodeRecord restored = record;
  restored.former = {{LogId{8}, {1, 2}}, {LogId{9}, {}}};
  EXPECT_EQ(decode_node("main", encode_node(restored)), restored);
  EXPECT_FALSE(decode_node("main", encode_node(restored) + "x"));
  EXPECT_FALSE(decode_node("main", encode_node(record).substr(1)));
  EXPECT_FALSE(decode_node("main", ""));
}

}  // namespace
}  // namespace twofold::resource_manager::store
