#include "log/group_commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace twofold {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;
constexpr auto kNever = std::chrono::milliseconds(1h);

// A target whose groups a test lets through one by one: the writer is held inside apply() as long
// as a sync takes.
class ManualTarget final : public GroupTarget {
 public:
  explicit ManualTarget(bool held) : held_(held) {}

  Applied apply(std::uint64_t group, std::span<const Write* const> writes) override {
    std::unique_lock lock(mutex_);
    EXPECT_EQ(group, last_ + 1);
    std::vector<std::uint64_t> tickets;
    for (const auto* write : writes) tickets.push_back(write->ticket);
    entered_.push_back(tickets);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_ || passes_ > 0; });
    if (passes_ > 0) --passes_;
    if (full_) return Applied::refused;
    last_ = group;
    groups_.push_back(std::move(tickets));
    return Applied::durable;
  }
  std::uint64_t last_group() override { return last_; }
  double used_fraction() override { return 0.25; }

  void wait_until_entered(std::size_t applies) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_.size() >= applies; });
  }
  void pass() {
    std::lock_guard lock(mutex_);
    ++passes_;
    changed_.notify_all();
  }
  void release() {
    std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void set_full(bool full) {
    std::lock_guard lock(mutex_);
    full_ = full;
  }
  std::vector<std::vector<std::uint64_t>> groups() {
    std::lock_guard lock(mutex_);
    return groups_;
  }
  std::vector<std::vector<std::uint64_t>> attempts() {
    std::lock_guard lock(mutex_);
    return entered_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_;
  bool full_ = false;
  int passes_ = 0;
  std::uint64_t last_ = 41;
  std::vector<std::vector<std::uint64_t>> entered_, groups_;
};

// What was told, in order.
class Told {
 public:
  std::function<void(GroupResult)> handler() {
    return [this](GroupResult result) {
      std::lock_guard lock(mutex_);
      results_.push_back(std::move(result));
      changed_.notify_all();
    };
  }
  GroupResult next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !results_.empty(); });
    auto result = std::move(results_.front());
    results_.pop_front();
    return result;
  }
  bool empty() {
    std::lock_guard lock(mutex_);
    return results_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GroupResult> results_;
};

Write forced(std::uint64_t ticket) {
  return {ticket, {}, Urgency::now, true};
}
Write unforced(std::uint64_t ticket) {
  return {ticket, {}, Urgency::lazy, false};
}
Write must_write(std::uint64_t ticket) {
  return {ticket, {}, Urgency::now, false};
}

TEST(GroupCommit, WritesWhatArrivedDuringTheLastSyncAsOneGroup) {
  ManualTarget target(true);
  Told told;
  GroupCommit commit(target, {}, told.handler());
  commit.submit(forced(1));
  target.wait_until_entered(1);
  commit.submit(forced(2));
  commit.submit({forced(3), forced(4)});
  EXPECT_EQ(commit.queued(), 4u);
  target.release();
  EXPECT_TRUE(commit.drain());
  EXPECT_THAT(target.groups(), ElementsAre(ElementsAre(1), ElementsAre(2, 3, 4)));
  const auto first = told.next();
  EXPECT_THAT(first.durable, ElementsAre(1));
  EXPECT_EQ(first.group, 42u);
  EXPECT_EQ(first.used_fraction, 0.25);
  EXPECT_FALSE(first.full);
  const auto second = told.next();
  EXPECT_THAT(second.durable, ElementsAre(2, 3, 4));
  EXPECT_EQ(second.group, 43u);
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(commit.queued(), 0u);
}

TEST(GroupCommit, LimitsAGroupByWritesAndBytes) {
  ManualTarget target(true);
  Told told;
  GroupCommitOptions options;
  options.group_writes_max = 2;
  options.group_bytes_max = 100;
  GroupCommit commit(target, options, told.handler());
  commit.submit(forced(1));
  target.wait_until_entered(1);
  auto large = [](std::uint64_t ticket, std::size_t bytes) {
    return Write{
        ticket, {{Mutation::Kind::put, 0, "k", std::string(bytes, 'x')}}, Urgency::now, true};
  };
  commit.submit({forced(2), forced(3), forced(4), large(5, 500), large(6, 60), large(7, 60)});
  target.release();
  EXPECT_TRUE(commit.drain());
  EXPECT_THAT(target.groups(), ElementsAre(ElementsAre(1), ElementsAre(2, 3), ElementsAre(4),
                                           ElementsAre(5), ElementsAre(6), ElementsAre(7)));
}

