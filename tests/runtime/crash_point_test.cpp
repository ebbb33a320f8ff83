#include "runtime/crash_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace twofold {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;

const std::vector<std::string_view> kNames{"Persist", "Commit", "Voted"};

CrashPoint parsed(std::string_view text) {
  return CrashPoint::parse(text, kNames).value();
}

TEST(CrashPoint, NoneIsNotArmed) {
  CrashPoint none;
  EXPECT_FALSE(none.armed());
  none.before("Persist", "");
  none.after("Persist", "", [] { FAIL() << "flushed"; });
}

TEST(CrashPoint, EveryPointParses) {
  const auto points = CrashPoint::all(kNames);
  EXPECT_THAT(points, ElementsAre("before:Persist", "after:Persist", "before:Commit",
                                  "after:Commit", "before:Voted", "after:Voted"));
  for (const auto& point : points) EXPECT_TRUE(parsed(point).armed()) << point;
}

TEST(CrashPoint, RefusesWhatItCannotReach) {
  for (const char* text :
       {"", "Persist", "during:Persist", "before:", "before:Prepare", "before:Persist#",
        "before:Persist#0", "before:Persist#x", "before:Persist#2x", "after:Commit@",
        "after:Commit@#1", "before:Persist#99999999999999999999"}) {
    const auto result = CrashPoint::parse(text, kNames);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().fault, Fault::invalid);
  }
  EXPECT_THAT(CrashPoint::parse("before:Prepare", kNames).error().message,
              HasSubstr("Persist, Commit, Voted"));
}

// Ends by itself, with 0, when the point was not reached.
void survive(CrashPoint point,
             const std::vector<std::pair<std::string_view, std::string_view>>& way) {
  for (const auto& [name, rm] : way) {
    point.before(name, rm);
    point.after(name, rm, [] {});
  }
  _exit(0);
}

TEST(CrashPointDeathTest, KillsAtTheFirstCrossing) {
  EXPECT_EXIT(survive(parsed("before:Persist"), {{"Voted", ""}, {"Persist", ""}}),
              KilledBySignal(SIGKILL), "^crash point before:Persist reached\n$");
}

TEST(CrashPointDeathTest, CountsAndFiltersByResourceManager) {
  const std::vector<std::pair<std::string_view, std::string_view>> way{
      {"Commit", "orders"}, {"Commit", "payments"}, {"Commit", "orders"}, {"Commit", "payments"}};
  EXPECT_EXIT(survive(parsed("after:Commit@payments#2"), way), KilledBySignal(SIGKILL),
              "crash point after:Commit@payments#2 reached");
  EXPECT_EXIT(survive(parsed("after:Commit@payments#3"), way), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(survive(parsed("after:Commit#4"), way), KilledBySignal(SIGKILL), "after:Commit#4");
  EXPECT_EXIT(survive(parsed("before:Commit@kitchen"), way), testing::ExitedWithCode(0), "");
}

TEST(CrashPointDeathTest, AfterFlushesFirst) {
  const auto crash = [] {
    CrashPoint point = parsed("after:Commit");
    point.before("Commit", "orders");
    point.after("Commit", "orders", [] { std::fputs("flushed\n", stderr); });
    _exit(0);
  };
  EXPECT_EXIT(crash(), KilledBySignal(SIGKILL), "^flushed\ncrash point after:Commit reached\n$");
}

}  // namespace
}  // namespace twofold
