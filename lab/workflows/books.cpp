#include "lab/workflows/books.h"

#include <algorithm>

#include "client/client.h"

namespace twofold::lab {
namespace {

constexpr std::chrono::seconds kScanMax{30};

Result<void> read_store(const std::string& rm, const Address& address, Books& books) {
  wire::Frame request;
  request.mutable_scan();
  auto answer = client::call_once(address, std::move(request), kScanMax, rm);
  if (!answer) return answer.error();
  const auto& scan = answer->scan_answer();
  if (scan.truncated()) {
    return Error{Fault::full, rm + " has more keys than one scan may hold: raise scan_bytes_max"};
  }
  books.prepared += scan.prepared();
  const std::pair<std::string_view, std::vector<std::string>*> lists[] = {
      {"order/", &books.orders}, {"assignment/", &books.assignments}, {"ticket/", &books.tickets}};
  for (const auto& entry : scan.entries()) {
    if (entry.value().kind_case() == wire::Value::kInteger) {
      books.numbers[entry.key()] = entry.value().integer();
    }
    for (const auto& [prefix, list] : lists) {
      if (entry.key().starts_with(prefix)) list->push_back(entry.key().substr(prefix.size()));
    }
  }
  return {};
}

std::int64_t sum(const Books& books, std::string_view prefix) {
  std::int64_t total = 0;
  for (auto at = books.numbers.lower_bound(std::string(prefix));
       at != books.numbers.end() && at->first.starts_with(prefix); ++at) {
    total += at->second;
  }
  return total;
}

std::int64_t least(const Books& books) {
  std::int64_t found = 0;
  for (const auto& [key, value] : books.numbers) found = std::min(found, value);
  return found;
}

std::int64_t sum(const std::map<std::string, std::int64_t>& amounts) {
  std::int64_t total = 0;
  for (const auto& [name, amount] : amounts) total += amount;
  return total;
}

}  // namespace

Result<Books> read_books(const std::function<Result<Address>(const std::string& rm)>& address) {
  Books books;
  for (const char* rm : {"orders", "payments", "dispatch", "kitchen"}) {
    auto found = address(rm);
    if (!found) return found.error();
    if (auto done = read_store(rm, *found, books); !done) return done.error();
  }
  return books;
}

std::vector<Check> check_books(const World& world, const Books& books, std::uint64_t committed) {
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  const auto gone = [&](const std::map<std::string, std::int64_t>& begin, std::string_view prefix) {
    return text(sum(begin) - sum(books, prefix));
  };
  const auto count = std::to_string(committed);
  return {
      {"orders in the book, of those told committed", count, std::to_string(books.orders.size())},
      {"money: customers + restaurants, in pence", text(sum(world.customers)),
       text(sum(books, "customer/") + sum(books, "restaurant/"))},
      {"couriers sent out, one per order", count, gone(world.couriers, "zone/")},
      {"kitchen slots taken, one per order", count, gone(world.kitchen_slots, "slots/")},
      {"orders that have their courier and their ticket", count,
       books.orders == books.assignments && books.orders == books.tickets
           ? std::to_string(books.orders.size())
           : "the lists differ"},
      {"balances, couriers or slots below zero", "0", text(least(books))},
      {"branches left in doubt", "0", std::to_string(books.prepared)},
  };
}

}  // namespace twofold::lab