TEST(GroupCommit, UnforcedWritesJoinTheNextForcedGroup) {
  ManualTarget target(false);
  Told told;
  GroupCommitOptions options;
  options.lazy_flush = kNever;
  GroupCommit commit(target, options, told.handler());
  commit.submit(unforced(1));
  commit.submit(unforced(2));
  commit.submit(forced(3));
  EXPECT_THAT(told.next().durable, ElementsAre(1, 2, 3));
  EXPECT_THAT(target.groups(), ElementsAre(ElementsAre(1, 2, 3)));
}

TEST(GroupCommit, UnforcedWritesGoAloneAfterAWhile) {
  ManualTarget target(false);
  Told told;
  GroupCommitOptions options;
  options.lazy_flush = 1ms;
  GroupCommit commit(target, options, told.handler());
  commit.submit(unforced(1));
  EXPECT_THAT(told.next().durable, ElementsAre(1));
}

TEST(GroupCommit, SoonDoesNotWaitForWhatIsLazy) {
  ManualTarget target(false);
  Told told;
  GroupCommitOptions options;
  options.lazy_flush = kNever;
  GroupCommit commit(target, options, told.handler());
  Write soon = unforced(2);
  soon.urgency = Urgency::soon;
  commit.submit(unforced(1));
  commit.submit(std::move(soon));  // about as long as a forced write, and takes the other along
  EXPECT_THAT(told.next().durable, ElementsAre(1, 2));
}

TEST(GroupCommit, DrainDoesNotWaitForCompany) {
  ManualTarget target(false);
  Told told;
  GroupCommitOptions options;
  options.lazy_flush = kNever;
  GroupCommit commit(target, options, told.handler());
  EXPECT_TRUE(commit.drain());
  EXPECT_THAT(target.attempts(), IsEmpty());
  commit.submit(unforced(1));
  EXPECT_TRUE(commit.drain());
  EXPECT_THAT(told.next().durable, ElementsAre(1));
}

TEST(GroupCommit, TheDestructorWritesWhatIsQueued) {
  ManualTarget target(false);
  Told told;
  GroupCommitOptions options;
  options.lazy_flush = kNever;
  {
    GroupCommit commit(target, options, told.handler());
    commit.submit({unforced(1), unforced(2)});
  }
  EXPECT_THAT(told.next().durable, ElementsAre(1, 2));
}

TEST(GroupCommit, TicketZeroIsNotTold) {
  ManualTarget target(false);
  Told told;
  GroupCommit commit(target, {}, told.handler());
  commit.submit({forced(0), forced(1)});
  EXPECT_THAT(told.next().durable, ElementsAre(1));
}

// Rule 23: what may be refused is; the rest keeps its order at the head and goes first when there
// is room.
TEST(GroupCommit, ARefusedGroupKeepsWhatMustBeWritten) {
  ManualTarget target(true);
  Told told;
  GroupCommitOptions options;
  options.full_retry = 1ms;
  GroupCommit commit(target, options, told.handler());
  commit.submit({forced(1), must_write(2), forced(3), must_write(4)});
  target.wait_until_entered(1);
  commit.submit({forced(5), unforced(6)});  // behind the group that will be refused
  target.set_full(true);
  target.pass();
  const auto refused = told.next();
  EXPECT_THAT(refused.durable, IsEmpty());
  EXPECT_THAT(refused.refused, ElementsAre(1, 3, 5));
  EXPECT_TRUE(refused.full);
  target.wait_until_entered(2);
  commit.submit(forced(7));
  target.set_full(false);
  target.release();
  EXPECT_TRUE(commit.drain());
  std::vector<std::uint64_t> order;
  for (const auto& group : target.groups()) order.insert(order.end(), group.begin(), group.end());
  EXPECT_THAT(order, ElementsAre(2, 4, 6, 7));
  EXPECT_FALSE(told.next().full);
}

