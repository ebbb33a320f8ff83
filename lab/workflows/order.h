// The order workflow: one order is one transaction over four stores.
//
//   orders    insert order/<id>
//   payments  add customer/<id> by −total, min 0;  add restaurant/<id> by +total
//   dispatch  add zone/<zone> by −1, min 0;        insert assignment/<id>
//   kitchen   add slots/<restaurant> by −1, min 0; insert ticket/<id>
//
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/client.h"
#include "protocol/outcome.h"
#include "protocol/result.h"

namespace twofold::lab {

inline constexpr std::size_t kOrderIdBytesMax = 64;

struct Order {
  std::string id;
  std::string customer;
  std::string restaurant;
  std::string zone;
  std::int64_t total = 0;  // pence
};

// {"order_id": …, "customer": …, "restaurant": …, "zone": …, "total_pence": …}; other members are
// not looked at. Fault::invalid: an id that is not 1 to 64 bytes, a total that is not a positive
// int64.
Result<Order> parse_order(std::string_view line);
client::Transaction to_transaction(const Order& order);

// What became of an order. A refusal has one class, the first that applies in this order.
enum class OrderClass : std::uint8_t {
  committed,
  duplicate,  // the order's id has been used
  unknown,    // no such customer, restaurant or zone
  funds,
  courier,
  kitchen,
  other,      // refused by a check that is none of these: an overflow, a store that holds something
              // else
  aborted,    // for a reason that has nothing to do with the order; it may be tried again
  invalid,    // not an order, or turned down by the coordinator as malformed
  undecided,  // it is not known what became of it
};
inline constexpr std::size_t kOrderClasses = 10;
std::string_view name(
    OrderClass order_class);  // "funds"; "unknown" is the customer's, not the outcome's

OrderClass classify(const Outcome& outcome);

// What there is to begin with.
struct World {
  std::map<std::string, std::int64_t> customers;      // pence
  std::map<std::string, std::int64_t> kitchen_slots;  // by restaurant
  std::map<std::string, std::int64_t> couriers;       // by zone
};
Result<World> parse_world(std::string_view text);

// Puts the world into the stores, with every restaurant/<id> at 0, at most `keys_max` keys a
// transaction.
std::vector<client::Transaction> load_transactions(const World& world, std::size_t keys_max = 500);

}  // namespace twofold::lab
