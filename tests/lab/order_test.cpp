#include "lab/workflows/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "lab/workflows/generate.h"
#include "lab/workflows/transaction_line.h"
#include "tests/lab/fake_stores.h"
#include "tests/lab/order_model.h"

namespace twofold::lab {
namespace {

using testing::HasSubstr;

const Order kOrder{"o-1", "c-1", "r-1", "north", 2'350};

std::string with(const std::string& member, const std::string& value) {
  std::map<std::string, std::string> members{{"order_id", "\"o-1\""},
                                             {"customer", "\"c-1\""},
                                             {"restaurant", "\"r-1\""},
                                             {"zone", "\"north\""},
                                             {"total_pence", "2350"}};
  members[member] = value;
  std::string line;
  for (const auto& [name, text] : members) {
    if (!text.empty()) line += (line.empty() ? "{\"" : ", \"") + name + "\": " + text;
  }
  return line + "}";
}

Outcome refused(std::vector<Refusal> refusals) {
  Outcome outcome;
  outcome.verdict = Verdict::aborted;
  outcome.reason = Reason::refused;
  outcome.refusals = std::move(refusals);
  return outcome;
}
Refusal refusal(const char* op, const char* check, const char* key) {
  return {"rm", 0, op, check, key, "", ""};
}

TEST(Order, ReadsALine) {
  const auto order = parse_order(with("note", "\"no onions\""));
  ASSERT_TRUE(order) << order.error().message;
  EXPECT_EQ(order->id, "o-1");
  EXPECT_EQ(order->customer, "c-1");
  EXPECT_EQ(order->restaurant, "r-1");
  EXPECT_EQ(order->zone, "north");
  EXPECT_EQ(order->total, 2'350);
}

TEST(Order, IdsHave1To64Bytes) {
  for (const char* member : {"order_id", "customer", "restaurant", "zone"}) {
    EXPECT_TRUE(parse_order(with(member, "\"" + std::string(64, 'x') + "\""))) << member;
    for (const std::string& bad : {std::string("\"\""), "\"" + std::string(65, 'x') + "\"",
                                   std::string("7"), std::string("null"), std::string()}) {
      const auto order = parse_order(with(member, bad));
      ASSERT_FALSE(order) << member << " " << bad;
      EXPECT_THAT(order.error().message, HasSubstr(member));
    }
  }
}

TEST(Order, TotalsArePositiveIntegers) {
  EXPECT_TRUE(parse_order(with("total_pence", "1")));
  EXPECT_TRUE(parse_order(with("total_pence", "9223372036854775807")));
  for (const char* bad : {"0", "-5", "9223372036854775808", "\"12\"", "1.0", "1e2", "true", ""}) {
    const auto order = parse_order(with("total_pence", bad));
    ASSERT_FALSE(order) << bad;
    EXPECT_EQ(order.error().fault, Fault::invalid);
  }
}

TEST(Order, IsOneTransactionOverFourStores) {
  const auto expected = parse_transaction_line(
      R"({"branches": [)"
      R"({"rm": "orders", "work": [{"op": "insert", "key": "order/o-1", "value": "c-1"}]},)"
      R"({"rm": "payments", "work": [{"op": "add", "key": "customer/c-1", "by": -2350, "min": 0},)"
      R"({"op": "add", "key": "restaurant/r-1", "by": 2350}]},)"
      R"({"rm": "dispatch", "work": [{"op": "add", "key": "zone/north", "by": -1, "min": 0},)"
      R"({"op": "insert", "key": "assignment/o-1", "value": "north"}]},)"
      R"({"rm": "kitchen", "work": [{"op": "add", "key": "slots/r-1", "by": -1, "min": 0},)"
      R"({"op": "insert", "key": "ticket/o-1", "value": "r-1"}]}]})");
  ASSERT_TRUE(expected) << expected.error().message;
  const auto transaction = to_transaction(kOrder);
  ASSERT_EQ(transaction.branches.size(), expected->branches.size());
  for (std::size_t i = 0; i < transaction.branches.size(); ++i) {
    EXPECT_EQ(transaction.branches[i].rm, expected->branches[i].rm);
    EXPECT_EQ(transaction.branches[i].work, expected->branches[i].work);
  }
}

TEST(Order, ARefusalHasTheFirstClassThatApplies) {
  const auto present = refusal("insert", "present", "ticket/o-1");
  const auto absent = refusal("add", "absent", "zone/nowhere");
  const auto funds = refusal("add", "min", "customer/c-1");
  const auto courier = refusal("add", "min", "zone/north");
  const auto kitchen = refusal("add", "min", "slots/r-1");
  const auto overflow = refusal("add", "overflow", "restaurant/r-1");
  EXPECT_EQ(classify(refused({overflow, kitchen, courier, funds, absent, present})),
            OrderClass::duplicate);
  EXPECT_EQ(classify(refused({overflow, kitchen, courier, funds, absent})), OrderClass::unknown);
  EXPECT_EQ(classify(refused({kitchen, overflow, funds, courier})), OrderClass::funds);
  EXPECT_EQ(classify(refused({kitchen, courier})), OrderClass::courier);
  EXPECT_EQ(classify(refused({overflow, kitchen})), OrderClass::kitchen);
  EXPECT_EQ(classify(refused({overflow})), OrderClass::other);
  EXPECT_EQ(classify(refused({})), OrderClass::other);
}

TEST(Order, OtherOutcomesAreToldApart) {
  const auto outcome = [](Verdict verdict, Reason reason) {
    Outcome made;
    made.verdict = verdict;
    made.reason = reason;
    return classify(made);
  };
  EXPECT_EQ(outcome(Verdict::committed, Reason::none), OrderClass::committed);
  EXPECT_EQ(outcome(Verdict::aborted, Reason::timeout), OrderClass::aborted);
  EXPECT_EQ(outcome(Verdict::rejected, Reason::overload), OrderClass::aborted);
  EXPECT_EQ(outcome(Verdict::rejected, Reason::invalid), OrderClass::invalid);
  EXPECT_EQ(outcome(Verdict::not_found, Reason::none), OrderClass::aborted);
  EXPECT_EQ(outcome(Verdict::unknown, Reason::none), OrderClass::undecided);
  EXPECT_EQ(outcome(Verdict::expired, Reason::none), OrderClass::undecided);
  EXPECT_EQ(outcome(Verdict::pending, Reason::none), OrderClass::undecided);
}

TEST(World, IsReadAndLoaded) {
  const auto world = parse_world(
      R"({"customers": {"c-1": 7, "c-2": 8}, "kitchen_slots": {"r-1": 3}, "couriers": {"n": 2}})");
  ASSERT_TRUE(world) << world.error().message;
  std::size_t keys = 0;
  const auto transactions = load_transactions(*world, 2);
  for (const auto& transaction : transactions) {
    for (const auto& branch : transaction.branches) {
      for (const auto& operation : branch.work) {
        EXPECT_EQ(operation.name, "put");
        ++keys;
      }
    }
  }
  EXPECT_EQ(transactions.size(), 3U);
  EXPECT_EQ(keys, 5U);
  EXPECT_EQ(transactions[1].branches[0].rm, "payments");
  const Operation zero{"put",
                       {{"key", Value{"restaurant/r-1"}}, {"value", Value{std::int64_t{0}}}}};
  EXPECT_EQ(transactions[1].branches[0].work.front(), zero);
}

TEST(World, SaysWhatIsWrong) {
  for (const char* text : {"", "[]", "{}", R"({"customers": {"c": -1}})",
                           R"({"customers": {"c": 1.5}, "kitchen_slots": {}, "couriers": {}})"}) {
    EXPECT_FALSE(parse_world(text)) << text;
  }
  const auto twice = parse_world(
      R"({"customers": {"c": 1, "d": 2, "c": 3}, "kitchen_slots": {}, "couriers": {}})");
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, testing::StartsWith("\"c\" is given twice"));
}

TEST(Order, RefusesAKeyThatIsGivenTwice) {
  const auto order =
      parse_order(R"({"order_id":"o","customer":"c","restaurant":"r","zone":"z","total_pence":1,)"
                  R"("total_pence":100})");
  ASSERT_FALSE(order);
  EXPECT_THAT(order.error().message, testing::StartsWith("\"total_pence\" is given twice"));
}

// The workflow's transactions, run on stores in memory, and their classification agree with the
// model order by order, on worlds where everything is scarce and ids repeat.
TEST(OrderProperty, AgreesWithTheSequentialModel) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::uint64_t bound) { return std::to_string(random() % bound); };
    World world;
    for (int i = 0; i < 5; ++i) {
      world.customers["c-" + std::to_string(i)] = static_cast<std::int64_t>(random() % 5'000);
      world.kitchen_slots["r-" + std::to_string(i)] = static_cast<std::int64_t>(random() % 6);
      world.couriers["z-" + std::to_string(i)] = static_cast<std::int64_t>(random() % 6);
    }
    FakeStores stores;
    for (const auto& load : load_transactions(world, 4)) {
      ASSERT_EQ(stores.run(load).verdict, Verdict::committed);
    }
    OrderModel model(world);
    for (int i = 0; i < 200; ++i) {
      const Order order{"o-" + pick(150), "c-" + pick(6), "r-" + pick(6), "z-" + pick(6),
                        static_cast<std::int64_t>(1 + random() % 900)};
      const auto found = classify(stores.run(to_transaction(order)));
      ASSERT_EQ(name(found), name(model.run(order))) << "seed " << seed << ", order " << i;
    }
  }
}

// The example orders through the same stores: the only place that compares with expected.json.
TEST(OrderData, TheExampleGivesWhatIsExpected) {
  const std::string folder = TWOFOLD_SOURCE_DIR "/tests/data/";
  std::ifstream world_file(folder + "world.json");
  std::stringstream world_text;
  world_text << world_file.rdbuf();
  const auto world = parse_world(world_text.str());
  ASSERT_TRUE(world) << world.error().message;
  FakeStores stores;
  for (const auto& load : load_transactions(*world)) stores.run(load);
  std::map<std::string, int> counts;
  std::ifstream lines(folder + "orders.jsonl");
  for (std::string line; std::getline(lines, line);) {
    if (is_blank(line)) continue;
    const auto order = parse_order(line);
    const auto found = order ? classify(stores.run(to_transaction(*order))) : OrderClass::invalid;
    const bool whole = found == OrderClass::committed || found == OrderClass::invalid;
    ++counts[(whole ? "" : "refused_") + std::string(name(found))];
  }
  std::ifstream expected_file(folder + "expected.json");
  std::stringstream expected_text;
  expected_text << expected_file.rdbuf();
  const auto expected = parse_json_line(expected_text.str());
  ASSERT_TRUE(expected) << expected.error().message;
  EXPECT_EQ(counts.size(), expected->size());
  for (const auto& entry : *expected) {
    EXPECT_EQ(counts[std::string(entry.key())], entry.value().as_int64()) << entry.key();
  }
}

}  // namespace
}  // namespace twofold::lab
