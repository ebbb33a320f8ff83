// The store as an adapter, without a branch core: what it is asked for, and what a later process
// finds.
#include "resource_manager/adapters/store.h"

#include <fstream>

#include "log/group_commit.h"
#include "tests/resource_manager/store_fixture.h"

namespace twofold::resource_manager {
namespace {

// ---- branches
// --------------------------------------------------------------------------------------

TEST_F(StoreTest, ABranchSeesItsOwnWritesAndNobodyElseDoes) {
  open();
  EXPECT_TRUE(run(1, {put("k", number(7))}).wrote);
  EXPECT_EQ(results(1, {get("k")}), (Results{number(7)}));
  EXPECT_EQ(value_of("k"), Value{});
  store_->discard(Discard{1});
  EXPECT_EQ(results(1, {get("k")}), (Results{Value{}}));
}

TEST_F(StoreTest, ReadingWritesNothing) {
  open();
  const Ran ran = run(1, {get("k")});
  EXPECT_EQ(ran.code, Xa::ok);
  EXPECT_FALSE(ran.wrote);
}

TEST_F(StoreTest, FailedChecksAreXaRbintegrity) {
  open();
  const Ran ran = run(1, {add("k", 1), put("n", number(1)), add("l", 1)});
  EXPECT_EQ(ran.branch, 1u);
  EXPECT_EQ(ran.code, Xa::rbintegrity);
  ASSERT_EQ(ran.refusals.size(), 2u);
  EXPECT_EQ(ran.refusals[1].operation, 2u);
  EXPECT_TRUE(ran.results.empty());
}

TEST_F(StoreTest, ResultsBeyondTheLimitAreRefused) {
  options_.results_bytes_max = 1'000;
  open();
  commit_at_once(1, {put("k", text(std::string(600, 'x')))});
  EXPECT_EQ(run(2, {get("k")}).code, Xa::ok);
  const Ran ran = run(3, {get("k"), get("k")});
  EXPECT_EQ(ran.code, Xa::rbintegrity);
  ASSERT_EQ(ran.refusals.size(), 1u);
  EXPECT_EQ(ran.refusals[0].check, "invalid");
}

// They must fit into a frame and into the log, whatever the work was.
TEST_F(StoreTest, OfManyRefusalsTheFirstThousandAreTold) {
  open();
  EXPECT_EQ(run(1, Work(1'500, add("k", 1))).refusals.size(), 1'000u);
  EXPECT_EQ(store_->plan(encode_work(Work(1'500, {"drop", {}}))).invalid.size(), 1'000u);
}

TEST_F(StoreTest, PlanNamesLocksOrWhatIsInvalid) {
  open();
  const Plan good = store_->plan(encode_work({get("a"), put("b", number(1))}));
  EXPECT_TRUE(good.invalid.empty());
  EXPECT_EQ(good.locks,
            (std::vector<LockRequest>{{"a", LockMode::shared}, {"b", LockMode::exclusive}}));
  const Plan bad = store_->plan(encode_work({get("a"), {"drop", {}}}));
  EXPECT_EQ(bad.invalid.size(), 1u);
  EXPECT_TRUE(bad.locks.empty());
}

// ---- visibility (rule 13)
// --------------------------------------------------------------------------

TEST_F(StoreTest, ACommitIsReadBeforeItIsDurable) {
  open();
  run(1, {put("k", number(7))});
  ASSERT_TRUE(prepare(1));
  EXPECT_EQ(value_of("k"), Value{});
  ask_commit(1);  // not flushed: certainly not on disk
  EXPECT_EQ(value_of("k"), number(7));
  EXPECT_EQ(scan().entries_size(), 0);  // the durable snapshot has it as a prepared branch
  EXPECT_EQ(scan().prepared(), 1u);
  store_->flush();
  ASSERT_TRUE(persisted());
  EXPECT_EQ(value_of("k"), number(7));
  EXPECT_EQ(scan().entries_size(), 1);
  EXPECT_EQ(scan().prepared(), 0u);
}

// Whether synced meanwhile or not: the overlay's entries come and go while the value only rises.
TEST_F(StoreTest, EachCommitBuildsOnTheOnesBefore) {
  open();
  commit_at_once(1, {put("k", number(0))});
  for (BranchId branch = 2; branch < 12; ++branch) {
    EXPECT_EQ(results(branch, {add("k", 1)}), (Results{number(static_cast<int>(branch) - 1)}));
    ask_prepare(branch);
    store_->flush();
    Event event = host_->next();
    while (std::get<Persisted>(event).ticket != branch * 4) event = host_->next();
    ask_commit(branch);
    if (branch % 3 == 0) store_->flush();
  }
  store_->flush();
  while (std::get<Persisted>(host_->next()).ticket != 11 * 4 + 1)
    EXPECT_EQ(value_of("k"), number(10));
  EXPECT_EQ(value_of("k"), number(10));
  reopen();
  EXPECT_EQ(value_of("k"), number(10));
}

TEST_F(StoreTest, AOnePhaseCommitIsNotReadBeforeItIsDurable) {
  open();
  run(1, {put("k", number(7))});
  ask_commit(1, true);
  EXPECT_EQ(value_of("k"), Value{});
  store_->flush();
  ASSERT_TRUE(persisted());
  EXPECT_EQ(value_of("k"), number(7));
}

// ---- what survives
// ---------------------------------------------------------------------------------

TEST_F(StoreTest, CommittedDataSurvivesAndUnpreparedWorkDoesNot) {
  open();
  commit_at_once(1, {put("k", number(7)), put("t", text("x"))});
  run(2, {put("k", number(8))});
  reopen();
  EXPECT_EQ(value_of("k"), number(7));
  EXPECT_EQ(value_of("t"), text("x"));
  EXPECT_TRUE(recovered_.prepared.empty());
}

TEST_F(StoreTest, APreparedBranchComesBackWithItsLocksAndCommits) {
  open();
  run(1, {put("k", number(7))});
  ASSERT_TRUE(prepare(1));
  reopen();
  ASSERT_EQ(recovered_.prepared.size(), 1u);
  EXPECT_EQ(recovered_.prepared[0].xid, make_xid(1));
  EXPECT_EQ(recovered_.prepared[0].locks,
            (std::vector<LockRequest>{{"k", LockMode::exclusive}, {"r", LockMode::shared}}));
  EXPECT_LE(recovered_.prepared[0].since, Time(std::chrono::hours(1)));
  EXPECT_GT(recovered_.prepared[0].since, Time(std::chrono::minutes(50)));
  EXPECT_EQ(value_of("k"), Value{});
  ASSERT_TRUE(commit(1));
  EXPECT_EQ(value_of("k"), number(7));
  reopen();
  EXPECT_TRUE(recovered_.prepared.empty());
  EXPECT_EQ(value_of("k"), number(7));
}

TEST_F(StoreTest, ARolledBackBranchIsGone) {
  open();
  run(1, {put("k", number(7))});
  ASSERT_TRUE(prepare(1));
  store_->persist(PersistRollback{6, 1, make_xid(1)});
  store_->flush();
  ASSERT_TRUE(persisted());
  reopen();
  EXPECT_TRUE(recovered_.prepared.empty());
  EXPECT_EQ(value_of("k"), Value{});
}

TEST_F(StoreTest, StopWritesWhatWasNotFlushed) {
  open();
  run(1, {put("k", number(7))});
  ask_prepare(1);
  EXPECT_TRUE(store_->stop());
  EXPECT_TRUE(persisted());
  reopen();
  EXPECT_EQ(recovered_.prepared.size(), 1u);
}

TEST_F(StoreTest, TheStoreIdStays) {
  open();
  const std::uint64_t id = store_->store_id();
  EXPECT_NE(id, 0u);
  reopen();
  EXPECT_EQ(store_->store_id(), id);
}

TEST_F(StoreTest, NodeRecordsComeBack) {
  open();
  const NodeRecord main{"main", kLog, 3, 77, TxnId{3, 5}};
  const NodeRecord other{"other", LogId{9}, 1, 1, TxnId{}};
  store_->persist(PersistNode{3, main, true, false});
  store_->persist(PersistNode{7, other, true, false});
  store_->flush();
  ASSERT_TRUE(persisted());
  ASSERT_TRUE(persisted());
  reopen();
  EXPECT_EQ(recovered_.nodes, (std::vector<NodeRecord>{main, other}));
}

// ---- evidence (rules 16 and 18)
// --------------------------------------------------------------------

TEST_F(StoreTest, EveryCommitLeavesEvidence) {
  open();
  commit_at_once(1, {put("a", number(1))});
  run(2, {put("b", number(1))});
  ASSERT_TRUE(prepare(2));
  EXPECT_EQ(evidence(make_xid(2)), Evidence::none);
  ASSERT_TRUE(commit(2));
  for (BranchId branch : {1, 2}) {
    EXPECT_EQ(evidence(make_xid(branch)), Evidence::committed);
  }
  EXPECT_EQ(evidence(make_xid(3)), Evidence::none);
  EXPECT_EQ(evidence(make_xid(1, 4)), Evidence::none);
  reopen();
  EXPECT_EQ(evidence(make_xid(2)), Evidence::committed);
}

TEST_F(StoreTest, AMarkPurgesWhatIsBelowItAndIsKept) {
  open();
  for (BranchId branch = 1; branch <= 4; ++branch) {
    commit_at_once(branch, {put("k", number(1))});
  }
  const NodeRecord record{"main", kLog, 3, 77, TxnId{3, 3}};
  store_->persist(PersistNode{3, record, false, true});
  store_->flush();
  ASSERT_TRUE(persisted());
  EXPECT_EQ(evidence(make_xid(1)), Evidence::none);
  EXPECT_EQ(evidence(make_xid(2)), Evidence::none);
  EXPECT_EQ(evidence(make_xid(3)), Evidence::committed);
  EXPECT_EQ(evidence(make_xid(4)), Evidence::committed);
  reopen();
  EXPECT_EQ(recovered_.nodes, (std::vector<NodeRecord>{record}));
}

// ---- scan and stats
// --------------------------------------------------------------------------------

TEST_F(StoreTest, ScanFindsAPrefixInOrder) {
  open();
  commit_at_once(
      1, {put("b/2", text("x")), put("a", number(1)), put("b/1", number(-5)), put("c", number(1))});
  const wire::ScanAnswer answer = scan("b/");
  ASSERT_EQ(answer.entries_size(), 2);
  EXPECT_EQ(answer.entries(0).key(), "b/1");
  EXPECT_EQ(answer.entries(0).value().integer(), -5);
  EXPECT_EQ(answer.entries(1).key(), "b/2");
  EXPECT_EQ(answer.entries(1).value().text(), "x");
  EXPECT_FALSE(answer.truncated());
  EXPECT_EQ(scan("").entries_size(), 4);
  EXPECT_EQ(scan("none").entries_size(), 0);
  EXPECT_EQ(scan(std::string(5'000, 'k')).entries_size(), 0);
}

TEST_F(StoreTest, ScanIsBoundedAndSaysSo) {
  open();
  commit_at_once(1, {put("a", text(std::string(500, 'x'))), put("b", text(std::string(500, 'x')))});
  const wire::ScanAnswer answer = scan("", 800);
  EXPECT_EQ(answer.entries_size(), 1);
  EXPECT_TRUE(answer.truncated());
  wire::Scan asked;
  asked.set_bytes_max(800);
  EXPECT_TRUE(scan(asked, 1u << 20).truncated());
}

TEST_F(StoreTest, StatsCountKeysAndForcedWrites) {
  open();
  commit_at_once(1, {put("a", number(1)), put("b", number(1))});
  wire::StatsAnswer stats;
  store_->add_stats(stats);
  auto value = [&](std::string_view name) -> std::int64_t {
    for (const auto& each : stats.numbers()) {
      if (each.name() == name) return each.value();
    }
    return -1;
  };
  EXPECT_EQ(value("keys"), 2);
  EXPECT_EQ(value("outcomes"), 1);
  EXPECT_EQ(value("forced_writes"), 1);
  EXPECT_TRUE(std::any_of(stats.texts().begin(), stats.texts().end(), [](const auto& each) {
    return each.name() == "room" && each.value() == "yes";
  }));
  ASSERT_EQ(stats.histograms_size(), 2);
  EXPECT_EQ(stats.histograms(0).name(), "sync_us");
  EXPECT_EQ(stats.histograms(1).name(), "group_writes");
  EXPECT_EQ(stats.histograms(1).count(), 1u);
}

// ---- opening
// ---------------------------------------------------------------------------------------

TEST_F(StoreTest, ADirectoryWithOtherFilesIsNotTouched) {
  std::filesystem::create_directories(options_.directory);
  std::ofstream(options_.directory / "letter.txt") << "dear";
  const Result<std::unique_ptr<Adapter>> opened = open_store(options_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().fault, Fault::exists);
  EXPECT_FALSE(std::filesystem::exists(options_.directory / "data.mdb"));
}

TEST_F(StoreTest, ASecondOwnerIsRefused) {
  open();
  const Result<std::unique_ptr<Adapter>> opened = open_store(options_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().fault, Fault::busy);
}

void write_row(const std::filesystem::path& directory, std::uint32_t table, std::string key,
               std::string value) {
  auto environment =
      lmdb::Environment::open(directory, {0, {"meta", "data", "prepared", "outcomes", "nodes"}})
          .value();
  Write write;
  write.mutations.push_back({Mutation::Kind::put, table, std::move(key), std::move(value)});
  LmdbTarget target(*environment);
  const Write* const writes[] = {&write};
  ASSERT_EQ(target.apply(target.last_group() + 1, writes), GroupTarget::Applied::durable);
}

TEST_F(StoreTest, AnUnknownFormatIsRefusedWithWhatToDo) {
  open();
  close();
  write_row(options_.directory, 0, "format", "twofold store 2");
  const Result<std::unique_ptr<Adapter>> opened = open_store(options_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().fault, Fault::unsupported);
  EXPECT_NE(opened.error().message.find("start the version that wrote it"), std::string::npos);
}

TEST_F(StoreTest, AnotherProgramsDataIsRefused) {
  lmdb::Environment::create(options_.directory, {1u << 20, {"meta"}}).value();
  write_row(options_.directory, 0, "log_id", "12345678");
  const Result<std::unique_ptr<Adapter>> opened = open_store(options_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().fault, Fault::unsupported);
}

TEST_F(StoreTest, ADamagedPreparedRowStopsTheStart) {
  open();
  close();
  write_row(options_.directory, 2, "xid", "row");
  auto store = open_store(options_).value();
  EXPECT_THROW(store->recover(Time{}), std::runtime_error);
}

TEST_F(StoreTest, AnInterruptedCreationIsFinished) {
  lmdb::Environment::create(options_.directory,
                            {1u << 20, {"meta", "data", "prepared", "outcomes", "nodes"}})
      .value();
  open();
  EXPECT_NE(store_->store_id(), 0u);
}

}  // namespace
}  // namespace twofold::resource_manager
