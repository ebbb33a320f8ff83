#include "lab/workflows/books.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace twofold::lab {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const World kWorld{{{"c-1", 1'000}, {"c-2", 500}}, {{"r-1", 10}}, {{"north", 3}}};

// After one order of 300 by c-1.
Books after_one_order() {
  Books books;
  books.numbers = {{"customer/c-1", 700},
                   {"customer/c-2", 500},
                   {"restaurant/r-1", 300},
                   {"zone/north", 2},
                   {"slots/r-1", 9}};
  books.orders = books.assignments = books.tickets = {"o-1"};
  return books;
}

std::vector<std::string> broken(const Books& books, std::uint64_t committed = 1) {
  std::vector<std::string> found;
  for (const auto& check : check_books(kWorld, books, committed)) {
    if (!check.holds()) found.push_back(check.what);
  }
  return found;
}

TEST(Books, AddUpAfterAnOrder) {
  EXPECT_THAT(broken(after_one_order()), IsEmpty());
}

TEST(Books, EachWayToBeWrongIsSeen) {
  auto money = after_one_order();
  money.numbers["restaurant/r-1"] = 299;
  EXPECT_THAT(broken(money), ElementsAre("money: customers + restaurants, in pence"));

  auto courier = after_one_order();
  courier.numbers["zone/north"] = 3;
  EXPECT_THAT(broken(courier), ElementsAre("couriers sent out, one per order"));

  auto slot = after_one_order();
  slot.numbers["slots/r-1"] = 8;
  EXPECT_THAT(broken(slot), ElementsAre("kitchen slots taken, one per order"));

  auto half = after_one_order();
  half.tickets.clear();
  EXPECT_THAT(broken(half), ElementsAre("orders that have their courier and their ticket"));

  auto negative = after_one_order();
  negative.numbers["customer/c-1"] = -100;
  negative.numbers["customer/c-2"] = 1'300;
  EXPECT_THAT(broken(negative), ElementsAre("balances, couriers or slots below zero"));

  auto doubt = after_one_order();
  doubt.prepared = 1;
  EXPECT_THAT(broken(doubt), ElementsAre("branches left in doubt"));

  EXPECT_FALSE(broken(after_one_order(), 2).empty());
}

}  // namespace
}  // namespace twofold::lab
