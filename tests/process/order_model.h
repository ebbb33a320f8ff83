// Orders one after the other, as anybody would do them on paper: what any serial execution gives.
// Shares no code with the product.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace twofold::test {

struct ModelOrder {
  std::string id, customer, restaurant, zone;
  std::int64_t total = 0;
  std::string text;  // the line as it is in the file; not an order if `id` is empty
};

struct ModelWorld {
  std::map<std::string, std::int64_t> customers, slots, couriers, earned;
  std::set<std::string> orders;
};

// The keys of the command's --json object.
using ModelCounts = std::map<std::string, std::int64_t>;

ModelCounts carry_out(const std::vector<ModelOrder>& orders, ModelWorld& world);

// A random world and orders for it whose counts do not depend on the order of execution: what is
// scarce is wanted by orders that want nothing else that is scarce, all for the same price.
struct RandomOrders {
  ModelWorld world;
  std::vector<ModelOrder> orders;
  std::string world_json() const;
  std::string orders_jsonl() const;
};
RandomOrders random_orders(std::uint64_t seed, int ample_orders, int scarce_groups);

}  // namespace twofold::test
