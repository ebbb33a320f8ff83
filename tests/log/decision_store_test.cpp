#include "log/decision_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "log/inspect.h"
#include "log/record_codec.h"
#include "tests/log/sample_records.h"
#include "tests/log/small_disk.h"
#include "tests/log/temporary_directory.h"

namespace twofold {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace test;
namespace fs = std::filesystem;

constexpr std::uint64_t kMapBytes = 1u << 20;

std::unique_ptr<LmdbDecisionStore> must(Result<std::unique_ptr<LmdbDecisionStore>> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

class DecisionStoreTest : public ::testing::Test {
 protected:
  DecisionStoreTest() {
    const auto made = LmdbDecisionStore::init(directory(), "main", kMapBytes);
    if (!made) throw std::runtime_error(made.error().message);
    store_ = must(LmdbDecisionStore::open(directory()));
    const auto epoch = store_->open_epoch();
    if (!epoch) throw std::runtime_error(epoch.error().message);
    origin_ = {"main", epoch->log_id, epoch->current.nonce};
  }

  fs::path directory() const { return root_.path() / "log"; }

  void write(std::vector<Mutation> changes) {
    const Write write{0, std::move(changes)};
    const Write* const writes[] = {&write};
    auto& target = store_->target();
    ASSERT_EQ(target.apply(target.last_group() + 1, writes), GroupTarget::Applied::durable);
  }
  void write(const LogRecord& record) { write(mutations(record)); }

  void reopen() {
    store_.reset();
    store_ = must(LmdbDecisionStore::open(directory()));
  }

  Recovered replay() {
    auto recovered = store_->replay();
    if (!recovered) throw std::runtime_error(recovered.error().message);
    return std::move(*recovered);
  }

  // The store must be closed: an environment is open once in a process.
  std::vector<std::string> problems() {
    store_.reset();
    std::vector<std::string> result;
    const auto inspection = inspect(directory());
    if (!inspection) return {inspection.error().message};
    for (const auto& problem : verify(*inspection)) {
      result.push_back(problem.where + ": " + problem.what);
    }
    return result;
  }

  TemporaryDirectory root_;
  std::unique_ptr<LmdbDecisionStore> store_;
  Origin origin_;
};

TEST(DecisionStore, OnlyInitMakesALog) {
  TemporaryDirectory root;
  const auto directory = root.path() / "log";
  const auto missing = LmdbDecisionStore::open(directory);
  ASSERT_TRUE(missing.has_error());
  EXPECT_EQ(missing.error().fault, Fault::not_found);
  EXPECT_THAT(missing.error().message,
              HasSubstr("is made with: twofold-log init " + directory.string() + " --node NAME"));
  EXPECT_FALSE(fs::exists(directory));
  const auto made = LmdbDecisionStore::init(directory, "main", kMapBytes);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(made->node, "main");
  EXPECT_NE(made->log_id.value, 0u);
  EXPECT_THAT(made->epochs, IsEmpty());
  const auto again = LmdbDecisionStore::init(directory, "other", kMapBytes);
  ASSERT_TRUE(again.has_error());
  EXPECT_EQ(again.error().fault, Fault::exists);
  EXPECT_EQ(must(LmdbDecisionStore::open(directory))->info().log_id, made->log_id);
}

TEST(DecisionStore, LogIdsAreRandom) {
  TemporaryDirectory root;
  std::set<std::uint64_t> ids;
  for (const char* name : {"a", "b", "c"}) {
    ids.insert(LmdbDecisionStore::init(root.path() / name, "main", kMapBytes).value().log_id.value);
  }
  EXPECT_EQ(ids.size(), 3u);
}

TEST(DecisionStore, InitRefusesBadNames) {
  TemporaryDirectory root;
  for (const std::string& node :
       {std::string(), std::string(33, 'n'), std::string("a b"), std::string("n\xff")}) {
    const auto made = LmdbDecisionStore::init(root.path() / "log", node, kMapBytes);
    ASSERT_TRUE(made.has_error());
    EXPECT_EQ(made.error().fault, Fault::invalid);
  }
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(DecisionStore, InitWithoutRoomLeavesNothingBehind) {
  TemporaryDirectory root;
  FileSizeLimit limit(4096);
  const auto made = LmdbDecisionStore::init(root.path() / "log", "main", kMapBytes);
  ASSERT_TRUE(made.has_error());
  EXPECT_EQ(made.error().fault, Fault::full);
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(DecisionStore, InitFinishesWhatAnInterruptedOneLeft) {
  TemporaryDirectory root;
  // Everything but the identity, which is init's last write.
  ASSERT_TRUE(lmdb::Environment::create(root.path(), {kMapBytes, log_table_names()}).has_value());
  const auto opened = LmdbDecisionStore::open(root.path());
  ASSERT_TRUE(opened.has_error());
  EXPECT_EQ(opened.error().fault, Fault::not_found);
  EXPECT_TRUE(LmdbDecisionStore::init(root.path(), "main", kMapBytes).has_value());
  EXPECT_TRUE(LmdbDecisionStore::open(root.path()).has_value());
}

TEST(DecisionStore, InitLeavesOtherDataAlone) {
  TemporaryDirectory root;
  ASSERT_TRUE(lmdb::Environment::create(root.path(), {kMapBytes, {"keys"}}).has_value());
  const auto made = LmdbDecisionStore::init(root.path(), "main", kMapBytes);
  ASSERT_TRUE(made.has_error());
  EXPECT_EQ(made.error().fault, Fault::exists);
  EXPECT_TRUE(lmdb::Environment::open_read_only(root.path(), {0, {"keys"}}).has_value());
  EXPECT_TRUE(lmdb::Environment::open_read_only(root.path(), {0, {"meta"}}).has_error());
}

TEST_F(DecisionStoreTest, EpochsAscendAndAreRecordedWithTheirNonces) {
  reopen();
  const auto second = store_->open_epoch();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->node, "main");
  EXPECT_EQ(second->log_id, origin_.log_id);
  EXPECT_EQ(second->current.number, 2u);
  EXPECT_NE(second->current.nonce, origin_.nonce);
  EXPECT_THAT(second->earlier, ElementsAre(EpochRef{1, origin_.nonce}));
  reopen();
  const auto third = store_->open_epoch();
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->current.number, 3u);
  EXPECT_THAT(third->earlier, ElementsAre(EpochRef{1, origin_.nonce}, second->current));
  EXPECT_EQ(store_->info().epochs.size(), 3u);
  EXPECT_THAT(problems(), IsEmpty());
}

// Rule 2: a copy that is marked as a backup opens no epoch until it is restored.
TEST_F(DecisionStoreTest, ABackupStartsOnlyWhenItIsRestored) {
  write(mutations(ServedEpoch{1}));
  write(LogRecord{commit_record({1, 2}, origin_)});
  const auto copy = root_.path() / "deep" / "copy";
  store_.reset();
  const auto made = LmdbDecisionStore::back_up(directory(), copy);
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_TRUE(made->backup.has_value());
  EXPECT_EQ(made->backup->known_by, "");
  EXPECT_EQ(made->backup->certain_below, 1u);
  EXPECT_GT(made->backup->wall_us, 0);
  EXPECT_EQ(made->log_id, origin_.log_id);
  EXPECT_EQ(made->map_bytes, kMapBytes);
  EXPECT_FALSE(fs::exists(copy.parent_path() / "copy.partial"));

  reopen();  // the log itself goes on as before
  EXPECT_FALSE(store_->info().backup);
  ASSERT_TRUE(store_->open_epoch());

  store_ = must(LmdbDecisionStore::open(copy));
  const auto refused = store_->open_epoch();
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().fault, Fault::invalid);
  EXPECT_THAT(refused.error().message, HasSubstr("--restored"));
  EXPECT_EQ(store_->info().epochs.size(), 1u) << "an attempt leaves nothing behind";

  const auto before = store_->restore();
  ASSERT_TRUE(before) << before.error().message;
  EXPECT_EQ(*before, (FormerLog{origin_.log_id, 1}));
  const auto epoch = store_->open_epoch();
  ASSERT_TRUE(epoch) << epoch.error().message;
  EXPECT_NE(epoch->log_id, origin_.log_id);
  EXPECT_EQ(epoch->current.number, 2u);
  EXPECT_THAT(epoch->earlier, ElementsAre(EpochRef{1, origin_.nonce}));
  EXPECT_THAT(epoch->former, ElementsAre(*before));
  EXPECT_EQ(replay().commits.size(), 1u);

  // And all of that is durable.
  store_.reset();
  store_ = must(LmdbDecisionStore::open(copy));
  EXPECT_EQ(store_->info().log_id, epoch->log_id);
  EXPECT_THAT(store_->info().former, ElementsAre(*before));
  EXPECT_FALSE(store_->info().backup);
  store_.reset();
  const auto inspection = inspect(copy);
  ASSERT_TRUE(inspection);
  EXPECT_THAT(verify(*inspection), IsEmpty());
}

// Abort is presumed below the last epoch that was served: a copy that was started before anybody
// knew it for one has raised its epoch, not its knowledge.
TEST_F(DecisionStoreTest, StartsThatServedNobodyMakeNothingCertain) {
  write(mutations(ServedEpoch{1}));
  for (int starts = 0; starts < 3; ++starts) {
    reopen();
    ASSERT_TRUE(store_->open_epoch());
  }
  reopen();
  const auto before = store_->restore();
  ASSERT_TRUE(before);
  EXPECT_EQ(before->certain_below, 1u);
  write(mutations(BackupMark{1, 0, "payments"}));  // it turned out to be an older copy itself
  reopen();
  EXPECT_THAT(store_->open_epoch().error().message, HasSubstr("payments knows a later epoch"));
  const auto again = store_->restore();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->certain_below, 0u);
  EXPECT_THAT(store_->info().former, ElementsAre(*before, *again));
}

