// The sequential model: what becomes of orders that run one after the other. It shares no code with
// the workflow: maps of integers and the rules as a person would write them down.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "lab/workflows/order.h"

namespace twofold::lab {

class OrderModel {
 public:
  explicit OrderModel(const World& world)
      : pence_(world.customers), slots_(world.kitchen_slots), couriers_(world.couriers) {}

  OrderClass run(const Order& order) {
    if (done_.contains(order.id)) return OrderClass::duplicate;
    if (!pence_.contains(order.customer) || !slots_.contains(order.restaurant) ||
        !couriers_.contains(order.zone)) {
      return OrderClass::unknown;
    }
    if (pence_[order.customer] < order.total) return OrderClass::funds;
    if (couriers_[order.zone] < 1) return OrderClass::courier;
    if (slots_[order.restaurant] < 1) return OrderClass::kitchen;
    pence_[order.customer] -= order.total;
    slots_[order.restaurant] -= 1;
    couriers_[order.zone] -= 1;
    done_.insert(order.id);
    return OrderClass::committed;
  }

 private:
  std::map<std::string, std::int64_t> pence_, slots_, couriers_;
  std::set<std::string> done_;
};

}  // namespace twofold::lab
