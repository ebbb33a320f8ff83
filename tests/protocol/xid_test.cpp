#include "protocol/xid.h"

#include <gtest/gtest.h>

#include <random>

namespace twofold {
namespace {

std::string random_bytes(std::mt19937& random, std::size_t bytes) {
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

Gtrid example() {
  Gtrid gtrid;
  gtrid.log_id = {0x0102030405060708};
  gtrid.epoch = 3;
  gtrid.nonce = 0xfffefdfcfbfaf9f8;
  gtrid.sequence = 17;
  gtrid.node = "main";
  return gtrid;
}

TEST(Xid, TextFormComesBackForAnyBytes) {
  std::mt19937 random(1);
  for (std::size_t gtrid = 1; gtrid <= 64; ++gtrid) {
    for (std::size_t bqual : {0, 1, 2, 3, 31, 63, 64}) {
      const Xid xid{static_cast<std::int32_t>(random() >> 1), random_bytes(random, gtrid),
                    random_bytes(random, bqual)};
      const std::string text = to_text(xid);
      ASSERT_LE(text.size(), 184u);
      const auto parsed = parse_xid(text);
      ASSERT_TRUE(parsed) << text;
      EXPECT_EQ(*parsed, xid);
    }
  }
}

TEST(Xid, LongestTextFitsAPostgresGid) {
  const Xid xid{0x7fffffff, std::string(64, '\xff'), std::string(64, '\xff')};
  EXPECT_EQ(to_text(xid).size(), 184u);
}

TEST(Xid, TextFormIsThisOne) {
  EXPECT_EQ(to_text(Xid{kFormatId, "abc", std::string("\0\1x", 3)}), "1415008070.YWJj.AAF4");
  EXPECT_EQ(to_text(Xid{0, "a", ""}), "0.YQ.");
}

TEST(Xid, RefusesEveryOtherText) {
  const std::string long_part(88, 'A');  // 66 bytes
  for (const std::string text :
       {"", ".", "..", "1", "1.YQ", "1.YQ.YQ.", ".YQ.YQ", "1..YQ", "-1.YQ.YQ", "+1.YQ.YQ",
        "01.YQ.YQ", " 1.YQ.YQ", "1.YQ==.YQ", "1.YR.YQ", "1.Y.YQ", "1.Y+.YQ", "1.Y/.YQ",
        "2147483648.YQ.YQ", "1.YQ.YQ\n"}) {
    const auto parsed = parse_xid(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().fault, Fault::invalid);
  }
  EXPECT_FALSE(parse_xid("1." + long_part + ".YQ"));
  EXPECT_FALSE(parse_xid("1.YQ." + long_part));
}

TEST(Xid, ValidKeepsTheStandardsLimits) {
  EXPECT_TRUE(valid(Xid{0, "g", ""}));
  EXPECT_TRUE(valid(Xid{1, std::string(64, 'g'), std::string(64, 'b')}));
  EXPECT_FALSE(valid(Xid{-1, "g", "b"}));
  EXPECT_FALSE(valid(Xid{1, "", "b"}));
  EXPECT_FALSE(valid(Xid{1, std::string(65, 'g'), ""}));
  EXPECT_FALSE(valid(Xid{1, "g", std::string(65, 'b')}));
}

TEST(Gtrid, HasTheDocumentedBytes) {
  const std::string expected(
      "\x01\x02\x03\x04\x05\x06\x07\x08"
      "\0\0\0\0\0\0\0\x03"
      "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8"
      "\0\0\0\0\0\0\0\x11"
      "main",
      36);
  EXPECT_EQ(example().encode(), expected);
  EXPECT_EQ(Gtrid::decode(expected), example());
}

TEST(Gtrid, OfOneLogSortByTransactionId) {
  Gtrid low = example(), high = example();
  high.sequence = 0x100;
  EXPECT_LT(low.encode(), high.encode());
  low.epoch = 2;
  low.sequence = ~0ull;
  EXPECT_LT(low.encode(), high.encode());
}

TEST(Gtrid, RefusesWhatIsNotOurs) {
  const std::string bytes = example().encode();
  EXPECT_FALSE(Gtrid::decode(""));
  EXPECT_FALSE(Gtrid::decode(bytes.substr(0, 32)));  // no node
  EXPECT_FALSE(Gtrid::decode(bytes.substr(0, 32) + std::string(33, 'n')));
  EXPECT_FALSE(Gtrid::decode(std::string(8, '\0') + bytes.substr(8)));  // no log id
  Gtrid longest = example();
  longest.node = std::string(32, 'n');
  EXPECT_EQ(longest.encode().size(), kXidPartBytesMax);
  EXPECT_EQ(Gtrid::decode(longest.encode()), longest);
}

TEST(GtridDeathTest, EncodesOnlyWhatDecodes) {
  Gtrid gtrid = example();
  gtrid.node = std::string(33, 'n');
  EXPECT_DEATH(gtrid.encode(), "contract broken");
  gtrid = example();
  gtrid.log_id = {};
  EXPECT_DEATH(gtrid.encode(), "contract broken");
}

TEST(Bqual, ComesBackAndRefusesTheRest) {
  const Bqual bqual{0x0102, "payments"};
  EXPECT_EQ(bqual.encode(), std::string("\x01\x02payments"));
  EXPECT_EQ(Bqual::decode(bqual.encode()), bqual);
  EXPECT_FALSE(Bqual::decode(""));
  EXPECT_FALSE(Bqual::decode("\x01\x02"));
  EXPECT_FALSE(Bqual::decode(std::string(65, 'x')));
}

TEST(GtridText, ComesBack) {
  const std::string bytes = example().encode();
  const auto parsed = parse_gtrid_text(gtrid_text(bytes));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, bytes);
  EXPECT_FALSE(parse_gtrid_text(""));
  EXPECT_FALSE(parse_gtrid_text("order-17!"));
  EXPECT_FALSE(parse_gtrid_text(base64url_encode(std::string(65, 'x'))));
}

TEST(TxnId, TextFormComesBack) {
  for (const TxnId id : {TxnId{0, 0}, TxnId{3, 17}, TxnId{~0ull, ~0ull}}) {
    const auto parsed = parse_txn_id(to_text(id));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, id);
  }
  EXPECT_EQ(to_text(TxnId{3, 17}), "3.17");
  for (const char* text :
       {"", "3", "3.", ".17", "3.17.1", "3.-1", "03.1", "3.18446744073709551616"}) {
    EXPECT_FALSE(parse_txn_id(text)) << text;
  }
}

TEST(Base64url, KnownAnswers) {  // RFC 4648 section 10, without padding
  const std::pair<const char*, const char*> answers[] = {
      {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
      {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}, {"\xfb\xff\xbf", "-_-_"}};
  for (const auto& [bytes, text] : answers) {
    EXPECT_EQ(base64url_encode(bytes), text);
    EXPECT_EQ(base64url_decode(text), bytes);
  }
}

}  // namespace
}  // namespace twofold