// What was drained when the copy was made may have been taken back since.
TEST_F(DecisionStoreTest, ARestoredLogCountsNobodyAsDrained) {
  const Participants known{{"kitchen", 7, Participant::State::drained},
                           {"payments", 8, Participant::State::active}};
  write(mutations(ParticipantsRecord{known}));
  reopen();
  EXPECT_EQ(replay().participants, known);
  ASSERT_TRUE(store_->restore());
  Participants all_active = known;
  all_active[0].state = Participant::State::active;
  EXPECT_EQ(replay().participants, all_active);
}

TEST_F(DecisionStoreTest, ABackupLeavesAloneWhatIsThere) {
  const auto copy = root_.path() / "copy";
  store_.reset();
  fs::create_directory(copy);
  EXPECT_EQ(LmdbDecisionStore::back_up(directory(), copy).error().fault, Fault::exists);
  EXPECT_TRUE(fs::is_empty(copy));
  fs::remove(copy);
  fs::create_directory(root_.path() / "copy.partial");
  EXPECT_EQ(LmdbDecisionStore::back_up(directory(), copy).error().fault, Fault::exists);
  fs::remove(root_.path() / "copy.partial");
  EXPECT_EQ(LmdbDecisionStore::back_up(root_.path() / "nothing", copy).error().fault,
            Fault::not_found);
  EXPECT_FALSE(fs::exists(copy));
  EXPECT_FALSE(fs::exists(root_.path() / "copy.partial"));
}

