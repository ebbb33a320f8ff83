#include "resource_manager/adapters/store_operations.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "protocol/utf8.h"

namespace twofold::resource_manager::store {
namespace {

using Arguments = std::vector<std::pair<std::string, Value>>;

Value number(std::int64_t value) {
  return Value{value};
}
Value text(std::string value) {
  return Value{std::move(value)};
}

constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
constexpr auto kMax = std::numeric_limits<std::int64_t>::max();

class MapView final : public View {
 public:
  explicit MapView(const std::map<std::string, Value>& values) {
    for (const auto& [key, value] : values) values_[key] = encode_value(value);
  }
  std::optional<std::string_view> find(std::string_view key) override {
    auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return std::string_view(found->second);
  }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

struct Outcome {
  Results results;
  std::vector<Refusal> refusals;
  WriteSet writes;
};

Outcome evaluate_on(const std::map<std::string, Value>& values, const Work& work) {
  Parsed parsed = parse(encode_work(work));
  EXPECT_TRUE(parsed.invalid.empty());
  MapView view(values);
  Outcome outcome;
  Evaluated evaluated = evaluate(parsed.operations, view, outcome.writes);
  outcome.results = std::move(evaluated.results);
  outcome.refusals = std::move(evaluated.refusals);
  return outcome;
}

// The one refusal's check, value and limit; or what else there is.
std::string refusal_of(const std::map<std::string, Value>& values, const Operation& operation) {
  const Outcome outcome = evaluate_on(values, {operation});
  EXPECT_EQ(outcome.refusals.empty(), outcome.refusals.size() != 1);
  if (outcome.refusals.empty()) return "accepted";
  EXPECT_TRUE(outcome.writes.empty());
  const Refusal& refusal = outcome.refusals.front();
  EXPECT_EQ(refusal.op, operation.name);
  EXPECT_EQ(refusal.key, "k");
  return refusal.check + "|" + refusal.value + "|" + refusal.limit;
}

std::string invalid_of(const Operation& operation) {
  Parsed parsed = parse(encode_work({operation}));
  if (parsed.invalid.empty()) return "valid";
  EXPECT_EQ(parsed.invalid.front().check, "invalid");
  return parsed.invalid.front().limit;
}

// ---- what operations do
// ----------------------------------------------------------------------------

TEST(StoreOperations, GetTellsTheValueOrNull) {
  const Outcome outcome =
      evaluate_on({{"k", number(7)}, {"t", text("x")}}, {{"get", {{"key", text("k")}}},
                                                         {"get", {{"key", text("t")}}},
                                                         {"get", {{"key", text("absent")}}}});
  EXPECT_EQ(outcome.results, (Results{number(7), text("x"), Value{}}));
  EXPECT_TRUE(outcome.writes.empty());
}

TEST(StoreOperations, PutWritesWhateverWasThere) {
  const Outcome outcome =
      evaluate_on({{"k", number(7)}}, {{"put", {{"key", text("k")}, {"value", text("x")}}},
                                       {"put", {{"key", text("n")}, {"value", number(1)}}}});
  EXPECT_EQ(outcome.results, (Results{Value{}, Value{}}));
  EXPECT_EQ(outcome.writes,
            (WriteSet{{"k", encode_value(text("x"))}, {"n", encode_value(number(1))}}));
}

TEST(StoreOperations, APutOfTheSameValueIsAWrite) {
  const Outcome outcome =
      evaluate_on({{"k", number(7)}}, {{"put", {{"key", text("k")}, {"value", number(7)}}}});
  EXPECT_EQ(outcome.writes.size(), 1u);
}

TEST(StoreOperations, InsertWantsTheKeyAbsent) {
  const Operation insert{"insert", {{"key", text("k")}, {"value", number(1)}}};
  EXPECT_EQ(refusal_of({}, insert), "accepted");
  EXPECT_EQ(refusal_of({{"k", number(7)}}, insert), "present|7|");
}

TEST(StoreOperations, EraseTellsWhetherTheKeyWasThere) {
  const Operation erase{"erase", {{"key", text("k")}}};
  const Outcome there = evaluate_on({{"k", number(7)}}, {erase});
  EXPECT_EQ(there.results, (Results{Value{true}}));
  EXPECT_EQ(there.writes, (WriteSet{{"k", std::nullopt}}));
  const Outcome absent = evaluate_on({}, {erase});
  EXPECT_EQ(absent.results, (Results{Value{false}}));
  EXPECT_TRUE(absent.writes.empty());
}

TEST(StoreOperations, AddTellsTheNewValue) {
  const Outcome outcome = evaluate_on(
      {{"k", number(7)}},
      {{"add", {{"key", text("k")}, {"by", number(-7)}, {"min", number(0)}, {"max", number(0)}}}});
  EXPECT_EQ(outcome.results, (Results{number(0)}));
  EXPECT_EQ(outcome.writes, (WriteSet{{"k", encode_value(number(0))}}));
}

TEST(StoreOperations, AddChecksItsLimits) {
  auto add = [](std::int64_t by, Arguments more = {}) {
    Arguments arguments{{"key", text("k")}, {"by", number(by)}};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Operation{"add", arguments};
  };
  EXPECT_EQ(refusal_of({{"k", number(7)}}, add(-8, {{"min", number(0)}})), "min|7|0");
  EXPECT_EQ(refusal_of({{"k", number(7)}}, add(4, {{"max", number(10)}})), "max|7|10");
  EXPECT_EQ(refusal_of({}, add(4)), "absent||4");
  EXPECT_EQ(refusal_of({{"k", text("x")}}, add(4)), "type|\"x\"|int64");
  EXPECT_EQ(refusal_of({{"k", number(kMax)}}, add(1)), "overflow|9223372036854775807|1");
  EXPECT_EQ(refusal_of({{"k", number(kMin)}}, add(-1, {{"min", number(0)}})),
            "overflow|-9223372036854775808|-1");
  EXPECT_EQ(refusal_of({{"k", number(kMax - 1)}}, add(1)), "accepted");
}

TEST(StoreOperations, BothLimitsAreToldWhenBothFail) {
  const Outcome outcome = evaluate_on(
      {{"k", number(7)}},
      {{"add", {{"key", text("k")}, {"by", number(0)}, {"min", number(8)}, {"max", number(6)}}}});
  ASSERT_EQ(outcome.refusals.size(), 2u);
  EXPECT_EQ(outcome.refusals[0].check, "min");
  EXPECT_EQ(outcome.refusals[1].check, "max");
}

TEST(StoreOperations, ExpectComparesValueAndAbsence) {
  auto expect = [](Value value) {
    return Operation{"expect", {{"key", text("k")}, {"value", std::move(value)}}};
  };
  EXPECT_EQ(refusal_of({{"k", number(7)}}, expect(number(7))), "accepted");
  EXPECT_EQ(refusal_of({}, expect(Value{})), "accepted");
  EXPECT_EQ(refusal_of({{"k", number(7)}}, expect(number(8))), "expect|7|8");
  EXPECT_EQ(refusal_of({{"k", number(7)}}, expect(text("7"))), "expect|7|\"7\"");
  EXPECT_EQ(refusal_of({{"k", number(7)}}, expect(Value{})), "expect|7|null");
  EXPECT_EQ(refusal_of({}, expect(number(7))), "expect||7");
}

TEST(StoreOperations, EachSeesWhatThoseBeforeItWrote) {
  const Outcome outcome =
      evaluate_on({{"k", number(7)}}, {{"add", {{"key", text("k")}, {"by", number(1)}}},
                                       {"get", {{"key", text("k")}}},
                                       {"erase", {{"key", text("k")}}},
                                       {"get", {{"key", text("k")}}},
                                       {"insert", {{"key", text("k")}, {"value", text("new")}}},
                                       {"get", {{"key", text("k")}}}});
  EXPECT_TRUE(outcome.refusals.empty());
  EXPECT_EQ(outcome.results,
            (Results{number(8), number(8), Value{true}, Value{}, Value{}, text("new")}));
  EXPECT_EQ(outcome.writes, (WriteSet{{"k", encode_value(text("new"))}}));
}

TEST(StoreOperations, EveryFailedCheckIsToldAndChangesNothing) {
  const Outcome outcome = evaluate_on(
      {{"a", number(1)}}, {{"add", {{"key", text("a")}, {"by", number(-2)}, {"min", number(0)}}},
                           {"put", {{"key", text("b")}, {"value", number(5)}}},
                           {"insert", {{"key", text("b")}, {"value", number(6)}}},
                           {"add", {{"key", text("a")}, {"by", number(-1)}, {"min", number(0)}}}});
  ASSERT_EQ(outcome.refusals.size(), 2u);
  EXPECT_EQ(outcome.refusals[0].operation, 0u);
  EXPECT_EQ(outcome.refusals[0].check, "min");
  EXPECT_EQ(outcome.refusals[1].operation, 2u);
  EXPECT_EQ(outcome.refusals[1].check, "present");
  EXPECT_EQ(outcome.results, (Results{Value{}, Value{}, Value{}, number(0)}));
}

TEST(StoreOperations, LongTextsAreShownByTheirBeginning) {
  std::string umlauts;
  for (int i = 0; i < 500; ++i) umlauts += "ä";
  const Outcome outcome =
      evaluate_on({{"k", text(umlauts)}}, {{"insert", {{"key", text("k")}, {"value", number(1)}}}});
  ASSERT_EQ(outcome.refusals.size(), 1u);
  const std::string& value = outcome.refusals[0].value;
  EXPECT_LT(value.size(), 210u);
  EXPECT_TRUE(is_utf8(value));
  EXPECT_TRUE(value.ends_with("…"));
}

// ---- what is understood
// ----------------------------------------------------------------------------

TEST(StoreOperations, InvalidOperationsSayWhatIsAllowed) {
  EXPECT_EQ(invalid_of({"get", {{"key", text("k")}}}), "valid");
  EXPECT_EQ(invalid_of({"drop", {}}), "a store knows get, put, insert, erase, add and expect");
  EXPECT_EQ(invalid_of({"get", {}}), "get takes key; key is missing");
  EXPECT_EQ(invalid_of({"put", {{"key", text("k")}}}), "put takes key and value; value is missing");
  EXPECT_EQ(invalid_of({"get", {{"key", text("k")}, {"by", number(1)}}}), "get takes key");
  EXPECT_NE(invalid_of({"get", {{"key", text("k")}, {"key", text("k")}}}), "valid");
  EXPECT_EQ(invalid_of({"get", {{"key", number(1)}}}), "key is a text of 1 to 400 bytes");
  EXPECT_EQ(invalid_of({"get", {{"key", text("")}}}), "key is a text of 1 to 400 bytes");
  EXPECT_EQ(invalid_of({"add", {{"key", text("k")}, {"by", text("1")}}}), "by is an int64");
  EXPECT_EQ(invalid_of({"add", {{"key", text("k")}, {"by", number(1)}, {"min", Value{1.5}}}}),
            "min is an int64");
  EXPECT_EQ(invalid_of({"put", {{"key", text("k")}, {"value", Value{}}}}),
            "value is an int64 or a text of up to 1 MiB");
  EXPECT_EQ(invalid_of({"expect", {{"key", text("k")}, {"value", Value{true}}}}),
            "value is an int64, a text of up to 1 MiB, or null");
}

TEST(StoreOperations, KeysAndTextsHaveTheirLimits) {
  EXPECT_EQ(invalid_of({"get", {{"key", text(std::string(400, 'k'))}}}), "valid");
  EXPECT_NE(invalid_of({"get", {{"key", text(std::string(401, 'k'))}}}), "valid");
  const std::size_t mib = 1u << 20;
  auto put = [](std::size_t bytes) {
    return Operation{"put", {{"key", text("k")}, {"value", text(std::string(bytes, 'v'))}}};
  };
  EXPECT_EQ(invalid_of(put(mib)), "valid");
  EXPECT_NE(invalid_of(put(mib + 1)), "valid");
}

TEST(StoreOperations, EveryInvalidOperationIsTold) {
  Parsed parsed = parse(
      encode_work({{"get", {}}, {"get", {{"key", text("k")}}}, {"drop", {{"key", text("k")}}}}));
  ASSERT_EQ(parsed.invalid.size(), 2u);
  EXPECT_EQ(parsed.invalid[0].operation, 0u);
  EXPECT_EQ(parsed.invalid[1].operation, 2u);
  EXPECT_EQ(parsed.invalid[1].op, "drop");
  EXPECT_EQ(parsed.invalid[1].key, "k");
}

TEST(StoreOperations, WorkThatIsNoWorkIsInvalid) {
  Parsed parsed = parse("\xff\xff\xff");
  ASSERT_EQ(parsed.invalid.size(), 1u);
  EXPECT_EQ(parsed.invalid[0].check, "invalid");
  EXPECT_FALSE(parsed.invalid[0].limit.empty());
}

TEST(StoreOperations, NoWorkIsFine) {
  Parsed parsed = parse("");
  EXPECT_TRUE(parsed.invalid.empty());
  EXPECT_TRUE(parsed.operations.empty());
}

TEST(StoreOperations, EachKeyIsLockedOnceInItsStrongestMode) {
  Parsed parsed = parse(encode_work({{"get", {{"key", text("b")}}},
                                     {"expect", {{"key", text("a")}, {"value", Value{}}}},
                                     {"insert", {{"key", text("a")}, {"value", number(1)}}},
                                     {"get", {{"key", text("b")}}},
                                     {"erase", {{"key", text("c")}}}}));
  EXPECT_EQ(locks_of(parsed.operations),
            (std::vector<LockRequest>{
                {"a", LockMode::exclusive}, {"b", LockMode::shared}, {"c", LockMode::exclusive}}));
}

}  // namespace
}  // namespace twofold::resource_manager::store
