#include "resource_manager/core/lock_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace twofold::resource_manager {
namespace {

using Owner = LockTable::Owner;
using Owners = std::vector<Owner>;

Time at(std::int64_t microseconds) {
  return Time{Duration{microseconds}};
}

std::vector<LockRequest> shared(std::vector<std::string> keys) {
  std::vector<LockRequest> requests;
  for (std::string& key : keys) requests.push_back({std::move(key), LockMode::shared});
  return requests;
}

std::vector<LockRequest> exclusive(std::vector<std::string> keys) {
  std::vector<LockRequest> requests;
  for (std::string& key : keys) requests.push_back({std::move(key), LockMode::exclusive});
  return requests;
}

Owners release(LockTable& table, Owner owner, Time now = at(0)) {
  Owners ready;
  table.release(owner, now, ready);
  return ready;
}

TEST(Normalise, SortsAndKeepsTheStrongestMode) {
  std::vector<LockRequest> requests{{"b", LockMode::shared},
                                    {"a", LockMode::shared},
                                    {"b", LockMode::exclusive},
                                    {"a", LockMode::shared},
                                    {"b", LockMode::shared}};
  normalise(requests);
  EXPECT_EQ(requests,
            (std::vector<LockRequest>{{"a", LockMode::shared}, {"b", LockMode::exclusive}}));
}

TEST(LockTable, SharedAreGrantedTogetherExclusiveAlone) {
  LockTable table;
  EXPECT_TRUE(table.request(1, shared({"k"}), at(0)));
  EXPECT_TRUE(table.request(2, shared({"k"}), at(0)));
  EXPECT_FALSE(table.request(3, exclusive({"k"}), at(0)));
  EXPECT_TRUE(release(table, 1).empty());
  EXPECT_EQ(release(table, 2), Owners{3});
  EXPECT_FALSE(table.waiting(3));
}

TEST(LockTable, AReaderDoesNotPassAWaitingWriter) {
  LockTable table;
  EXPECT_TRUE(table.request(1, shared({"k"}), at(0)));
  EXPECT_FALSE(table.request(2, exclusive({"k"}), at(0)));
  EXPECT_FALSE(table.request(3, shared({"k"}), at(0)));
  EXPECT_FALSE(table.request(4, shared({"k"}), at(0)));
  EXPECT_EQ(release(table, 1), Owners{2});
  EXPECT_EQ(release(table, 2), (Owners{3, 4}));  // one batch
}

TEST(LockTable, AWaiterThatLeavesLetsThoseBehindItPass) {
  LockTable table;
  EXPECT_TRUE(table.request(1, shared({"k"}), at(0)));
  EXPECT_FALSE(table.request(2, exclusive({"k"}), at(0)));
  EXPECT_FALSE(table.request(3, shared({"k"}), at(0)));
  EXPECT_EQ(release(table, 2), Owners{3});
}

TEST(LockTable, ReadyOnlyWithAllLocksAndInTheOrderOfRequests) {
  LockTable table;
  EXPECT_TRUE(table.request(1, exclusive({"a", "b"}), at(0)));
  EXPECT_TRUE(table.request(2, exclusive({"c"}), at(0)));
  EXPECT_FALSE(table.request(3, exclusive({"b", "c"}), at(0)));
  EXPECT_FALSE(table.request(9, exclusive({"b"}), at(0)));
  EXPECT_FALSE(table.request(5, exclusive({"a"}), at(0)));
  EXPECT_EQ(release(table, 1), Owners{5});
  EXPECT_TRUE(table.waiting(3));  // holds b, waits for c
  EXPECT_EQ(release(table, 2), Owners{3});
  EXPECT_EQ(release(table, 3), Owners{9});

  LockTable other;
  EXPECT_TRUE(other.request(1, exclusive({"a", "b"}), at(0)));
  EXPECT_FALSE(other.request(3, exclusive({"b"}), at(0)));
  EXPECT_FALSE(other.request(2, exclusive({"a"}), at(0)));
  EXPECT_EQ(release(other, 1), (Owners{3, 2}));
}

TEST(LockTable, NoKeysIsGranted) {
  LockTable table;
  EXPECT_TRUE(table.request(1, {}, at(0)));
  EXPECT_FALSE(table.waiting(1));
  EXPECT_TRUE(release(table, 1).empty());
  EXPECT_TRUE(release(table, 1).empty());  // of an unknown owner: nothing
}

TEST(LockTable, WaitsForHoldersAndEarlierWaitersItMayNotPass) {
  LockTable table;
  table.request(1, shared({"k"}), at(0));
  table.request(2, exclusive({"k"}), at(0));
  table.request(3, shared({"k"}), at(0));
  table.request(4, shared({"k"}), at(0));
  table.request(5, exclusive({"k"}), at(0));
  EXPECT_EQ(table.waits_for(1), Owners{});
  EXPECT_EQ(table.waits_for(2), Owners{1});
  EXPECT_EQ(table.waits_for(3), (Owners{1, 2}));
  EXPECT_EQ(table.waits_for(4), (Owners{1, 2}));  // not its fellow reader 3
  EXPECT_EQ(table.waits_for(5), (Owners{1, 2, 3, 4}));
  EXPECT_EQ(table.waits_for(77), Owners{});
}

TEST(LockTable, NamesTheFirstKeyNotGrantedAndItsHolder) {
  LockTable table;
  table.request(1, exclusive({"b"}), at(0));
  table.request(2, exclusive({"a", "b", "c"}), at(0));
  EXPECT_FALSE(table.first_wait(1));
  const auto wait = table.first_wait(2);
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->key, "b");
  EXPECT_EQ(wait->holder, 1u);
}

