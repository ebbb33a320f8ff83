#include "lab/workflows/transaction_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace twofold::lab {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string fault_in(std::string_view line) {
  const auto parsed = parse_transaction_line(line);
  return parsed ? "accepted" : parsed.error().message;
}

std::string fault_in_argument(const std::string& value) {
  return fault_in(R"({"branches":[{"rm":"a","work":[{"op":"put","key":"k","value":)" + value +
                  "}]}]}");
}

TEST(TransactionLine, ReadsEverything) {
  const auto parsed = parse_transaction_line(
      R"({"request_id": "r-7", "timeout_ms": 5000, "branches": [)"
      R"({"rm": "payments", "work": [{"op": "add", "key": "customer/c", "by": -2350, "min": 0}]},)"
      R"({"rm": "orders", "work": [{"op": "put", "key": "x", "value": [true, null, "ü", -1]}]})"
      R"(]})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->request_id, "r-7");
  EXPECT_EQ(parsed->timeout, std::chrono::milliseconds(5000));
  ASSERT_EQ(parsed->branches.size(), 2U);
  const Operation add{"add",
                      {{"key", Value{"customer/c"}},
                       {"by", Value{std::int64_t{-2350}}},
                       {"min", Value{std::int64_t{0}}}}};
  EXPECT_EQ(parsed->branches[0].rm, "payments");
  EXPECT_EQ(parsed->branches[0].work, Work{add});
  const List list{Value{true}, Value{}, Value{"ü"}, Value{std::int64_t{-1}}};
  const Operation put{"put", {{"key", Value{"x"}}, {"value", Value{list}}}};
  EXPECT_EQ(parsed->branches[1].work, Work{put});
}

TEST(TransactionLine, RequestIdAndTimeoutMayBeMissing) {
  const auto parsed = parse_transaction_line(R"({"branches":[{"rm":"a","work":[]}]})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->request_id, "");
  EXPECT_EQ(parsed->timeout.count(), 0);
}

TEST(TransactionLine, BytesAreBase64) {
  const auto work = parse_work_text(
      R"({"op":"publish","path":"p","content":{"base64":"AP8="},"more":[{"base64":""}]})");
  ASSERT_TRUE(work) << work.error().message;
  EXPECT_EQ(*work->at(0).find("content"), Value{Bytes{std::string("\0\xff", 2)}});
  EXPECT_EQ(*work->at(0).find("more"), Value{List{Value{Bytes{""}}}});
  // Read back as it is printed.
  EXPECT_EQ(to_text(*work->at(0).find("content")), R"({"base64": "AP8="})");
  EXPECT_THAT(fault_in_argument(R"({"base64":"A"})"),
              StartsWith("branches[0].work[0].value.base64: is not base64"));
  EXPECT_THAT(fault_in_argument(R"({"base64":7})"), HasSubstr("cannot be a value"));
}

TEST(TransactionLine, TakesTheWholeRangeOfIntegersAndNothingElse) {
  EXPECT_EQ(fault_in_argument("9223372036854775807"), "accepted");
  EXPECT_EQ(fault_in_argument("-9223372036854775808"), "accepted");
  for (const char* number : {"9223372036854775808", "-9223372036854775809", "1.5", "1e3", "12.0"}) {
    EXPECT_THAT(fault_in_argument(number), StartsWith("branches[0].work[0].value: ")) << number;
    EXPECT_THAT(fault_in_argument(number), HasSubstr("not a 64-bit integer")) << number;
  }
  EXPECT_THAT(fault_in_argument("{}"), HasSubstr("object cannot be a value"));
  EXPECT_THAT(fault_in_argument(R"({"base64":"AP8=","x":1})"), HasSubstr("cannot be a value"));
  EXPECT_THAT(fault_in_argument("[1, [2.5]]"), StartsWith("branches[0].work[0].value[1][0]: "));
}

TEST(TransactionLine, SaysWhatIsWrongAndWhere) {
  const std::pair<const char*, const char*> faults[] = {
      {"", "not valid JSON"},
      {"not json", "not valid JSON"},
      {"[]", "the line is JSON, but not an object"},
      {"{}", "\"branches\" is missing"},
      {R"({"branches":[]})", "branches: is a list with at least one branch"},
      {R"({"branches":7})", "branches: is a list"},
      {R"({"branches":[7]})", "branches[0]: a branch is an object"},
      {R"({"branches":[{"work":[]}]})", "branches[0]: \"rm\" is missing"},
      {R"({"branches":[{"rm":""}]})", "branches[0].rm: names a resource manager"},
      {R"({"branches":[{"rm":"a","work":{}}]})", "branches[0].work: is a list of operations"},
      {R"({"branches":[{"rm":"a","works":[]}]})", "branches[0].works: is not known here"},
      {R"({"branches":[{"rm":"a","work":["get"]}]})",
       "branches[0].work[0]: an operation is an object"},
      {R"({"branches":[{"rm":"a","work":[{"key":"k"}]}]})",
       "branches[0].work[0]: \"op\" is missing"},
      {R"({"branches":[{"rm":"a","work":[{"op":1}]}]})",
       "branches[0].work[0].op: names the operation"},
      {R"({"timeout":1,"branches":[{"rm":"a"}]})", "timeout: is not known here"},
      {R"({"timeout_ms":0,"branches":[{"rm":"a"}]})", "timeout_ms: is a number of milliseconds"},
      {R"({"timeout_ms":"5","branches":[{"rm":"a"}]})", "timeout_ms: is a number of milliseconds"},
      {R"({"request_id":"","branches":[{"rm":"a"}]})", "request_id: is a text of 1 to 128 bytes"},
      {R"({"request_id":7,"branches":[{"rm":"a"}]})", "request_id: is a text of 1 to 128 bytes"},
  };
  for (const auto& [line, fault] : faults) EXPECT_THAT(fault_in(line), StartsWith(fault)) << line;
  const std::string long_id(129, 'x');
  EXPECT_THAT(fault_in(R"({"request_id":")" + long_id + R"(","branches":[{"rm":"a"}]})"),
              StartsWith("request_id:"));
}

// Of two amounts it would be luck which one counts.
TEST(TransactionLine, RefusesAKeyThatIsGivenTwiceWhereverItIs) {
  const std::pair<const char*, const char*> faults[] = {
      {R"({"branches":[{"rm":"a","work":[{"op":"add","key":"k","by":-5,"by":-50}]}]})", "\"by\""},
      {R"({"branches":[{"rm":"a","work":[]}],"branches":[{"rm":"b","work":[]}]})", "\"branches\""},
      {R"({"branches":[{"rm":"a","rm":"b","work":[]}]})", "\"rm\""},
      {R"({"request_id":"x","request_id":"x","branches":[{"rm":"a"}]})", "\"request_id\""},
      {R"({"branches":[{"rm":"a","work":[{"op":"get","key":"k","k\u0065y":"l"}]}]})", "\"key\""},
      {R"({"a":1,"a":2)", "\"a\""},
      {R"({"":1,"":2})", "\"\""},
  };
  for (const auto& [line, key] : faults) {
    EXPECT_THAT(fault_in(line), StartsWith(std::string(key) + " is given twice")) << line;
  }
  // The same key in several objects is no fault, nor is one within the other.
  EXPECT_EQ(fault_in(R"({"branches":[{"rm":"a","work":[{"op":"get","key":"k"},)"
                     R"({"op":"get","key":"k"}]},{"rm":"b","work":[]}]})"),
            "accepted");
  EXPECT_THAT(fault_in(R"({"x":{"x":{"x":1}}})"), StartsWith("x: is not known here"));
}

TEST(TransactionLine, RefusesWhatIsNotTextInUtf8) {
  EXPECT_THAT(fault_in(std::string("\0\1", 2)), StartsWith("not valid JSON"));
  EXPECT_THAT(fault_in_argument("\"\xff\""), StartsWith("not valid JSON"));
  EXPECT_THAT(fault_in_argument("\"\xc3\""), StartsWith("not valid JSON"));
  EXPECT_THAT(fault_in_argument("\"\\ud800\""), StartsWith("not valid JSON"));
  EXPECT_THAT(fault_in_argument(std::string("\"a\0b\"", 5)), StartsWith("not valid JSON"));
}

// What no participant could read is refused here, before anything is sent.
TEST(TransactionLine, KeepsTheLimitsOfWork) {
  const auto with_arguments = [](std::size_t count) {
    std::string operation = R"({"op":"put")";
    for (std::size_t i = 0; i < count; ++i) operation += ",\"a" + std::to_string(i) + "\":1";
    return R"({"branches":[{"rm":"a","work":[)" + operation + "}]}]}";
  };
  EXPECT_EQ(fault_in(with_arguments(kArgumentsMax)), "accepted");
  EXPECT_EQ(fault_in(with_arguments(kArgumentsMax + 1)),
            "branches[0].work[0]: more than 64 arguments");
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + "1" + std::string(depth, ']');
  };
  EXPECT_EQ(fault_in_argument(nested(kListDepthMax)), "accepted");
  EXPECT_THAT(
      fault_in_argument(nested(kListDepthMax + 1)),
      AllOf(StartsWith("branches[0].work[0].value[0]"), HasSubstr(": lists nest deeper than 16")));
  EXPECT_EQ(fault_in(R"({"branches":[{"rm":"a","work":[{"op":"get","":"k"}]}]})"),
            "branches[0].work[0]: an argument has no name");
}

TEST(TransactionLine, QuotesNothingThatSpoilsATerminal) {
  EXPECT_THAT(fault_in(R"({"\u001b[2J":1})"), StartsWith("\\x1b[2J: is not known here"));
  EXPECT_THAT(fault_in(R"({"branches":[{"rm":"a","work":[{"op":"put","a\nb":{}}]}]})"),
              StartsWith("branches[0].work[0].a\\x0ab: an object"));
  EXPECT_THAT(fault_in(R"({"\u0007":1,"\u0007":2})"), StartsWith("\"\\x07\" is given twice"));
  EXPECT_LT(fault_in("{\"" + std::string(100'000, 'k') + "\":1}").size(), 400U);
}

TEST(TransactionLine, BlankMeansOnlySpace) {
  for (const char* line : {"", " ", "\r", " \t\r"}) EXPECT_TRUE(is_blank(line));
  EXPECT_FALSE(is_blank(" x"));
}

}  // namespace
}  // namespace twofold::lab
