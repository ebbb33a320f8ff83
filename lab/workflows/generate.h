// A world and orders from a seed, the same ones everywhere. Some orders are refused on purpose, and
// what becomes of them in sum does not depend on their order: each scarce thing (a poor customer, a
// small kitchen, a zone with few couriers) is scarce in a group of its own, whose orders are all
// alike. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/workflows/order.h"

namespace twofold::lab {

struct GenerateOptions {
  std::uint64_t seed = 1;
  std::size_t orders = 1'000;
  std::size_t customers = 60;
  std::size_t restaurants = 12;
  std::int64_t plenty = 1'000'000'000;  // pence of a customer who can pay for whatever comes
  bool malformed = true;                // a line in two hundred or so
};

struct GeneratedOrders {
  World world;
  std::vector<std::string> lines;
};
GeneratedOrders generate_orders(const GenerateOptions& options);

std::string to_json_text(const World& world);  // parse_world reads it back
std::string to_json_line(const Order& order);

}  // namespace twofold::lab
