// Real input through real processes: the shipped orders give exactly what any serial order of them
// gives, at any concurrency, and while processes are being killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "tests/process/fixture.h"
#include "tests/process/order_model.h"

namespace twofold::test {
namespace {

const std::string kOrders = std::string(TWOFOLD_SOURCE_DIR) + "/tests/data/orders.jsonl";
const std::string kWorld = std::string(TWOFOLD_SOURCE_DIR) + "/tests/data/world.json";
const std::string kExpected = std::string(TWOFOLD_SOURCE_DIR) + "/tests/data/expected.json";

// The object that the output ends with.
ModelCounts last_object(const std::string& text) {
  const auto begin = text.rfind('{');
  ModelCounts counts;
  if (begin == std::string::npos) return counts;
  const boost::json::value parsed = boost::json::parse(text.substr(begin));
  for (const auto& [key, value] : parsed.as_object()) {
    counts[key] = value.as_int64();
  }
  return counts;
}

class OrderTest : public ClusterTest {
 protected:
  // `twofold order …` in the background; `meanwhile` is called again and again with the number of
  // results that it has written so far.
  Ran order(const std::string& orders, const std::string& world, int concurrency,
            const std::function<void(std::size_t told)>& meanwhile = nullptr) {
    Ran ran;
    std::atomic<bool> over = false;
    std::thread command([&] {
      ran = run("twofold", {"order", orders, "--world", world, "--load", "--json", "--data", data(),
                            "--concurrency", std::to_string(concurrency), "--output",
                            scratch("results.jsonl").string()});
      over = true;
    });
    while (!over && meanwhile) {
      const std::string results = read_file(scratch("results.jsonl"));
      meanwhile(static_cast<std::size_t>(std::count(results.begin(), results.end(), '\n')));
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
    command.join();
    return ran;
  }

  void kill_and_start(const std::string& name) {
    const auto killed = cluster().kill(name);
    ASSERT_TRUE(killed.has_value()) << killed.error().message;
    const auto started = cluster().start(name);
    ASSERT_TRUE(started.has_value()) << started.error().message;
  }

  void expect_shipped_counts(const Ran& ran) {
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(last_object(ran.out), last_object(read_file(kExpected))) << ran.out << ran.err;
    expect_quiet();
  }

  // The stores hold exactly what the model's world holds.
  void expect_world(const ModelWorld& world) {
    std::map<std::string, std::int64_t> payments, dispatch, kitchen;
    for (const auto& [id, pence] : world.customers) payments["customer/" + id] = pence;
    for (const auto& [id, pence] : world.earned) payments["restaurant/" + id] = pence;
    for (const auto& [id, couriers] : world.couriers) dispatch["zone/" + id] = couriers;
    for (const auto& [id, slots] : world.slots) kitchen["slots/" + id] = slots;
    EXPECT_EQ(integers("payments"), payments);
    EXPECT_EQ(integers("dispatch"), dispatch);
    EXPECT_EQ(integers("kitchen"), kitchen);
  }
};

TEST_F(OrderTest, ShippedOrdersOneAtATime) {
  expect_shipped_counts(order(kOrders, kWorld, 1));
}

TEST_F(OrderTest, ShippedOrdersSixtyFourAtATime) {
  expect_shipped_counts(order(kOrders, kWorld, 64));
}

TEST_F(OrderTest, ShippedOrdersWhileCoordinatorAndParticipantAreKilledThreeTimesEach) {
  const std::vector<std::pair<std::size_t, std::string>> kills = {
      {200, "coordinator"}, {500, "payments"},      {900, "coordinator"},
      {1'200, "payments"},  {1'500, "coordinator"}, {1'800, "payments"}};
  std::size_t done = 0;
  const Ran ran = order(kOrders, kWorld, 64, [&](std::size_t told) {
    if (done < kills.size() && told >= kills[done].first) kill_and_start(kills[done++].second);
  });
  EXPECT_EQ(done, kills.size()) << "the run ended before every kill";
  expect_shipped_counts(ran);
}

TEST_F(OrderTest, RandomWorldsFollowTheModel) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const RandomOrders made = random_orders(seed, 400, 30);
  std::ofstream(scratch("orders.jsonl")) << made.orders_jsonl();
  std::ofstream(scratch("world.json")) << made.world_json();
  ModelWorld world = made.world;
  const ModelCounts expected = carry_out(made.orders, world);

  bool killed = false;
  const Ran ran = order(scratch("orders.jsonl").string(), scratch("world.json").string(), 32,
                        [&](std::size_t told) {
                          if (killed || told < 150) return;
                          killed = true;
                          kill_and_start("dispatch");
                        });
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(killed);
  EXPECT_EQ(last_object(ran.out), expected) << ran.err;
  expect_quiet();
  expect_world(world);
}

TEST_F(OrderTest, SecondRunFindsEveryCommittedOrderADuplicate) {
  const Ran first = order(kOrders, kWorld, 64);
  ASSERT_EQ(first.status, 0) << first.err;
  const ModelCounts before = last_object(first.out);
  const Ran second = run("twofold", {"order", kOrders, "--world", kWorld, "--json", "--data",
                                     data(), "--concurrency", "64"});
  EXPECT_EQ(second.status, 0) << second.err;
  const ModelCounts after = last_object(second.out);
  EXPECT_EQ(after.at("committed"), 0);
  EXPECT_EQ(after.at("refused_duplicate"), before.at("committed") + before.at("refused_duplicate"));
}

TEST_F(OrderTest, LoadIsRefusedWhereThereIsData) {
  ASSERT_EQ(order(kOrders, kWorld, 64).status, 0);
  const Ran again = order(kOrders, kWorld, 64);
  EXPECT_NE(again.status, 0);
  EXPECT_THAT(again.err, ::testing::HasSubstr("--force"));
}

}  // namespace
}  // namespace twofold::test
