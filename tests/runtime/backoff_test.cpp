#include "runtime/backoff.h"

#include <gtest/gtest.h>

namespace twofold {
namespace {

using std::chrono::milliseconds;

TEST(Backoff, DoublesWithinItsJitterAndStopsAtTheCap) {
  Backoff backoff(milliseconds(100), milliseconds(1'000));
  for (int bound : {100, 200, 400, 800, 1'000, 1'000, 1'000}) {
    const auto pause = backoff.next();
    EXPECT_GE(pause, milliseconds(bound / 2));
    EXPECT_LE(pause, milliseconds(bound));
  }
}

TEST(Backoff, ResetStartsOver) {
  Backoff backoff(milliseconds(10), milliseconds(1'000));
  for (int i = 0; i < 6; ++i) backoff.next();
  backoff.reset();
  EXPECT_LE(backoff.next(), milliseconds(10));
}

TEST(Backoff, ACapBelowTheFirstPauseWins) {
  Backoff backoff(milliseconds(1'000), milliseconds(50));
  EXPECT_LE(backoff.next(), milliseconds(50));
  EXPECT_LE(backoff.next(), milliseconds(50));
}

TEST(Backoff, NeverOverflows) {
  Backoff backoff(milliseconds(1), milliseconds(60'000));
  for (int i = 0; i < 200; ++i) EXPECT_LE(backoff.next(), milliseconds(60'000));
  EXPECT_GE(backoff.next(), milliseconds(30'000));
}

}  // namespace
}  // namespace twofold
