#include "protocol/outcome.h"

#include <gtest/gtest.h>

#include <set>

namespace twofold {
namespace {

TEST(Refusal, SaysWhoWhatAndWhy) {
  EXPECT_EQ(to_text(Refusal{"payments", 0, "add", "min", "customer/c-1", "100", "0"}),
            "payments: add customer/c-1: would go below min 0, found 100");
  EXPECT_EQ(to_text(Refusal{"kitchen", 2, "add", "max", "slots/r-1", "9", "10"}),
            "kitchen: add slots/r-1: would go above max 10, found 9");
  EXPECT_EQ(to_text(Refusal{"orders", 0, "insert", "present", "order/1", "7", ""}),
            "orders: insert order/1: the key is present, found 7");
  EXPECT_EQ(to_text(Refusal{"payments", 0, "add", "absent", "customer/x", "", ""}),
            "payments: add customer/x: the key is absent");
  EXPECT_EQ(to_text(Refusal{"payments", 0, "expect", "expect", "k", "", "5"}),
            "payments: expect k: expected 5, the key is absent");
  EXPECT_EQ(to_text(Refusal{"payments", 0, "add", "overflow", "k", "9223372036854775807", "1"}),
            "payments: add k: adding 1 overflows 64 bits, found 9223372036854775807");
  EXPECT_EQ(to_text(Refusal{"", 0, "add", "type", "k", "\"text\"", "int64"}),
            "add k: wrong type, expected int64, found \"text\"");
  // No half sentence where a participant does not say what it asked for.
  EXPECT_EQ(to_text(Refusal{"s", 0, "publish", "type", "a", "a folder", ""}),
            "s: publish a: wrong type, found a folder");
  EXPECT_EQ(to_text(Refusal{"s", 0, "add", "min", "k", "1", ""}),
            "s: add k: would go below min, found 1");
  EXPECT_EQ(to_text(Refusal{"s", 0, "add", "overflow", "k", "", ""}),
            "s: add k: adding overflows 64 bits");
  EXPECT_EQ(to_text(Refusal{"s", 0, "expect", "expect", "k", "1", ""}),
            "s: expect k: not as expected, found 1");
  EXPECT_EQ(to_text(Refusal{"s", 0, "frob", "invalid", "", "frob", "a store knows get and put"}),
            "s: frob: invalid: a store knows get and put, not frob");
  EXPECT_EQ(to_text(Refusal{"s", 0, "", "invalid", "", "", "not work"}), "s: invalid: not work");
}

// A participant in another language may leave fields out; a person is told something all the same.
TEST(Refusal, SaysSomethingWhateverIsMissing) {
  EXPECT_EQ(to_text(Refusal{}), "refused without a reason");
  EXPECT_EQ(to_text(Refusal{"payments", 0, "", "", "", "", ""}),
            "payments: refused without a reason");
  EXPECT_EQ(to_text(Refusal{"payments", 0, "add", "", "k", "1", "closed"}),
            "payments: add k: closed, found 1");
}

TEST(Outcome, EveryVerdictAndReasonHasItsOwnName) {
  std::set<std::string_view> verdicts, reasons;
  for (int i = 1; i <= 7; ++i) verdicts.insert(name(static_cast<Verdict>(i)));
  for (int i = 0; i <= 11; ++i) reasons.insert(name(static_cast<Reason>(i)));
  EXPECT_EQ(verdicts.size(), 7u);
  EXPECT_EQ(reasons.size(), 12u);
  EXPECT_EQ(name(Verdict::not_found), "not_found");
  EXPECT_EQ(name(Reason::rolled_back), "rolled_back");
}

TEST(Outcome, OnlyTransientReasonsMayBeRetried) {  // rule 7
  std::set<std::string_view> may;
  for (int i = 0; i <= 11; ++i) {
    if (retryable(static_cast<Reason>(i))) may.insert(name(static_cast<Reason>(i)));
  }
  EXPECT_EQ(may, (std::set<std::string_view>{"deadlock", "timeout", "unavailable", "lost",
                                             "shutdown", "space", "overload", "rolled_back"}));
}

}  // namespace
}  // namespace twofold