TEST_F(DecisionStoreTest, ABackupWithoutRoomLeavesNothingBehind) {
  store_.reset();
  FileSizeLimit limit(fs::file_size(directory() / "data.mdb") / 2);
  EXPECT_TRUE(LmdbDecisionStore::back_up(directory(), root_.path() / "copy").has_error());
  EXPECT_FALSE(fs::exists(root_.path() / "copy"));
  EXPECT_FALSE(fs::exists(root_.path() / "copy.partial"));
}

TEST_F(DecisionStoreTest, RestoringNeedsRoomAndIsAllOrNothing) {
  reopen();
  {
    FileSizeLimit limit(fs::file_size(directory() / "data.mdb") / 2);
    const auto restored = store_->restore();
    ASSERT_TRUE(restored.has_error());
    EXPECT_EQ(restored.error().fault, Fault::full);
  }
  reopen();
  EXPECT_EQ(store_->info().log_id, origin_.log_id);
  EXPECT_THAT(store_->info().former, IsEmpty());
}

TEST_F(DecisionStoreTest, AnEpochNeedsRoom) {
  FileSizeLimit limit(fs::file_size(directory() / "data.mdb") / 2);
  const auto epoch = store_->open_epoch();
  ASSERT_TRUE(epoch.has_error());
  EXPECT_EQ(epoch.error().fault, Fault::full);
  EXPECT_EQ(store_->info().epochs.size(), 1u);
}

TEST_F(DecisionStoreTest, ASecondOpenIsBusy) {
  const auto second = LmdbDecisionStore::open(directory());
  ASSERT_TRUE(second.has_error());
  EXPECT_EQ(second.error().fault, Fault::busy);
}

TEST_F(DecisionStoreTest, ReadOnlyOpensNoEpoch) {
  store_.reset();
  auto reading = must(LmdbDecisionStore::open_read_only(directory()));
  EXPECT_EQ(reading->info().epochs.size(), 1u);
  ASSERT_TRUE(reading->open_epoch().has_error());
  EXPECT_TRUE(reading->replay().has_value());
}

