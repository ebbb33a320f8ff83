#include "coordinator/core/client_fence.h"

#include <gtest/gtest.h>

namespace twofold::coordinator {
namespace {

constexpr std::uint64_t kAnn = 0xa, kBob = 0xb;

TEST(ClientFence, a_newer_connection_ends_the_older) {
  ClientFence fence(10);
  const auto first = fence.admit(kAnn, 1, 100);
  EXPECT_TRUE(first.admitted);
  EXPECT_EQ(first.fenced, 0u);
  const auto second = fence.admit(kAnn, 2, 101);
  EXPECT_TRUE(second.admitted);
  EXPECT_EQ(second.fenced, 100u);
  fence.closed(kAnn, 100);  // the older one's end is not the newer one's
  EXPECT_EQ(fence.remembered(), 0u);
  EXPECT_EQ(fence.admit(kAnn, 5, 102).fenced, 101u);  // counters may leave numbers out
}

TEST(ClientFence, a_counter_that_is_not_above_is_refused_and_changes_nothing) {
  ClientFence fence(10);
  fence.admit(kAnn, 7, 100);
  for (const std::uint64_t counter : {7u, 6u, 1u}) {
    const auto late = fence.admit(kAnn, counter, 101);
    EXPECT_FALSE(late.admitted);
    EXPECT_EQ(late.newest, 7u);
    EXPECT_EQ(late.fenced, 0u);
  }
  EXPECT_EQ(fence.admit(kAnn, 8, 102).fenced, 100u);
}

TEST(ClientFence, clients_do_not_meet) {
  ClientFence fence(10);
  fence.admit(kAnn, 7, 100);
  const auto other = fence.admit(kBob, 1, 101);
  EXPECT_TRUE(other.admitted);
  EXPECT_EQ(other.fenced, 0u);
}

TEST(ClientFence, remembers_who_left_and_forgets_the_first_to_leave) {
  ClientFence fence(2);
  std::uint64_t connection = 0;
  const auto come_and_go = [&](std::uint64_t client, std::uint64_t counter) {
    const auto admission = fence.admit(client, counter, ++connection);
    EXPECT_EQ(admission.fenced, 0u);
    fence.closed(client, connection);
    return admission.admitted;
  };
  EXPECT_TRUE(come_and_go(1, 5));
  EXPECT_TRUE(come_and_go(2, 5));
  EXPECT_FALSE(come_and_go(1, 4));  // late
  EXPECT_TRUE(come_and_go(1, 6));   // back again, and now the last that left
  EXPECT_TRUE(come_and_go(3, 5));   // 2 is forgotten for it
  EXPECT_EQ(fence.remembered(), 2u);
  EXPECT_FALSE(come_and_go(1, 6));
  EXPECT_FALSE(come_and_go(3, 5));
  EXPECT_TRUE(come_and_go(2, 1));
}

TEST(ClientFence, whoever_is_connected_is_not_forgotten) {
  ClientFence fence(0);
  fence.admit(kAnn, 7, 100);
  fence.admit(kBob, 1, 101);
  fence.closed(kBob, 101);
  EXPECT_EQ(fence.remembered(), 0u);
  EXPECT_TRUE(fence.admit(kBob, 1, 102).admitted);
  EXPECT_FALSE(fence.admit(kAnn, 6, 103).admitted);
}

}  // namespace
}  // namespace twofold::coordinator
