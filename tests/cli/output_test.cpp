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

// In all that is printed, whoever gave it.
TEST(Output, NothingThatIsPrintedActsOnTheTerminal) {
  const std::string evil = "a\x1b[2J\u0085\u202eb\x7f";
  const std::string shown = "a\\x1b[2J\\u0085\\u202eb\\x7f";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  print_line(evil);
  Table table({"key"});
  table.add({evil + "\n"});
  table.print();
  print_json(json::object{{"key", evil}});
  note(evil);
  fail({Fault::invalid, evil});
  wrong_usage("show", evil);
  const std::string out = testing::internal::GetCapturedStdout();
  const std::string rule(shown.size() + 4, '-');
  const std::string json = "{\"key\":\"a\\u001b[2J\\u0085\\u202eb\\u007f\"}";
  EXPECT_EQ(out, shown + "\nkey\n" + rule + "\n" + shown + "\\x0a\n" + json + "\n");
  EXPECT_EQ(json::parse(json).at("key").as_string(), evil);  // it means the same
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      shown + "\ntwofold: " + shown + "\ntwofold show: " + shown + "\nSee: twofold show --help\n");
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
  value.set_raw(std::string("\0\xff", 2));
  EXPECT_EQ(to_text(value), "{\"base64\":\"AP8=\"}");
}

}  // namespace
}  // namespace twofold::cli
