#include "cli/output.h"

#include <gtest/gtest.h>

namespace twofold::cli {
namespace {

TEST(Output, NumbersAreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1'000), "1,000");
  EXPECT_EQ(grouped(-1'234'567), "-1,234,567");
  EXPECT_EQ(grouped(-100), "-100");
}

TEST(Output, CountsAgreeWithTheirNouns) {
  EXPECT_EQ(plural(0, "key"), "0 keys");
  EXPECT_EQ(plural(1, "branch"), "1 branch");
  EXPECT_EQ(plural(2'000, "branch"), "2,000 branches");
}

TEST(Output, AgesHaveAFittingUnit) {
  EXPECT_EQ(age(12), "12 ms");
  EXPECT_EQ(age(3'400), "3.4 s");
  EXPECT_EQ(age(300'000), "5 min");
}

TEST(Output, WidthCountsCharacters) {
  EXPECT_EQ(width("Zürich…"), 7U);
}

TEST(Output, ATableIsAligned) {
  Table table({"key", "value"}, {false, true});
  table.add({"ü", "1,000"});
  table.add({"longer", "2"});
  testing::internal::CaptureStdout();
  table.print();
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "key     value\n"
            "------  -----\n"
            "ü       1,000\n"
            "longer      2\n");
}

TEST(Output, ValuesBecomeJson) {
  wire::Value value;
  EXPECT_EQ(to_text(value), "null");
  value.set_integer(-5);
  EXPECT_EQ(to_text(value), "-5");
  value.set_text("a\"b");
  EXPECT_EQ(to_text(value), "\"a\\\"b\"");
  wire::Value list;
  list.mutable_list()->add_values()->set_boolean(true);
  *list.mutable_list()->add_values() = value;
  EXPECT_EQ(to_text(list), "[true,\"a\\\"b\"]");
}

}  // namespace
}  // namespace twofold::cli