TEST_F(DecisionStoreTest, ReplayGivesEveryRecordInTheOrderOfTransactions) {
  for (std::uint64_t sequence : {300, 5, 70}) {
    write(LogRecord{intent_record({1, sequence}, origin_)});
    write(LogRecord{commit_record({1, sequence + 1}, origin_)});
    write(LogRecord{refusal_record({1, sequence + 2}, origin_)});
    write(LogRecord{end_record({1, sequence + 3}, origin_)});
  }
  write(LogRecord{heuristic_record({1, 6}, origin_)});
  reopen();
  const auto recovered = replay();
  EXPECT_THAT(recovered.intents,
              ElementsAre(intent_record({1, 5}, origin_), intent_record({1, 70}, origin_),
                          intent_record({1, 300}, origin_)));
  EXPECT_THAT(recovered.commits,
              ElementsAre(commit_record({1, 6}, origin_), commit_record({1, 71}, origin_),
                          commit_record({1, 301}, origin_)));
  EXPECT_THAT(recovered.refusals,
              ElementsAre(refusal_record({1, 7}, origin_), refusal_record({1, 72}, origin_),
                          refusal_record({1, 302}, origin_)));
  EXPECT_THAT(recovered.ends, ElementsAre(end_record({1, 8}, origin_), end_record({1, 73}, origin_),
                                          end_record({1, 303}, origin_)));
  EXPECT_THAT(recovered.heuristics, ElementsAre(heuristic_record({1, 6}, origin_)));
  EXPECT_EQ(recovered.floor, (TxnId{0, 0}));
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(DecisionStoreTest, ARecordReplacesItsTransactionsRow) {
  write(LogRecord{intent_record({1, 1}, origin_)});
  write(LogRecord{end_record({1, 1}, origin_)});
  write(LogRecord{intent_record({1, 2}, origin_)});
  write(LogRecord{DroppedRecord{{1, 2}}});
  write(LogRecord{commit_record({1, 3}, origin_)});
  write(LogRecord{end_record({1, 3}, origin_)});
  const auto recovered = replay();
  EXPECT_THAT(recovered.intents, IsEmpty());
  EXPECT_THAT(recovered.commits, IsEmpty());
  EXPECT_THAT(recovered.ends,
              ElementsAre(end_record({1, 1}, origin_), end_record({1, 3}, origin_)));
}

TEST_F(DecisionStoreTest, HeuristicsLieBesideUntilForgotten) {
  const auto heuristic = heuristic_record({1, 1}, origin_);
  write(LogRecord{commit_record({1, 1}, origin_)});
  write(LogRecord{heuristic});
  write(LogRecord{end_record({1, 1}, origin_)});
  EXPECT_THAT(replay().heuristics, ElementsAre(heuristic));
  write(LogRecord{HeuristicForgottenRecord{heuristic.xid}});
  EXPECT_THAT(replay().heuristics, IsEmpty());
  EXPECT_THAT(replay().ends, ElementsAre(end_record({1, 1}, origin_)));
}

TEST_F(DecisionStoreTest, APurgeErasesItsIdsAndKeepsTheFloor) {
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) {
    write(LogRecord{end_record({1, sequence}, origin_)});
  }
  write(LogRecord{PurgeRecord{{{1, 1}, {1, 3}}, {1, 3}}});
  reopen();
  const auto recovered = replay();
  EXPECT_THAT(recovered.ends,
              ElementsAre(end_record({1, 2}, origin_), end_record({1, 4}, origin_)));
  EXPECT_EQ(recovered.floor, (TxnId{1, 3}));
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(DecisionStoreTest, AnUnknownRecordVersionSaysWhichRowAndWhatToDo) {
  auto row = encode_row(transaction_key({1, 9}), commit_record({1, 9}, origin_));
  row[0] = 2;
  write({{Mutation::Kind::put, 2, transaction_key({1, 9}), row}});
  const auto recovered = store_->replay();
  ASSERT_TRUE(recovered.has_error());
  EXPECT_EQ(recovered.error().fault, Fault::unsupported);
  EXPECT_THAT(recovered.error().message,
              HasSubstr("row 1.9 of transactions: it has version 2, this program knows 1; this log "
                        "was written by a newer Twofold: use that one"));
}

TEST_F(DecisionStoreTest, ADamagedRowSaysWhichRowAndWhatToDo) {
  auto row = encode_row(transaction_key({1, 9}), commit_record({1, 9}, origin_));
  row[10] = static_cast<char>(row[10] ^ 1);
  write({{Mutation::Kind::put, 2, transaction_key({1, 9}), row}});
  const auto recovered = store_->replay();
  ASSERT_TRUE(recovered.has_error());
  EXPECT_EQ(recovered.error().fault, Fault::damaged);
  EXPECT_THAT(
      recovered.error().message,
      HasSubstr("row 1.9 of transactions: its checksum is wrong; see \"twofold-log verify"));
  EXPECT_THAT(problems(), ElementsAre("row 1.9 of transactions: its checksum is wrong"));
}

TEST_F(DecisionStoreTest, RowsInTheWrongTableAreDamage) {
  const auto heuristic = heuristic_record({1, 1}, origin_);
  const auto key = heuristic_key(heuristic.xid);
  write({{Mutation::Kind::put, 2, key, encode_row(key, heuristic)}});
  ASSERT_TRUE(store_->replay().has_error());
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("it does not belong into this table")));
}

