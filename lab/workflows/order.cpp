#include "lab/workflows/order.h"

#include <boost/json.hpp>
#include <optional>
#include <utility>

#include "lab/workflows/json_text.h"
#include "lab/workflows/transaction_line.h"
#include "protocol/text.h"

namespace twofold::lab {
namespace {

namespace json = boost::json;

Operation add(std::string key, std::int64_t by) {
  return {"add", {{"key", Value{std::move(key)}}, {"by", Value{by}}}};
}

Operation take(std::string key, std::int64_t amount) {
  return {
      "add",
      {{"key", Value{std::move(key)}}, {"by", Value{-amount}}, {"min", Value{std::int64_t{0}}}}};
}

Operation insert(std::string key, const std::string& value) {
  return {"insert", {{"key", Value{std::move(key)}}, {"value", Value{value}}}};
}

Operation put(std::string key, std::int64_t value) {
  return {"put", {{"key", Value{std::move(key)}}, {"value", Value{value}}}};
}

Result<std::string> read_id(const json::object& object, std::string_view member) {
  const auto* value = object.if_contains(json::string_view(member.data(), member.size()));
  const auto* text = value ? value->if_string() : nullptr;
  if (!text || text->empty() || text->size() > kOrderIdBytesMax) {
    return Error{Fault::invalid, std::string(member) + " must be a text of 1 to 64 bytes"};
  }
  return std::string(text->data(), text->size());
}

bool starts(const Refusal& refusal, std::string_view prefix) {
  return std::string_view(refusal.key).starts_with(prefix);
}

OrderClass classify(const Refusal& refusal) {
  const bool scarce = refusal.op == "add" && refusal.check == "min";
  if (refusal.op == "insert" && refusal.check == "present") {
    if (starts(refusal, "order/") || starts(refusal, "assignment/") || starts(refusal, "ticket/")) {
      return OrderClass::duplicate;
    }
  } else if (refusal.op == "add" && refusal.check == "absent") {
    return OrderClass::unknown;
  } else if (scarce && starts(refusal, "customer/")) {
    return OrderClass::funds;
  } else if (scarce && starts(refusal, "zone/")) {
    return OrderClass::courier;
  } else if (scarce && starts(refusal, "slots/")) {
    return OrderClass::kitchen;
  }
  return OrderClass::other;
}

Result<std::map<std::string, std::int64_t>> read_amounts(const json::object& world,
                                                         std::string_view member) {
  const auto* value = world.if_contains(json::string_view(member.data(), member.size()));
  const auto* object = value ? value->if_object() : nullptr;
  if (!object) return Error{Fault::invalid, "\"" + std::string(member) + "\" must be an object"};
  std::map<std::string, std::int64_t> amounts;
  for (const auto& entry : *object) {
    const auto* amount = entry.value().if_int64();
    const std::string key(entry.key());
    if (!amount || *amount < 0 || key.empty() || key.size() > kOrderIdBytesMax) {
      return Error{Fault::invalid, std::string(member) + " \"" + shown(key) +
                                       "\": a name of 1 to 64 bytes and an amount that is a 64-bit "
                                       "integer, not negative, is needed"};
    }
    amounts.emplace(key, *amount);
  }
  return amounts;
}

// Fills transactions up to keys_max operations each, whatever store they are for.
class Loader {
 public:
  explicit Loader(std::size_t keys_max) : keys_max_(keys_max) {}

  void put(std::string_view rm, const std::string& key, std::int64_t value) {
    if (transactions_.empty() || keys_ == keys_max_) {
      transactions_.emplace_back();
      keys_ = 0;
    }
    auto& branches = transactions_.back().branches;
    if (branches.empty() || branches.back().rm != rm) branches.push_back({std::string(rm), {}});
    branches.back().work.push_back(lab::put(key, value));
    ++keys_;
  }
  std::vector<client::Transaction> take() { return std::move(transactions_); }