TEST(LockTable, ReinstatesWhatPreparedBranchesHeld) {
  LockTable table;
  table.reinstate(1, shared({"k"}), at(0));
  table.reinstate(2, shared({"k"}), at(0));
  EXPECT_EQ(table.locks_of(1), shared({"k"}));
  EXPECT_FALSE(table.request(3, exclusive({"k"}), at(5)));
  EXPECT_TRUE(release(table, 1).empty());
  EXPECT_EQ(release(table, 2), Owners{3});
  EXPECT_EQ(table.wait_us().count(), 1u);  // what was reinstated was not waited for
}

TEST(LockTableDeathTest, BrokenContracts) {
  LockTable table;
  table.reinstate(1, exclusive({"k"}), at(0));
  EXPECT_DEATH(table.reinstate(2, shared({"k"}), at(0)), "contract broken");
  table.request(3, exclusive({"x"}), at(0));
  EXPECT_DEATH(table.reinstate(4, shared({"y"}), at(0)), "contract broken");
  EXPECT_DEATH(table.request(3, exclusive({"y"}), at(0)), "contract broken");
}

TEST(LockTable, EntriesAreByKeyAndBounded) {
  LockTable table;
  table.request(1, exclusive({"b", "c"}), at(10));
  table.request(2, shared({"a", "b"}), at(20));
  EXPECT_EQ(table.keys(), 3u);
  const auto entries = table.entries(2);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].key, "a");
  EXPECT_EQ(entries[1].key, "b");
  ASSERT_EQ(entries[1].holders.size(), 1u);
  EXPECT_EQ(entries[1].holders[0].owner, 1u);
  EXPECT_EQ(entries[1].holders[0].since, at(10));
  ASSERT_EQ(entries[1].waiters.size(), 1u);
  EXPECT_EQ(entries[1].waiters[0].owner, 2u);
  EXPECT_EQ(entries[1].waiters[0].mode, LockMode::shared);
  EXPECT_EQ(entries[1].waiters[0].since, at(20));
  release(table, 1);
  release(table, 2);
  EXPECT_EQ(table.keys(), 0u);
  EXPECT_TRUE(table.entries(10).empty());
}

TEST(LockTable, MeasuresHoldAndWaitInMicroseconds) {
  LockTable table;
  table.request(1, exclusive({"k"}), at(100));
  table.request(2, exclusive({"k"}), at(110));
  release(table, 1, at(150));
  release(table, 2, at(157));
  EXPECT_EQ(table.hold_us().count(), 2u);
  EXPECT_EQ(table.hold_us().max(), 50u);
  EXPECT_DOUBLE_EQ(table.hold_us().mean(), (50 + 7) / 2.0);
  EXPECT_EQ(table.wait_us().count(), 2u);
  EXPECT_EQ(table.wait_us().max(), 40u);
}

