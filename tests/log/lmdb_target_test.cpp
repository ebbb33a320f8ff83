#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "log/group_commit.h"
#include "tests/log/failing_disk.h"
#include "tests/log/small_disk.h"
#include "tests/log/temporary_directory.h"

namespace twofold {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using Applied = GroupTarget::Applied;
using test::FileSizeLimit;
using test::SmallDisk;
using test::TemporaryDirectory;
namespace fs = std::filesystem;

constexpr std::uint64_t kMapBytes = 512u << 10;
constexpr int kFatalStatus = 74;

std::unique_ptr<lmdb::Environment> make(const fs::path& directory,
                                        std::uint64_t map_bytes = kMapBytes) {
  auto result = lmdb::Environment::create(directory, {map_bytes, {"meta", "data"}});
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

Mutation put(std::string key, std::string value) {
  return {Mutation::Kind::put, 1, std::move(key), std::move(value)};
}

Applied apply(LmdbTarget& target, std::vector<Mutation> mutations) {
  const Write write{0, std::move(mutations)};
  const Write* const writes[] = {&write};
  return target.apply(target.last_group() + 1, writes);
}

std::map<std::string, std::string> contents(const lmdb::Environment& environment) {
  std::map<std::string, std::string> result;
  lmdb::Reader(environment).scan(environment.table(1), {}, [&](auto key, auto value) {
    result.emplace(key, value);
    return true;
  });
  return result;
}

// Gives the blocks behind the file's end back, so that a full disk can be felt.
void give_blocks_back(const fs::path& directory) {
  const auto file = directory / "data.mdb";
  const int descriptor = ::open(file.c_str(), O_RDWR);
  const auto size = static_cast<off_t>(fs::file_size(file));
  ASSERT_EQ(::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, size,
                        static_cast<off_t>(kMapBytes) - size),
            0);
  ::close(descriptor);
}

TEST(LmdbTarget, AppliesMutationsInOrderWithTheGroupNumber) {
  TemporaryDirectory root;
  auto environment = make(root.path());
  LmdbTarget target(*environment);
  EXPECT_EQ(target.last_group(), 0u);
  EXPECT_EQ(apply(target, {put("a", "1"), put("b", "2"), put("a", "3")}), Applied::durable);
  EXPECT_EQ(target.last_group(), 1u);
  EXPECT_EQ(apply(target, {{Mutation::Kind::erase, 1, "a", {}},
                           {Mutation::Kind::erase, 1, "never there", {}},
                           put("c", "")}),
            Applied::durable);
  EXPECT_EQ(target.last_group(), 2u);
  EXPECT_THAT(contents(*environment), ElementsAre(Pair("b", "2"), Pair("c", "")));
  EXPECT_EQ(target.apply(3, {}), Applied::durable);
  EXPECT_EQ(target.last_group(), 3u);
}

TEST(LmdbTarget, TheGroupNumberIsEightBytesUnderKeyGroupOfTableZero) {
  TemporaryDirectory root;
  auto environment = make(root.path());
  LmdbTarget target(*environment);
  ASSERT_EQ(apply(target, {}), Applied::durable);
  using namespace std::string_view_literals;
  EXPECT_EQ(lmdb::Reader(*environment).get(environment->table(0), "group"), "\0\0\0\0\0\0\0\1"sv);
}

TEST(LmdbTarget, ErasesRanges) {
  TemporaryDirectory root;
  auto environment = make(root.path());
  LmdbTarget target(*environment);
  std::vector<Mutation> many;
  for (int i = 0; i < 2'000; ++i) many.push_back(put("k" + std::to_string(10'000 + i), "value"));
  many.push_back(put("a", "1"));
  many.push_back(put("z", "2"));
  ASSERT_EQ(apply(target, many), Applied::durable);
  ASSERT_EQ(apply(target, {{Mutation::Kind::erase_range, 1, "k10001", "k11999"}}),
            Applied::durable);
  EXPECT_THAT(contents(*environment), ElementsAre(Pair("a", "1"), Pair("k10000", "value"),
                                                  Pair("k11999", "value"), Pair("z", "2")));
  ASSERT_EQ(apply(target, {{Mutation::Kind::erase_range, 1, "k", ""}}), Applied::durable);
  EXPECT_THAT(contents(*environment), ElementsAre(Pair("a", "1")));
  ASSERT_EQ(apply(target, {{Mutation::Kind::erase_range, 1, "", "a"}}), Applied::durable);
  EXPECT_THAT(contents(*environment), ElementsAre(Pair("a", "1")));
  ASSERT_EQ(apply(target, {{Mutation::Kind::erase_range, 1, "", ""}}), Applied::durable);
  EXPECT_TRUE(contents(*environment).empty());
}