 private:
  std::size_t keys_max_;
  std::size_t keys_ = 0;
  std::vector<client::Transaction> transactions_;
};

}  // namespace

Result<Order> parse_order(std::string_view line) {
  auto object = parse_json_line(line);
  if (!object) return object.error();
  Order order;
  const std::pair<std::string_view, std::string*> ids[] = {{"order_id", &order.id},
                                                           {"customer", &order.customer},
                                                           {"restaurant", &order.restaurant},
                                                           {"zone", &order.zone}};
  for (const auto& [member, target] : ids) {
    auto id = read_id(*object, member);
    if (!id) return id.error();
    *target = std::move(*id);
  }
  const auto* total = object->if_contains("total_pence");
  const auto* pence = total ? total->if_int64() : nullptr;
  if (!pence || *pence <= 0) {
    return Error{
        Fault::invalid,
        "total_pence must be an integer from 1 to 9223372036854775807, without a fraction"};
  }
  order.total = *pence;
  return order;
}

client::Transaction to_transaction(const Order& order) {
  client::Transaction transaction;
  transaction.branches = {
      {"orders", {insert("order/" + order.id, order.customer)}},
      {"payments",
       {take("customer/" + order.customer, order.total),
        add("restaurant/" + order.restaurant, order.total)}},
      {"dispatch", {take("zone/" + order.zone, 1), insert("assignment/" + order.id, order.zone)}},
      {"kitchen",
       {take("slots/" + order.restaurant, 1), insert("ticket/" + order.id, order.restaurant)}}};
  return transaction;
}

std::string_view name(OrderClass order_class) {
  static constexpr std::string_view names[] = {"committed", "duplicate", "unknown", "funds",
                                               "courier",   "kitchen",   "other",   "aborted",
                                               "invalid",   "undecided"};
  static_assert(std::size(names) == kOrderClasses);
  return names[static_cast<std::size_t>(order_class)];
}

OrderClass classify(const Outcome& outcome) {
  switch (outcome.verdict) {
    case Verdict::committed: return OrderClass::committed;
    case Verdict::aborted: break;
    case Verdict::rejected:
      return retryable(outcome.reason) ? OrderClass::aborted : OrderClass::invalid;
    case Verdict::not_found: return OrderClass::aborted;
    case Verdict::pending:
    case Verdict::expired:
    case Verdict::unknown: return OrderClass::undecided;
  }
  if (outcome.reason != Reason::refused) return OrderClass::aborted;
  auto first = OrderClass::other;
  for (const auto& refusal : outcome.refusals) first = std::min(first, classify(refusal));
  return first;
}

Result<World> parse_world(std::string_view text) {
  const auto value = parse_json_text(text);
  if (!value) return value.error();
  const auto* object = value->if_object();
  if (!object) {
    return Error{Fault::invalid,
                 "not a world: an object with \"customers\", \"kitchen_slots\" and \"couriers\" is "
                 "needed"};
  }
  World world;
  const std::pair<std::string_view, std::map<std::string, std::int64_t>*> parts[] = {
      {"customers", &world.customers},
      {"kitchen_slots", &world.kitchen_slots},
      {"couriers", &world.couriers}};
  for (const auto& [member, target] : parts) {
    auto amounts = read_amounts(*object, member);
    if (!amounts) return amounts.error();
    *target = std::move(*amounts);
  }
  return world;
}

std::vector<client::Transaction> load_transactions(const World& world, std::size_t keys_max) {
  Loader loader(keys_max);
  for (const auto& [customer, pence] : world.customers) {
    loader.put("payments", "customer/" + customer, pence);
  }
  for (const auto& [restaurant, slots] : world.kitchen_slots) {
    loader.put("payments", "restaurant/" + restaurant, 0);
  }
  for (const auto& [zone, couriers] : world.couriers) {
    loader.put("dispatch", "zone/" + zone, couriers);
  }
  for (const auto& [restaurant, slots] : world.kitchen_slots) {
    loader.put("kitchen", "slots/" + restaurant, slots);
  }
  return loader.take();
}

}  // namespace twofold::lab
