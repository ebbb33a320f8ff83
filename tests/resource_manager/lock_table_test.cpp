#include "resource_manager/core/lock_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>

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

TEST(LockTable, BlockersAreThoseRightBeforeThatItMayNotPass) {
  LockTable table;
  table.request(1, exclusive({"k"}), at(0));
  table.request(2, exclusive({"k"}), at(0));
  table.request(3, shared({"k"}), at(0));
  table.request(4, shared({"k"}), at(0));
  table.request(5, exclusive({"k"}), at(0));
  EXPECT_EQ(table.blockers(1), Owners{});
  EXPECT_EQ(table.blockers(2), Owners{1});
  EXPECT_EQ(table.blockers(3), Owners{2});
  EXPECT_EQ(table.blockers(4), Owners{2});  // not its fellow reader 3
  EXPECT_EQ(table.blockers(5), (Owners{3, 4}));
  EXPECT_EQ(table.blockers(77), Owners{});
}

TEST(LockTable, MoreMayBeAskedForLater) {
  LockTable table;
  EXPECT_TRUE(table.request(1, exclusive({"a"}), at(0)));
  EXPECT_TRUE(table.request(1, exclusive({"a", "b"}), at(0)));
  EXPECT_TRUE(table.request(1, shared({"a", "c"}), at(0)));  // it has a, and stronger
  EXPECT_EQ(table.locks_of(1),
            (std::vector<LockRequest>{
                {"a", LockMode::exclusive}, {"b", LockMode::exclusive}, {"c", LockMode::shared}}));
  EXPECT_FALSE(table.request(2, exclusive({"b", "c"}), at(0)));
  EXPECT_EQ(release(table, 1), Owners{2});
}

TEST(LockTable, AnUpgradeGoesBeforeThoseWhoWait) {
  LockTable table;
  table.request(1, shared({"k"}), at(0));
  EXPECT_TRUE(table.request(1, exclusive({"k"}), at(0)));  // the only holder: at once
  release(table, 1);

  table.request(1, shared({"k"}), at(0));
  table.request(2, shared({"k"}), at(0));
  EXPECT_FALSE(table.request(3, exclusive({"k"}), at(0)));
  EXPECT_FALSE(table.request(4, shared({"k"}), at(0)));
  EXPECT_FALSE(table.request(1, exclusive({"k"}), at(0)));
  EXPECT_EQ(table.blockers(1), Owners{2});
  EXPECT_EQ(table.blockers(3), Owners{1});
  EXPECT_EQ(table.first_wait(1)->holder, 2u);
  EXPECT_EQ(release(table, 2), Owners{1});
  const auto entry = table.entries(1).at(0);
  ASSERT_EQ(entry.holders.size(), 1u);
  EXPECT_EQ(entry.holders[0].mode, LockMode::exclusive);
  EXPECT_EQ(release(table, 1), Owners{3});
}

TEST(LockTable, TwoUpgradesOfOneKeyWaitForEachOther) {
  LockTable table;
  table.request(1, shared({"k"}), at(0));
  table.request(2, shared({"k"}), at(0));
  EXPECT_FALSE(table.request(1, exclusive({"k"}), at(0)));
  EXPECT_FALSE(table.request(2, exclusive({"k"}), at(0)));
  EXPECT_EQ(table.blockers(1), Owners{2});
  EXPECT_EQ(table.blockers(2), Owners{1});
  EXPECT_EQ(release(table, 2), Owners{1});
}