TEST(GroupCommit, AFullTargetIsTriedInSmallerGroups) {
  ManualTarget target(true);
  Told told;
  GroupCommitOptions options;
  options.full_retry = 1ms;
  GroupCommit commit(target, options, told.handler());
  target.set_full(true);
  commit.submit({must_write(1), must_write(2), must_write(3), must_write(4)});
  for (std::size_t attempt = 1; attempt <= 4; ++attempt) {
    target.wait_until_entered(attempt);
    if (attempt == 4) target.set_full(false);
    target.pass();
  }
  target.release();
  EXPECT_TRUE(commit.drain());
  EXPECT_THAT(target.attempts(), ElementsAre(ElementsAre(1, 2, 3, 4), ElementsAre(1, 2),
                                             ElementsAre(1), ElementsAre(1), ElementsAre(2, 3, 4)));
}

TEST(GroupCommit, TellsOfRoomWithoutAnythingToWrite) {
  ManualTarget target(false);
  Told told;
  GroupCommitOptions options;
  options.full_retry = 1ms;
  GroupCommit commit(target, options, told.handler());
  target.set_full(true);
  commit.submit(forced(1));
  const auto refused = told.next();
  EXPECT_THAT(refused.refused, ElementsAre(1));
  EXPECT_TRUE(refused.full);
  target.wait_until_entered(3);  // it keeps trying, and says nothing while nothing changes
  EXPECT_TRUE(told.empty());
  target.set_full(false);
  const auto room = told.next();
  EXPECT_FALSE(room.full);
  EXPECT_THAT(room.durable, IsEmpty());
  EXPECT_THAT(room.refused, IsEmpty());
  EXPECT_THAT(target.groups(), ElementsAre(IsEmpty()));
}

TEST(GroupCommit, WhileFullNewWritesAreRefusedInTheirTurn) {
  ManualTarget target(false);
  Told told;
  GroupCommitOptions options;
  options.full_retry = 1ms;
  GroupCommit commit(target, options, told.handler());
  target.set_full(true);
  commit.submit({must_write(1), forced(2)});
  EXPECT_THAT(told.next().refused, ElementsAre(2));
  commit.submit(forced(3));
  const auto again = told.next();
  EXPECT_THAT(again.refused, ElementsAre(3));
  EXPECT_TRUE(again.full);
  target.set_full(false);
  EXPECT_THAT(told.next().durable, ElementsAre(1));
}

TEST(GroupCommit, NeitherDrainNorTheEndWaitsForRoomForEver) {
  ManualTarget target(false);
  Told told;
  target.set_full(true);
  GroupCommitOptions options;
  options.full_retry = 1ms;
  {
    GroupCommit commit(target, options, told.handler());
    commit.submit({must_write(1), forced(2)});
    EXPECT_FALSE(commit.drain());
    EXPECT_THAT(told.next().refused, ElementsAre(2));
    EXPECT_EQ(commit.queued(), 1u);
    commit.submit(forced(3));
  }
  EXPECT_THAT(told.next().refused, ElementsAre(3));
  EXPECT_TRUE(told.empty());
  EXPECT_THAT(target.groups(), IsEmpty());
}

TEST(GroupCommit, ManyWritesKeepTheirOrder) {
  ManualTarget target(false);
  Told told;
  GroupCommit commit(target, {}, told.handler());
  for (std::uint64_t ticket = 1; ticket <= 20'000; ++ticket) {
    commit.submit({ticket, {}, ticket % 3 == 0 ? Urgency::lazy : Urgency::now, true});
  }
  EXPECT_TRUE(commit.drain());
  std::uint64_t expected = 1;
  while (expected <= 20'000) {
    for (auto ticket : told.next().durable) ASSERT_EQ(ticket, expected++);
  }
}

}  // namespace
}  // namespace twofold
