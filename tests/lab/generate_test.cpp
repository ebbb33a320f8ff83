#include "lab/workflows/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "tests/lab/order_model.h"

namespace twofold::lab {
namespace {

std::array<int, kOrderClasses> totals(const World& world, const std::vector<std::string>& lines) {
  std::array<int, kOrderClasses> counts{};
  OrderModel model(world);
  for (const auto& line : lines) {
    const auto order = parse_order(line);
    ++counts[static_cast<std::size_t>(order ? model.run(*order) : OrderClass::invalid)];
  }
  return counts;
}

TEST(Generate, IsTheSameForTheSameSeed) {
  const GenerateOptions options{7, 300};
  EXPECT_EQ(generate_orders(options).lines, generate_orders(options).lines);
  EXPECT_NE(generate_orders(options).lines, generate_orders({8, 300}).lines);
  EXPECT_EQ(generate_orders(options).lines.size(), 300U);
}

TEST(Generate, HasEveryClassAndTotalsThatDoNotDependOnTheOrder) {
  auto [world, lines] = generate_orders({3, 3'000});
  const auto counts = totals(world, lines);
  for (const auto order_class :
       {OrderClass::committed, OrderClass::duplicate, OrderClass::unknown, OrderClass::funds,
        OrderClass::courier, OrderClass::kitchen, OrderClass::invalid}) {
    EXPECT_GT(counts[static_cast<std::size_t>(order_class)], 0) << name(order_class);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(lines.begin(), lines.end(), random);
    EXPECT_EQ(totals(world, lines), counts);
  }
}

TEST(Generate, TheWorldCanBeWrittenAndReadBack) {
  const auto world = generate_orders({5, 500}).world;
  const auto read = parse_world(to_json_text(world));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->customers, world.customers);
  EXPECT_EQ(read->kitchen_slots, world.kitchen_slots);
  EXPECT_EQ(read->couriers, world.couriers);
}

}  // namespace
}  // namespace twofold::lab