TEST_F(DecisionStoreTest, ADamagedIdentityOrEpochKeepsTheLogShut) {
  write({{Mutation::Kind::put, 1, epoch_key(2), "nonsense"}});
  store_.reset();
  const auto opened = LmdbDecisionStore::open(directory());
  ASSERT_TRUE(opened.has_error());
  EXPECT_EQ(opened.error().fault, Fault::unsupported);  // 'n' is a version from far ahead
  EXPECT_THAT(opened.error().message, HasSubstr("row 2 of epochs"));
}

TEST_F(DecisionStoreTest, VerifyFindsWhatContradictsItself) {
  write(LogRecord{commit_record({5, 1}, origin_)});                    // no such epoch
  write(LogRecord{end_record({1, 2}, {"main", {1}, origin_.nonce})});  // another log
  write(LogRecord{end_record({1, 3}, {"main", origin_.log_id, 1})});   // another nonce
  auto moved = commit_record({1, 4}, origin_);
  moved.id = {1, 5};
  write(LogRecord{moved});
  auto mixed = commit_record({1, 6}, origin_);
  mixed.branches[0].xid.gtrid = "another";
  write(LogRecord{mixed});
  write(LogRecord{CommitRecord{{1, 7}, gtrid_of({1, 7}, origin_), {}, {}}});
  write({{Mutation::Kind::put, 1, epoch_key(4), encode_row(epoch_key(4), EpochRef{4, 0})},
         {Mutation::Kind::put, 0, "odd", encode_floor("odd", {1, 1})}});
  EXPECT_THAT(problems(),
              ElementsAre("row odd of meta: it does not belong into this table",
                          HasSubstr("row 4 of epochs: the epoch before it is 1"),
                          "row 4 of epochs: its nonce is missing",
                          "row 1.2 of transactions: its gtrid is of another log",
                          "row 1.3 of transactions: its gtrid has another nonce than its epoch",
                          "row 1.5 of transactions: its gtrid is that of 1.4",
                          "row 1.6 of transactions: a branch of it is of another transaction",
                          "row 1.7 of transactions: it commits no branch",
                          "row 5.1 of transactions: its epoch 5 was not recorded by this log"));
}

TEST_F(DecisionStoreTest, VerifyMissesIdentityAndGroupNumber) {
  store_.reset();
  {
    auto environment = lmdb::Environment::open(directory(), {0, log_table_names()});
    ASSERT_TRUE(environment.has_value());
    LmdbTarget target(**environment);
    const Write write{
        0,
        {{Mutation::Kind::erase, 0, "identity", {}}, {Mutation::Kind::put, 0, "group", "short"}}};
    const Write* const writes[] = {&write};
    ASSERT_EQ(target.apply(target.last_group() + 1, writes), GroupTarget::Applied::durable);
  }
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("row identity of meta: it is missing"),
                                      HasSubstr("row group of meta: it is missing")));
}

TEST_F(DecisionStoreTest, GroupCommitWritesThroughTheTarget) {
  std::vector<std::uint64_t> durable;  // written on the writer thread, read after it has ended
  {
    GroupCommit commit(store_->target(), {}, [&](const GroupResult& result) {
      durable.insert(durable.end(), result.durable.begin(), result.durable.end());
    });
    for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
      commit.submit(
          {sequence, mutations(commit_record({1, sequence}, origin_)), Urgency::now, true});
      commit.submit({0, mutations(end_record({1, sequence}, origin_)), Urgency::lazy, false});
    }
  }
  EXPECT_EQ(durable.size(), 100u);
  EXPECT_TRUE(std::is_sorted(durable.begin(), durable.end()));
  EXPECT_EQ(replay().ends.size(), 100u);
  EXPECT_THAT(replay().commits, IsEmpty());
  EXPECT_THAT(problems(), IsEmpty());
}

}  // namespace
}  // namespace twofold
