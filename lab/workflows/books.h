// Does it add up? What the four stores hold after orders have run, compared with the world they
// began with: money only moves, each courier and kitchen slot that is gone belongs to one order,
// and an order is in all four stores or in none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lab/workflows/order.h"
#include "protocol/connection.h"
#include "protocol/result.h"

namespace twofold::lab {

struct Books {
  std::map<std::string, std::int64_t> numbers;            // every integer key of all four stores
  std::vector<std::string> orders, assignments, tickets;  // ids, sorted
  std::uint64_t prepared = 0;                             // branches that the scans left out
};

// Scans the stores; `address` finds each by name. full: a scan was truncated.
Result<Books> read_books(const std::function<Result<Address>(const std::string& rm)>& address);

struct Check {
  std::string what;
  std::string expected;
  std::string found;
  bool holds() const { return expected == found; }
};
// `committed`: how many orders were told to have committed.
std::vector<Check> check_books(const World& world, const Books& books, std::uint64_t committed);

}  // namespace twofold::lab
