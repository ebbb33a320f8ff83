#include "tests/process/order_model.h"

#include <algorithm>
#include <random>
#include <sstream>

namespace twofold::test {

namespace {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  RandomOrders make(int ample_orders, int scarce_groups) {
    for (int i = 0; i < 40; ++i) made_.world.customers["c" + std::to_string(i)] = 1'000'000'000;
    for (int i = 0; i < 12; ++i) made_.world.slots["r" + std::to_string(i)] = 1'000'000;
    for (int i = 0; i < 5; ++i) made_.world.couriers["z" + std::to_string(i)] = 1'000'000;
    for (int i = 0; i < ample_orders; ++i) add(ample());
    for (int group = 0; group < scarce_groups; ++group) scarce(group);
    unknown_and_duplicates(ample_orders / 20 + 3);
    for (const char* line :
         {"not json", "{}", "[1]", "{\"order_id\": 7}", "\"text\"",
          "{\"order_id\":\"x\",\"customer\":\"c1\",\"restaurant\":\"r1\",\"zone\":"
          "\"z1\",\"total_pence\":-5}"}) {
      made_.orders.push_back({"", "", "", "", 0, line});
    }
    std::shuffle(made_.orders.begin(), made_.orders.end(), random_);
    for (const auto& [restaurant, slots] : made_.world.slots) made_.world.earned[restaurant] = 0;
    return made_;
  }

 private:
  int below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }

  ModelOrder ample() {
    return {"o" + std::to_string(next_++),
            "c" + std::to_string(below(40)),
            "r" + std::to_string(below(12)),
            "z" + std::to_string(below(5)),
            1 + below(9'000),
            ""};
  }

  void add(ModelOrder order) {
    std::ostringstream line;
    line << "{\"order_id\": \"" << order.id << "\", \"customer\": \"" << order.customer
         << "\", \"restaurant\": \"" << order.restaurant << "\", \"zone\": \"" << order.zone
         << "\", \"total_pence\": " << order.total << "}";
    order.text = line.str();
    made_.orders.push_back(std::move(order));
  }

  // Something scarce, and more orders of one price than it suffices for.
  void scarce(int group) {
    const int wanted = 2 + below(8), there = below(wanted);
    const std::int64_t price = 1 + below(5'000);
    const std::string name = "scarce" + std::to_string(group);
    const int kind = group % 3;
    const std::string partner = std::to_string(below(5));
    if (kind == 0) made_.world.customers[name] = there * price + below(static_cast<int>(price));
    if (kind == 1) made_.world.couriers[name] = there;
    if (kind == 2) made_.world.slots[name] = there;
    for (int i = 0; i < wanted; ++i) {
      ModelOrder order = ample();
      order.total = price;
      // The same partners for the whole group, so that it does not matter which of them commits.
      order.customer = kind == 0 ? name : "c" + partner;
      order.zone = kind == 1 ? name : "z" + partner;
      order.restaurant = kind == 2 ? name : "r" + partner;
      add(std::move(order));
    }
  }

  void unknown_and_duplicates(int count) {
    for (int i = 0; i < count; ++i) {
      ModelOrder order = ample();
      (i % 3 == 0 ? order.customer : i % 3 == 1 ? order.restaurant : order.zone) = "nobody";
      add(std::move(order));
    }
    for (int i = 0; i < count; ++i) {
      ModelOrder order = ample();
      add(order);
      add(order);
    }
  }

  std::mt19937_64 random_;
  RandomOrders made_;
  int next_ = 1;
};

void object(std::ostringstream& out, const char* name,
            const std::map<std::string, std::int64_t>& entries) {
  out << "\"" << name << "\": {";
  const char* separator = "";
  for (const auto& [key, value] : entries) {
    out << separator << "\"" << key << "\": " << value;
    separator = ", ";
  }
  out << "}";
}

std::string fate(const ModelOrder& order, const ModelWorld& world) {
  if (order.id.empty()) return "invalid";
  if (world.orders.count(order.id) != 0) return "refused_duplicate";
  if (world.customers.count(order.customer) == 0 || world.slots.count(order.restaurant) == 0 ||
      world.couriers.count(order.zone) == 0) {
    return "refused_unknown";
  }
  if (world.customers.at(order.customer) < order.total) return "refused_funds";
  if (world.couriers.at(order.zone) < 1) return "refused_courier";
  if (world.slots.at(order.restaurant) < 1) return "refused_kitchen";
  return "committed";
}

}  // namespace

ModelCounts carry_out(const std::vector<ModelOrder>& orders, ModelWorld& world) {
  ModelCounts counts{{"committed", 0},       {"refused_funds", 0},   {"refused_courier", 0},
                     {"refused_kitchen", 0}, {"refused_unknown", 0}, {"refused_duplicate", 0},
                     {"invalid", 0}};
  for (const ModelOrder& order : orders) {
    const std::string what = fate(order, world);
    ++counts[what];
    if (what != "committed") continue;
    world.orders.insert(order.id);
    world.customers[order.customer] -= order.total;
    world.earned[order.restaurant] += order.total;
    --world.couriers[order.zone];
    --world.slots[order.restaurant];
  }
  return counts;
}

RandomOrders random_orders(std::uint64_t seed, int ample_orders, int scarce_groups) {
  return Generator(seed).make(ample_orders, scarce_groups);
}

std::string RandomOrders::world_json() const {
  std::ostringstream out;
  out << "{";
  object(out, "customers", world.customers);
  out << ", ";
  object(out, "kitchen_slots", world.slots);
  out << ", ";
  object(out, "couriers", world.couriers);
  out << "}\n";
  return out.str();
}

std::string RandomOrders::orders_jsonl() const {
  std::string text;
  for (const ModelOrder& order : orders) text += order.text + "\n";
  return text;
}

}  // namespace twofold::test