// The same rules, said naively: a lock is granted if nothing ahead of it in its queue conflicts.
class Model {
 public:
  void request(Owner owner, const std::vector<LockRequest>& requests) {
    for (const LockRequest& request : requests)
      queues_[request.key].push_back({owner, request.mode});
    order_.push_back(owner);
  }

  Owners release(Owner owner) {
    std::set<Owner> waited;
    for (Owner one : order_) {
      if (waiting(one)) waited.insert(one);
    }
    for (auto& [key, queue] : queues_)
      std::erase_if(queue, [&](auto& e) { return e.first == owner; });
    std::erase_if(queues_, [](auto& entry) { return entry.second.empty(); });
    std::erase(order_, owner);
    Owners ready;
    for (Owner one : order_) {
      if (waited.contains(one) && !waiting(one)) ready.push_back(one);
    }
    return ready;
  }

  bool waiting(Owner owner) const { return !waits_for(owner).empty(); }

  Owners waits_for(Owner owner) const {
    std::set<Owner> found;
    for (const auto& [key, queue] : queues_) {
      for (std::size_t i = 0; i < queue.size(); ++i) {
        if (queue[i].first != owner) continue;
        std::set<Owner> ahead;
        block(queue, i, ahead);
        found.merge(ahead);
      }
    }
    return {found.begin(), found.end()};
  }

  const std::map<std::string, std::vector<std::pair<Owner, LockMode>>>& queues() const {
    return queues_;
  }
  const Owners& order() const { return order_; }

 private:
  using Queue = std::vector<std::pair<Owner, LockMode>>;
  static void block(const Queue& queue, std::size_t place, std::set<Owner>& found) {
    for (std::size_t i = 0; i < place; ++i) {
      const bool conflict =
          queue[i].second == LockMode::exclusive || queue[place].second == LockMode::exclusive;
      if (conflict && found.insert(queue[i].first).second) block(queue, i, found);
    }
  }
  std::map<std::string, Queue> queues_;
  Owners order_;  // of requests
};

void expect_same(const LockTable& table, const Model& model) {
  ASSERT_EQ(table.keys(), model.queues().size());
  for (const Owner owner : model.order()) {
    ASSERT_EQ(table.waiting(owner), model.waiting(owner)) << owner;
    ASSERT_EQ(table.waits_for(owner), model.waits_for(owner)) << owner;
  }
  const auto entries = table.entries(1000);
  ASSERT_EQ(entries.size(), model.queues().size());
  auto at = model.queues().begin();
  for (const LockTable::Entry& entry : entries) {
    ASSERT_EQ(entry.key, at->first);
    std::vector<std::pair<Owner, LockMode>> all;
    for (const auto& held : entry.holders) all.push_back({held.owner, held.mode});
    for (const auto& held : entry.waiters) all.push_back({held.owner, held.mode});
    ASSERT_EQ(all, at->second);
    ASSERT_FALSE(entry.holders.empty());
    ++at;
  }
}

std::vector<LockRequest> random_requests(std::mt19937_64& random) {
  std::vector<LockRequest> requests;
  for (std::uint64_t i = random() % 5; i > 0; --i) {
    requests.push_back({std::string(1, static_cast<char>('a' + random() % 6)),
                        random() % 2 ? LockMode::shared : LockMode::exclusive});
  }
  normalise(requests);
  return requests;
}

TEST(LockTable, AgreesWithTheNaiveModel) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    LockTable table;
    Model model;
    Owner next = 1;
    for (int i = 0; i < 200; ++i) {
      if (random() % 2 == 0 || model.order().empty()) {
        const std::vector<LockRequest> requests = random_requests(random);
        model.request(next, requests);
        ASSERT_EQ(table.request(next, requests, at(i)), !model.waiting(next));
        ASSERT_EQ(table.locks_of(next), requests);
        ++next;
      } else {
        const Owner owner = model.order()[random() % model.order().size()];
        ASSERT_EQ(release(table, owner, at(i)), model.release(owner));
      }
      expect_same(table, model);
      if (testing::Test::HasFatalFailure()) return;
    }
    while (!model.order().empty()) {
      const Owner owner = model.order().front();
      ASSERT_EQ(release(table, owner, at(1000)), model.release(owner));
    }
    EXPECT_EQ(table.keys(), 0u);
    EXPECT_EQ(table.hold_us().count(), table.wait_us().count());  // each granted, each let go of
  }
}

}  // namespace
}  // namespace twofold::resource_manager
