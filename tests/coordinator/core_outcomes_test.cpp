// Kept outcomes, their purge and the floor; the clock that orders scans and ends (rule 6).
#include <gtest/gtest.h>

#include "coordinator/core/outcomes.h"
#include "coordinator/core/scan_clock.h"

namespace twofold::coordinator {
namespace {

constexpr TxnId kAnyId{99, 0};

TxnId id(std::uint64_t sequence) {
  return {1, sequence};
}

KeptOutcome committed(std::string request) {
  KeptOutcome outcome;
  outcome.request = {std::move(request), 7};
  return outcome;
}

TEST(Outcomes, are_found_by_id_and_by_request) {
  Outcomes outcomes(10, {});
  outcomes.keep(id(1), committed("r1"));
  outcomes.keep(id(2), committed(""));
  ASSERT_NE(outcomes.find(id(1)), nullptr);
  EXPECT_EQ(outcomes.find(id(3)), nullptr);
  ASSERT_TRUE(outcomes.find_request("r1"));
  EXPECT_EQ(outcomes.find_request("r1")->first, id(1));
  EXPECT_FALSE(outcomes.find_request("r2"));
  EXPECT_FALSE(outcomes.find_request("")) << "no request id is not a request id";
}

TEST(Outcomes, purge_takes_the_oldest_and_raises_the_floor) {
  Outcomes outcomes(2, {});
  for (std::uint64_t i = 1; i <= 4; ++i) outcomes.keep(id(i), committed("r" + std::to_string(i)));
  const auto record = outcomes.purge(kAnyId);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->ids, (std::vector{id(1), id(2)}));
  EXPECT_EQ(record->floor, id(2));
  EXPECT_EQ(outcomes.floor(), id(2));
  EXPECT_FALSE(outcomes.find_request("r2"));
  EXPECT_TRUE(outcomes.find_request("r3"));
  EXPECT_FALSE(outcomes.purge(kAnyId)) << "outcomes_max are kept";
}

TEST(Outcomes, purge_stops_below_its_limit) {
  Outcomes outcomes(0, {});
  for (std::uint64_t i = 1; i <= 4; ++i) outcomes.keep(id(i), committed(""));
  EXPECT_FALSE(outcomes.purge(id(1)));
  EXPECT_EQ(outcomes.purge(id(3))->ids, (std::vector{id(1), id(2)}));
  EXPECT_EQ(outcomes.floor(), id(2));
}

TEST(Outcomes, purge_goes_in_batches) {
  Outcomes outcomes(8'000, {});
  for (std::uint64_t i = 1; i <= 8'000 + 255; ++i) outcomes.keep(id(i), committed(""));
  EXPECT_FALSE(outcomes.purge(kAnyId)) << "not a record for every transaction that ends";
  for (std::uint64_t i = 8'256; i <= 8'600; ++i) outcomes.keep(id(i), committed(""));
  const auto record = outcomes.purge(kAnyId);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->ids.size(), 256u);
}

TEST(Outcomes, an_older_row_that_goes_does_not_take_the_request_of_a_newer_one) {
  Outcomes outcomes(1, {});
  outcomes.keep(id(1), committed("r1"));
  outcomes.keep(id(2), committed("r1"));
  EXPECT_EQ(outcomes.purge(kAnyId)->ids, (std::vector{id(1)}));
  ASSERT_TRUE(outcomes.find_request("r1"));
  EXPECT_EQ(outcomes.find_request("r1")->first, id(2));
}

TEST(Outcomes, nothing_is_expired_before_something_was_purged) {
  EXPECT_FALSE(Outcomes(1, {}).expired({}));
  const Outcomes outcomes(1, id(5));
  EXPECT_TRUE(outcomes.expired({}));
  EXPECT_TRUE(outcomes.expired(id(5)));
  EXPECT_FALSE(outcomes.expired(id(6)));
}

TEST(ScanClock, what_an_earlier_epoch_left_needs_a_scan_of_each) {
  ScanClock clock(2);
  EXPECT_EQ(clock.lowest_uncovered(), (TxnId{0, 0}));
  clock.completed(0, clock.begin_scan(), {});
  EXPECT_EQ(clock.lowest_uncovered(), (TxnId{0, 0}));
  clock.completed(1, clock.begin_scan(), {});
  EXPECT_FALSE(clock.lowest_uncovered());
}

TEST(ScanClock, a_scan_that_began_before_the_end_does_not_cover_it) {
  ScanClock clock(1);
  clock.completed(0, clock.begin_scan(), {});
  const std::uint64_t early = clock.begin_scan();
  clock.ended(id(4));
  clock.ended(id(3));
  clock.completed(0, early, {});
  EXPECT_EQ(clock.lowest_uncovered(), id(3));
  clock.completed(0, clock.begin_scan(), {});
  EXPECT_FALSE(clock.lowest_uncovered());
}

TEST(ScanClock, what_a_scan_lists_is_not_covered_by_it) {
  ScanClock clock(1);
  clock.completed(0, clock.begin_scan(), id(2));
  EXPECT_EQ(clock.lowest_uncovered(), id(2));
  clock.completed(0, clock.begin_scan(), {});
  EXPECT_FALSE(clock.lowest_uncovered());
}

TEST(ScanClock, a_lost_session_covers_nothing) {
  ScanClock clock(1);
  clock.completed(0, clock.begin_scan(), {});
  clock.lost(0);
  EXPECT_EQ(clock.lowest_uncovered(), (TxnId{0, 0}));
}

TEST(ScanClock, stays_small_while_a_resource_manager_is_away) {
  ScanClock clock(2);
  clock.completed(0, clock.begin_scan(), {});
  clock.completed(1, clock.begin_scan(), {});
  for (std::uint64_t i = 1; i <= 5'000; ++i) {
    clock.ended(id(i));
    clock.completed(0, clock.begin_scan(), {});
  }
  EXPECT_EQ(clock.lowest_uncovered(), id(1)) << "merging keeps the lowest";
  clock.completed(1, clock.begin_scan(), {});
  EXPECT_EQ(clock.lowest_uncovered(), std::nullopt);
}

}  // namespace
}  // namespace twofold::coordinator