TEST(LmdbTarget, AFullMapRefusesTheGroupAndServesOn) {
  TemporaryDirectory root;
  auto environment = make(root.path());
  LmdbTarget target(*environment);
  ASSERT_EQ(apply(target, {put("kept", "1")}), Applied::durable);
  EXPECT_EQ(apply(target, {put("a", "small"), put("large", std::string(kMapBytes, 'x'))}),
            Applied::refused);
  EXPECT_EQ(target.last_group(), 1u);
  EXPECT_THAT(contents(*environment), ElementsAre(Pair("kept", "1")));
  int stored = 0;
  while (apply(target, {put(std::to_string(stored), std::string(1000, 'x'))}) == Applied::durable) {
    ++stored;
  }
  EXPECT_GT(stored, 100);
  EXPECT_EQ(contents(*environment).size(), static_cast<std::size_t>(stored) + 1);
}

// The reason for allocating ahead: a full disk is none to a log that has its blocks.
TEST(LmdbTarget, AFullDiskHarmsNobodyWhoseMapIsAllocated) {
  SmallDisk disk;
  auto environment = make(disk.path() / "log");
  LmdbTarget target(*environment);
  if (disk.mounted()) {
    EXPECT_GT(disk.fill(), 0u);
  }
  int stored = 0;
  while (apply(target, {put(std::to_string(stored), std::string(1000, 'x'))}) == Applied::durable) {
    ++stored;
  }
  EXPECT_GT(static_cast<double>(stored) * 1000, 0.5 * kMapBytes);
  EXPECT_GT(environment->used_fraction(), 0.8);
}