TEST(LockTable, WithdrawingKeepsWhatIsHeld) {
  LockTable table;
  Owners ready;
  table.request(1, shared({"a"}), at(0));
  table.request(2, shared({"a"}), at(0));
  table.request(2, exclusive({"b"}), at(0));
  EXPECT_FALSE(table.request(1, exclusive({"a", "b", "c"}), at(0)));  // it gets c only
  EXPECT_FALSE(table.request(3, shared({"a", "b"}), at(0)));
  table.withdraw(1, at(0), ready);
  EXPECT_EQ(ready, Owners{});
  EXPECT_FALSE(table.waiting(1));
  EXPECT_EQ(table.locks_of(1),
            (std::vector<LockRequest>{{"a", LockMode::shared}, {"c", LockMode::exclusive}}));
  EXPECT_EQ(table.blockers(3), Owners{2});  // for b; a it shares
  EXPECT_EQ(release(table, 2), Owners{3});
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
  table.request(5, exclusive({"x"}), at(0));
  EXPECT_DEATH(table.request(5, exclusive({"y"}), at(0)), "contract broken");  // it waits
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
  struct Entry {
    Owner owner;
    LockMode mode;
    bool granted;
    bool upgrade;
  };

  void request(Owner owner, const std::vector<LockRequest>& requests) {
    for (const LockRequest& request : requests) enter(queues_[request.key], owner, request.mode);
    std::erase(order_, owner);
    order_.push_back(owner);
    grant();
  }

  Owners release(Owner owner) {
    return leave([&](const Entry& entry) { return entry.owner == owner; }, owner);
  }
  Owners withdraw(Owner owner) {
    return leave([&](const Entry& entry) { return entry.owner == owner && !entry.granted; }, {});
  }

  bool waiting(Owner owner) const {
    for (const auto& [key, queue] : queues_) {
      for (const Entry& entry : queue) {
        if (entry.owner == owner && !entry.granted) return true;
      }
    }
    return false;
  }

  // Whom it waits for, at first and at last hand.
  std::set<Owner> reaches(Owner owner) const {
    std::set<Owner> found;
    std::vector<Owner> to_visit{owner};
    while (!to_visit.empty()) {
      const Owner one = to_visit.back();
      to_visit.pop_back();
      for (const auto& [key, queue] : queues_) {
        for (std::size_t i = 0; i < queue.size(); ++i) {
          if (queue[i].owner != one || queue[i].granted) continue;
          for (std::size_t j = 0; j < i; ++j) {
            if (conflict(queue[j], queue[i]) && found.insert(queue[j].owner).second) {
              to_visit.push_back(queue[j].owner);
            }
          }
        }
      }
    }
    return found;
  }

  const std::map<std::string, std::vector<Entry>>& queues() const { return queues_; }
  const Owners& order() const { return order_; }

 private:
  using Queue = std::vector<Entry>;

  static bool conflict(const Entry& ahead, const Entry& behind) {
    if (ahead.owner == behind.owner) return false;
    return ahead.mode == LockMode::exclusive || behind.mode == LockMode::exclusive;
  }

  static void enter(Queue& queue, Owner owner, LockMode mode) {
    const auto own = std::find_if(queue.begin(), queue.end(),
                                  [&](const Entry& entry) { return entry.owner == owner; });
    if (own == queue.end()) return queue.push_back({owner, mode, false, false});
    if (mode == LockMode::shared || own->mode == LockMode::exclusive) return;
    const auto waiter = std::find_if(queue.begin(), queue.end(), [](const Entry& entry) {
      return !entry.granted && !entry.upgrade;
    });
    queue.insert(waiter, {owner, mode, false, true});
  }

  void grant() {
    for (auto& [key, queue] : queues_) {
      for (std::size_t i = 0; i < queue.size(); ++i) {
        if (queue[i].granted) continue;
        bool blocked = false;
        for (std::size_t j = 0; j < i; ++j) blocked = blocked || conflict(queue[j], queue[i]);
        if (blocked) continue;
        queue[i].granted = true;
        if (!queue[i].upgrade) continue;
        const Owner owner = queue[i].owner;
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i--));
        for (Entry& entry : queue) {
          if (entry.owner == owner) entry.mode = LockMode::exclusive;
        }
      }
    }
  }

  template <class Goes>
  Owners leave(Goes goes, std::optional<Owner> gone) {
    std::set<Owner> waited;
    for (Owner one : order_) {
      if (waiting(one)) waited.insert(one);
    }
    for (auto& [key, queue] : queues_) {
      for (std::size_t i = queue.size(); i-- > 0;) {
        if (!goes(queue[i])) continue;
        waited.erase(queue[i].owner);
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    std::erase_if(queues_, [](auto& entry) { return entry.second.empty(); });
    if (gone) std::erase(order_, *gone);
    grant();
    Owners ready;
    for (Owner one : order_) {
      if (waited.contains(one) && !waiting(one)) ready.push_back(one);
    }
    return ready;
  }

  std::map<std::string, Queue> queues_;
  Owners order_;  // of requests
};

std::set<Owner> reaches(const LockTable& table, Owner owner) {
  std::set<Owner> found;
  Owners to_visit{owner};
  while (!to_visit.empty()) {
    const Owner one = to_visit.back();
    to_visit.pop_back();
    for (const Owner blocker : table.blockers(one)) {
      if (found.insert(blocker).second) to_visit.push_back(blocker);
    }
  }
  return found;
}

void expect_same(const LockTable& table, const Model& model) {
  ASSERT_EQ(table.keys(), model.queues().size());
  for (const Owner owner : model.order()) {
    ASSERT_EQ(table.waiting(owner), model.waiting(owner)) << owner;
    ASSERT_EQ(reaches(table, owner), model.reaches(owner)) << owner;
  }
  const auto entries = table.entries(1000);
  ASSERT_EQ(entries.size(), model.queues().size());
  auto at = model.queues().begin();
  for (const LockTable::Entry& entry : entries) {
    ASSERT_EQ(entry.key, at->first);
    std::vector<std::tuple<Owner, LockMode, bool>> all, expected;
    for (const auto& held : entry.holders) all.push_back({held.owner, held.mode, true});
    for (const auto& held : entry.waiters) all.push_back({held.owner, held.mode, false});
    for (const auto& one : at->second) expected.push_back({one.owner, one.mode, one.granted});
    ASSERT_EQ(all, expected);
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
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    LockTable table;
    Model model;
    Owner next = 1;
    for (int i = 0; i < 200; ++i) {
      const auto dice = model.order().size() > 12 ? 9 : random() % 10;
      const Owner known =
          model.order().empty() ? 0 : model.order()[random() % model.order().size()];
      if (dice < 5 || known == 0 || (dice < 7 && model.waiting(known))) {
        const std::vector<LockRequest> requests = random_requests(random);
        model.request(next, requests);
        ASSERT_EQ(table.request(next, requests, at(i)), !model.waiting(next));
        ASSERT_EQ(table.locks_of(next), requests);
        ++next;
      } else if (dice < 7) {  // more, or stronger
        const std::vector<LockRequest> requests = random_requests(random);
        model.request(known, requests);
        ASSERT_EQ(table.request(known, requests, at(i)), !model.waiting(known));
      } else if (dice == 7) {
        Owners ready;
        table.withdraw(known, at(i), ready);
        ASSERT_EQ(ready, model.withdraw(known));
      } else {
        ASSERT_EQ(release(table, known, at(i)), model.release(known));
      }
      expect_same(table, model);
      if (testing::Test::HasFatalFailure()) return;
    }
    while (!model.order().empty()) {
      const Owner owner = model.order().front();
      ASSERT_EQ(release(table, owner, at(1000)), model.release(owner));
    }
    EXPECT_EQ(table.keys(), 0u);
  }
}

}  // namespace
}  // namespace twofold::resource_manager
