#include "lab/workflows/generate.h"

#include <boost/json.hpp>
#include <random>
#include <utility>

namespace twofold::lab {
namespace {

namespace json = boost::json;

constexpr std::int64_t kPlaces = 1'000'000;
constexpr const char* kZones[] = {"north", "south", "east", "west"};
constexpr const char* kMalformed[] = {
    "not json",
    "[]",
    R"({"order_id": "o-x"})",
    R"({"order_id":"o-y","customer":"c-0","restaurant":"r-0","zone":"north","total_pence":0})",
    R"({"order_id":"","customer":"c-0","restaurant":"r-0","zone":"north","total_pence":5})",
    R"({"order_id":"o-z","customer":"c-0","restaurant":"r-0","zone":"north","total_pence":1.5})"};

// Standard distributions differ between libraries: only the engine's own numbers are used.
class Generator {
 public:
  explicit Generator(const GenerateOptions& options) : options_(options), random_(options.seed) {}

  GeneratedOrders run() {
    for (std::size_t i = 0; i < options_.customers; ++i)
      world().customers[customer(i)] = options_.plenty;
    for (std::size_t i = 0; i < options_.restaurants; ++i) {
      world().kitchen_slots[restaurant(i)] = kPlaces;
    }
    for (const char* zone : kZones) world().couriers[zone] = kPlaces;
    while (lines().size() < options_.orders) add_some();
    lines().resize(options_.orders);
    for (std::size_t i = lines().size(); i > 1; --i) std::swap(lines()[i - 1], lines()[below(i)]);
    return std::move(result_);
  }

 private:
  World& world() { return result_.world; }
  std::vector<std::string>& lines() { return result_.lines; }
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  static std::string customer(std::size_t i) { return "c-" + std::to_string(i); }
  static std::string restaurant(std::size_t i) { return "r-" + std::to_string(i); }

  // One that nothing stands in the way of.
  Order plain() {
    return {"o-" + std::to_string(++orders_), customer(below(options_.customers)),
            restaurant(below(options_.restaurants)), kZones[below(std::size(kZones))],
            static_cast<std::int64_t>(500 + below(5'000))};
  }
  void add(const Order& order) { lines().push_back(to_json_line(order)); }

  void add_some() {
    const auto kind = below(200);
    if (kind == 0 && options_.malformed)
      return lines().emplace_back(kMalformed[below(std::size(kMalformed))]), void();
    if (kind == 1) return add_twice();
    if (kind == 2) return add_unknown();
    if (kind == 3) return add_scarce(&Order::customer, "c-poor-", world().customers, 2'000);
    if (kind == 4) return add_scarce(&Order::zone, "far-", world().couriers, 1);
    if (kind == 5) return add_scarce(&Order::restaurant, "r-small-", world().kitchen_slots, 1);
    add(plain());
  }

  void add_twice() {
    const auto order = plain();
    add(order);
    add(order);
  }

  void add_unknown() {
    auto order = plain();
    std::string* ids[] = {&order.customer, &order.restaurant, &order.zone};
    *ids[below(3)] += "-nobody";
    add(order);
  }

  // A group of orders that are alike, and enough of what they need for some of them only.
  void add_scarce(std::string Order::*id, const std::string& prefix,
                  std::map<std::string, std::int64_t>& amounts, std::int64_t each) {
    const auto name = prefix + std::to_string(++groups_);
    const auto enough_for = static_cast<std::int64_t>(below(4));
    amounts[name] = enough_for * each + (each > 1 ? each / 2 : 0);
    for (std::int64_t i = 0; i < enough_for + 3; ++i) {
      auto order = plain();
      order.*id = name;
      order.total = 2'000;
      add(order);
    }
  }

  GenerateOptions options_;
  std::mt19937_64 random_;
  GeneratedOrders result_;
  std::uint64_t orders_ = 0;
  std::uint64_t groups_ = 0;
};

json::object amounts_json(const std::map<std::string, std::int64_t>& amounts) {
  json::object object;
  for (const auto& [name, amount] : amounts) object[name] = amount;
  return object;
}

}  // namespace

GeneratedOrders generate_orders(const GenerateOptions& options) {
  return Generator(options).run();
}

std::string to_json_text(const World& world) {
  return json::serialize(json::object{{"customers", amounts_json(world.customers)},
                                      {"kitchen_slots", amounts_json(world.kitchen_slots)},
                                      {"couriers", amounts_json(world.couriers)}});
}

std::string to_json_line(const Order& order) {
  return json::serialize(json::object{{"order_id", order.id},
                                      {"customer", order.customer},
                                      {"restaurant", order.restaurant},
                                      {"zone", order.zone},
                                      {"total_pence", order.total}});
}

}  // namespace twofold::lab
