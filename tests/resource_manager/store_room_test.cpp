// A store whose map is full, or nearly (rule 23, and docs/store.md on room).
#include <gmock/gmock.h>

#include "tests/log/small_disk.h"
#include "tests/resource_manager/store_fixture.h"

namespace twofold::resource_manager {
namespace {

TEST_F(StoreTest, WithoutRoomNobodyVotesYesAndWhoHasVotedCommits) {
  options_.map_bytes = 1u << 20;
  open();
  const std::string large(50'000, 'x');
  std::vector<BranchId> voted;
  bool refused = false;
  for (BranchId branch = 1; branch <= 40 && !refused; ++branch) {
    run(branch, {put("k/" + std::to_string(branch), text(large))});
    ask_prepare(branch);
    store_->flush();
    Event event = host_->next();
    while (std::holds_alternative<SpaceChanged>(event)) event = host_->next();
    refused = std::holds_alternative<Refused>(event);
    if (!refused) voted.push_back(branch);
  }
  ASSERT_TRUE(refused);
  ASSERT_GT(voted.size(), 2u);
  for (BranchId branch : voted) {
    ask_commit(branch);
    store_->flush();
    Event event = host_->next();
    while (std::holds_alternative<SpaceChanged>(event)) event = host_->next();
    EXPECT_EQ(std::get<Persisted>(event).ticket, branch * 4 + 1);
  }
  EXPECT_EQ(static_cast<std::size_t>(scan("k/").entries_size()), voted.size());
}

TEST_F(StoreTest, LackOfRoomAndItsEndAreTold) {
  options_.map_bytes = 1u << 20;
  open();
  const std::string large(80'000, 'x');
  BranchId branch = 0;
  std::optional<Event> space;
  while (!space && branch < 40) {
    ++branch;
    run(branch, {put("k/" + std::to_string(branch), text(large))});
    ask_commit(branch, true);
    store_->flush();
    host_->next();
    space = host_->pending();
  }
  ASSERT_TRUE(space);
  EXPECT_FALSE(std::get<SpaceChanged>(*space).room);
  reopen();  // full from the start
  EXPECT_FALSE(std::get<SpaceChanged>(host_->next()).room);
  // What has been prepared, or is purged, makes room; here an operator's erasing does.
  Work erasing;
  for (BranchId each = 1; each < branch; ++each)
    erasing.push_back(erase("k/" + std::to_string(each)));
  run(100, erasing);
  ask_commit(100, true);
  store_->flush();
  bool room = false;
  for (int events = 0; events < 2; ++events) {
    const Event event = host_->next();
    if (const auto* changed = std::get_if<SpaceChanged>(&event)) room = changed->room;
  }
  EXPECT_TRUE(room);
}

class FullStoreTest : public StoreTest {
 protected:
  // Keys k/1, k/2, … of a page each, until that part of the map is used.
  void fill(std::int64_t percent) {
    options_.map_bytes = 1u << 20;
    open();
    fill_on(percent);
  }
  void fill_on(std::int64_t percent) {
    while (number_of("map_used_percent") < percent) {
      const BranchId branch = ++filled_;
      run(branch, {page(branch)});
      ask_commit(branch, true);
      store_->flush();
      ASSERT_EQ(host_->next_of<Persisted>().ticket, branch * 4 + 1);
    }
  }
  Operation page(BranchId key) const {
    return put("k/" + std::to_string(key), text(std::string(3'000, 'x')));
  }
  Work erase_pages(BranchId from, BranchId to) const {
    Work work;
    for (BranchId key = from; key < to; ++key) work.push_back(erase("k/" + std::to_string(key)));
    return work;
  }
  std::int64_t number_of(std::string_view name) const {
    wire::StatsAnswer stats;
    store_->add_stats(stats);
    for (const auto& each : stats.numbers()) {
      if (each.name() == name) return each.value();
    }
    return -1;
  }

  bool has_room() const {
    wire::StatsAnswer stats;
    store_->add_stats(stats);
    for (const auto& each : stats.texts()) {
      if (each.name() == "room") return each.value() == "yes";
    }
    throw std::runtime_error("no stat says whether there is room");
  }

  BranchId filled_ = 0;
};

// The map has its blocks from the beginning, so what others do to the disk keeps no coordinator
// out, and what makes room goes on.
TEST_F(FullStoreTest, ADiskThatOthersHaveFilled) {
  test::SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "needs a small file system: run as root";
  options_.directory = disk.path() / "store";
  options_.map_bytes = 512u << 10;
  open();
  commit_at_once(1, {put("a", number(1))});
  disk.fill();
  NodeRecord node{"main", kLog, 3, 77, {}};
  for (node.epoch = 3; node.epoch < 40; ++node.epoch) {
    store_->persist(PersistNode{node.epoch * 4 + 3, node, true, false});
    store_->flush();
    EXPECT_EQ(host_->next_of<Persisted>().ticket, node.epoch * 4 + 3);
  }
  run(2, {erase("a")});
  ask_prepare(2);
  store_->flush();
  EXPECT_EQ(host_->next_of<Persisted>().ticket, 8u);
  ask_commit(2);
  store_->flush();
  EXPECT_EQ(host_->next_of<Persisted>().ticket, 9u);
  EXPECT_TRUE(has_room());
  close();
}

TEST_F(FullStoreTest, WhatOnlyErasesSaysSo) {
  open();
  commit_at_once(1, {put("a", number(1)), put("b", number(2))});
  EXPECT_TRUE(run(2, {get("b"), erase("a")}).frees);
  EXPECT_FALSE(run(3, {erase("a"), put("c", number(1))}).frees);
  EXPECT_FALSE(run(4, {get("a"), erase("none")}).frees);  // it wrote nothing at all
}

TEST_F(FullStoreTest, ErasingGoesOnWhereNothingElseIsTakenAndServiceResumes) {
  fill(80);
  EXPECT_FALSE(has_room());
  EXPECT_FALSE(host_->next_of<SpaceChanged>().room);
  // As far as the promises of others have come, too.
  fill_on(89);
  run(1'001, {put("large", text(std::string(20'000, 'x')))});
  ask_prepare(1'001);
  store_->flush();
  EXPECT_EQ(host_->next_of<Refused>().ticket, 1'001u * 4);

  run(1'002, erase_pages(1, 5));
  ask_prepare(1'002);
  store_->flush();
  EXPECT_EQ(host_->next_of<Persisted>().ticket, 1'002u * 4);
  ask_commit(1'002);
  run(1'003, erase_pages(5, 8));
  ask_commit(1'003, true);
  store_->flush();
  EXPECT_EQ(host_->next_of<Persisted>().ticket, 1'002u * 4 + 1);
  EXPECT_EQ(host_->next_of<Persisted>().ticket, 1'003u * 4 + 1);

  BranchId erased = 8;
  for (BranchId branch = 2'000; !has_room() && erased < filled_; ++branch) {
    run(branch, erase_pages(erased, erased + 5));
    erased += 5;
    ask_commit(branch, true);
    store_->flush();
    EXPECT_EQ(host_->next_of<Persisted>().ticket, branch * 4 + 1);
  }
  EXPECT_TRUE(host_->next_of<SpaceChanged>().room);
  EXPECT_LT(number_of("map_used_percent"), 80);
  run(3'000, {page(3'000)});
  ask_prepare(3'000);
  store_->flush();
  EXPECT_EQ(host_->next_of<Persisted>().ticket, 3'000u * 4);
}

// The last pages are for finishing what is under way: each key that is erased may rewrite one.
TEST_F(FullStoreTest, ErasingTooMuchAtOnceInAFullStoreIsRefused) {
  fill(81);
  run(1'001, erase_pages(1, 80));
  ask_prepare(1'001);
  store_->flush();
  EXPECT_EQ(host_->next_of<Refused>().ticket, 1'001u * 4);
  store_->discard(Discard{1'001});
  run(1'002, erase_pages(1, 10));
  ask_prepare(1'002);
  store_->flush();
  EXPECT_EQ(host_->next_of<Persisted>().ticket, 1'002u * 4);
}

TEST_F(FullStoreTest, PurgingOutcomesMakesRoomAndIsNoticed) {
  fill(79);
  BranchId branch = 1'000;
  while (has_room() && branch < 3'000) commit_at_once(++branch, {put("n", number(1))});
  ASSERT_FALSE(host_->next_of<SpaceChanged>().room);
  const NodeRecord mark{"main", kLog, 3, 77, TxnId{3, branch}};
  store_->persist(PersistNode{3, mark, false, true});
  store_->flush();
  EXPECT_TRUE(host_->next_of<SpaceChanged>().room);
}

// No retry can do better, so it is a refusal and not a lack of room that may pass.
TEST_F(FullStoreTest, WhatNoMapOfThisSizeCanTakeIsInvalid) {
  options_.map_bytes = 1u << 20;
  open();
  const Ran ran = run(1, {put("k", text(std::string(500'000, 'x')))});
  EXPECT_EQ(ran.code, Xa::rbintegrity);
  ASSERT_EQ(ran.refusals.size(), 1u);
  EXPECT_EQ(ran.refusals[0].check, "invalid");
  EXPECT_THAT(ran.refusals[0].limit, testing::HasSubstr("at most 471859 bytes"));
  EXPECT_TRUE(ran.results.empty());
  EXPECT_EQ(run(2, {put("k", text(std::string(400'000, 'x')))}).code, Xa::ok);
}

}  // namespace
}  // namespace twofold::resource_manager