TEST(LmdbTarget, ADiskWithoutRoomRefusesAndServesAgainWhenThereIsRoom) {
  SmallDisk disk;
  auto environment = make(disk.path() / "log");
  LmdbTarget target(*environment);
  ASSERT_EQ(apply(target, {put("kept", "1")}), Applied::durable);
  std::optional<FileSizeLimit> limit;
  if (disk.mounted()) {
    give_blocks_back(disk.path() / "log");
    EXPECT_GT(disk.fill(), 0u);
  } else {
    limit.emplace(fs::file_size(disk.path() / "log" / "data.mdb"));
  }
  const std::vector<Mutation> large{put("large", std::string(100'000, 'x'))};
  // FACTS of LMDB: EIO the first time, ENOSPC or EFBIG later; both must be understood.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(apply(target, large), Applied::refused);
  EXPECT_EQ(target.last_group(), 1u);
  EXPECT_THAT(contents(*environment), ElementsAre(Pair("kept", "1")));
  if (disk.mounted()) disk.free_again();
  limit.reset();
  EXPECT_EQ(apply(target, large), Applied::durable);
  EXPECT_EQ(contents(*environment).size(), 2u);
  environment.reset();
  EXPECT_TRUE(lmdb::Environment::open(disk.path() / "log", {0, {"meta", "data"}}).has_value());
}

TEST(LmdbTarget, AFileSizeLimitRefusesAndServesAgainWhenItIsLifted) {
  TemporaryDirectory root;
  auto environment = make(root.path());
  LmdbTarget target(*environment);
  ASSERT_EQ(apply(target, {put("kept", "1")}), Applied::durable);
  int refused = 0;
  {
    FileSizeLimit limit(100'000);
    for (int i = 0; i < 100; ++i) {
      const auto done = apply(target, {put(std::to_string(i), std::string(3000, 'x'))});
      refused += done == Applied::refused;
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_EQ(target.last_group(), 101u - static_cast<unsigned>(refused));
  EXPECT_EQ(contents(*environment).size(), 101u - static_cast<unsigned>(refused));
  EXPECT_EQ(apply(target, {put("a", std::string(100'000, 'x'))}), Applied::durable);
}

TEST(LmdbTarget, ErrorsThatNameTheLackOfRoomRefuse) {
  for (const int code : {ENOSPC, EDQUOT, EFBIG}) {
    TemporaryDirectory root;
    auto environment = make(root.path());
    LmdbTarget target(*environment);
    ASSERT_EQ(apply(target, {put("kept", "1")}), Applied::durable);
    test::fail_data_write = code;
    EXPECT_EQ(apply(target, {put("a", "1")}), Applied::refused);
    EXPECT_EQ(apply(target, {}), Applied::refused);
    test::fail_data_write = 0;
    EXPECT_THAT(contents(*environment), ElementsAre(Pair("kept", "1")));
    EXPECT_EQ(apply(target, {put("a", "1")}), Applied::durable);
  }
}

// The child of a death test is this program anew, so that the environment is opened in it alone.
// The directory is the parent's, who outlives it.
class LmdbTargetDeath : public ::testing::Test {
 protected:
  LmdbTargetDeath() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (const char* parents = std::getenv(kVariable)) {
      directory_ = parents;
      return;
    }
    root_.emplace();
    directory_ = root_->path() / "log";
    ::setenv(kVariable, directory_.c_str(), 1);
  }
  ~LmdbTargetDeath() override {
    if (root_) ::unsetenv(kVariable);
  }

  void apply_with(std::atomic<int>& failing, int code) {
    auto environment = make(directory_);
    LmdbTarget target(*environment);
    if (apply(target, {put("kept", "1")}) != Applied::durable) ::_exit(1);
    failing = code;
    const auto done = apply(target, {put("a", "1")});
    ::_exit(done == Applied::durable ? 2 : 3);
  }

  static constexpr const char* kVariable = "TWOFOLD_DEATH_TEST_DIRECTORY";
  std::optional<TemporaryDirectory> root_;
  fs::path directory_;
};

TEST_F(LmdbTargetDeath, AFailedSyncEndsTheProcess) {
  EXPECT_EXIT(apply_with(test::fail_sync, EIO), ::testing::ExitedWithCode(kFatalStatus),
              "fatal: cannot commit a group: Input/output error.*recovers from what is durable");
}

TEST_F(LmdbTargetDeath, AFailedDataWriteEndsTheProcess) {
  EXPECT_EXIT(apply_with(test::fail_data_write, EIO), ::testing::ExitedWithCode(kFatalStatus),
              "fatal: cannot commit a group");
}

TEST_F(LmdbTargetDeath, AFailedMetaWriteEndsTheProcess) {
  EXPECT_EXIT(apply_with(test::fail_meta_write, EIO), ::testing::ExitedWithCode(kFatalStatus),
              "fatal: cannot commit a group");
}

// After a failed write of the meta page LMDB gives MDB_PANIC: what the file holds is not known.
TEST_F(LmdbTargetDeath, AMetaPageWithoutRoomEndsTheProcess) {
  EXPECT_EXIT(apply_with(test::fail_meta_write, ENOSPC), ::testing::ExitedWithCode(kFatalStatus),
              "fatal: ");
}

// Nothing is acknowledged after the failure: the queue goes with the process.
TEST_F(LmdbTargetDeath, NothingIsAcknowledgedAfterAFailedSync) {
  auto run = [&] {
    auto environment = make(directory_);
    LmdbTarget target(*environment);
    GroupCommit commit(target, {}, [](const GroupResult& result) {
      for (auto ticket : result.durable)
        std::fprintf(stderr, "durable %d\n", static_cast<int>(ticket));
      test::fail_sync = EIO;  // from the second group on
    });
    commit.submit(Write{1, {put("a", "1")}});
    commit.drain();
    commit.submit(Write{2, {put("b", "1")}});
    commit.drain();
    std::fprintf(stderr, "drained\n");
    ::_exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(kFatalStatus), "^durable 1\nfatal: [^\n]*\n$");
}

// The whole of rule 23 over a real lack of room.
TEST(GroupCommitOnLmdb, RefusesWhileFullAndWritesTheRestWhenThereIsRoom) {
  TemporaryDirectory root;
  auto environment = make(root.path());
  LmdbTarget target(*environment);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> durable, refused;
  bool full = false;
  GroupCommitOptions options;
  options.full_retry = std::chrono::milliseconds(1);
  GroupCommit commit(target, options, [&](const GroupResult& result) {
    std::lock_guard lock(mutex);
    durable.insert(durable.end(), result.durable.begin(), result.durable.end());
    refused.insert(refused.end(), result.refused.begin(), result.refused.end());
    full = result.full;
    changed.notify_all();
  });
  std::optional<FileSizeLimit> limit(std::in_place, fs::file_size(root.path() / "data.mdb"));
  const std::string large(50'000, 'x');
  commit.submit({Write{1, {put("refusable", large)}, Urgency::now, true},
                 Write{2, {put("must", large)}, Urgency::now, false},
                 Write{3, {put("must", "later")}, Urgency::lazy, false}});
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return full && !refused.empty(); });
    EXPECT_TRUE(durable.empty());
  }
  limit.reset();
  EXPECT_TRUE(commit.drain());
  std::lock_guard lock(mutex);
  EXPECT_FALSE(full);
  EXPECT_THAT(refused, ElementsAre(1));
  EXPECT_THAT(durable, ElementsAre(2, 3));
  EXPECT_THAT(contents(*environment), ElementsAre(Pair("must", "later")));
}

}  // namespace
}  // namespace twofold
