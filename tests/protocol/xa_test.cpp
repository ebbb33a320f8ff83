#include "protocol/xa.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace twofold {
namespace {

TEST(Xa, NamesAndNumbersAreTheStandards) {  // C193, xa.h
  const std::pair<int, const char*> codes[] = {{0, "XA_OK"},           {3, "XA_RDONLY"},
                                               {4, "XA_RETRY"},        {5, "XA_HEURMIX"},
                                               {6, "XA_HEURRB"},       {7, "XA_HEURCOM"},
                                               {8, "XA_HEURHAZ"},      {9, "XA_NOMIGRATE"},
                                               {100, "XA_RBROLLBACK"}, {101, "XA_RBCOMMFAIL"},
                                               {102, "XA_RBDEADLOCK"}, {103, "XA_RBINTEGRITY"},
                                               {104, "XA_RBOTHER"},    {105, "XA_RBPROTO"},
                                               {106, "XA_RBTIMEOUT"},  {107, "XA_RBTRANSIENT"},
                                               {-2, "XAER_ASYNC"},     {-3, "XAER_RMERR"},
                                               {-4, "XAER_NOTA"},      {-5, "XAER_INVAL"},
                                               {-6, "XAER_PROTO"},     {-7, "XAER_RMFAIL"},
                                               {-8, "XAER_DUPID"},     {-9, "XAER_OUTSIDE"}};
  for (const auto& [number, text] : codes) EXPECT_EQ(name(static_cast<Xa>(number)), text);
}

TEST(Xa, NumbersThatAreNoneHaveOneName) {
  for (const int number : {-1, 1, 2, 10, 99, 108, -10, 1'000'000}) {
    EXPECT_EQ(name(static_cast<Xa>(number)), "XA_UNKNOWN");
  }
}

TEST(Xa, ClassesAreExactly) {
  std::set<int> rollback, heuristic;
  for (int number = -200; number <= 200; ++number) {
    if (is_rollback(static_cast<Xa>(number))) rollback.insert(number);
    if (is_heuristic(static_cast<Xa>(number))) heuristic.insert(number);
  }
  EXPECT_EQ(rollback, (std::set<int>{100, 101, 102, 103, 104, 105, 106, 107}));
  EXPECT_EQ(heuristic, (std::set<int>{5, 6, 7, 8}));
}

}  // namespace
}  // namespace twofold
