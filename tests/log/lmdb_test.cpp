#include "log/lmdb.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "log/group_commit.h"
#include "tests/log/small_disk.h"
#include "tests/log/temporary_directory.h"

namespace twofold::lmdb {
namespace {

using test::FileSizeLimit;
using test::SmallDisk;
using test::TemporaryDirectory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::uint64_t kMapBytes = 1u << 20;
const EnvironmentOptions kOptions{kMapBytes, {"first", "second"}};

std::unique_ptr<Environment> must(Result<std::unique_ptr<Environment>> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

Fault fault_of(const Result<std::unique_ptr<Environment>>& result) {
  EXPECT_TRUE(result.has_error());
  return result ? Fault{-1} : result.error().fault;
}

void put(Environment& environment, std::uint32_t table, std::string key, std::string value) {
  const Write write{0, {{Mutation::Kind::put, table, std::move(key), std::move(value)}}};
  const Write* const writes[] = {&write};
  LmdbTarget target(environment);
  ASSERT_EQ(target.apply(target.last_group() + 1, writes), GroupTarget::Applied::durable);
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(Environment, KeepsDataAndMapSizeAcrossOpens) {
  TemporaryDirectory root;
  const auto directory = root.path() / "a" / "log";
  put(*must(Environment::create(directory, kOptions)), 1, "key", "value");
  EXPECT_EQ(text_of(directory / "map_bytes"), "1048576\n");
  auto environment = must(Environment::open(directory, {0, kOptions.tables}));
  EXPECT_EQ(environment->map_bytes(), kMapBytes);
  EXPECT_EQ(Reader(*environment).get(environment->table(1), "key"), "value");
  EXPECT_EQ(Reader(*environment).get(environment->table(0), "key"), std::nullopt);
}

TEST(Environment, AllocatesTheWholeMapAndKeepsTheFileSmall) {
  TemporaryDirectory root;
  const auto environment = must(Environment::create(root.path(), kOptions));
  struct stat status {};
  ASSERT_EQ(::stat((root.path() / "data.mdb").c_str(), &status), 0);
  EXPECT_GE(static_cast<std::uint64_t>(status.st_blocks) * 512, kMapBytes);
  EXPECT_LT(static_cast<std::uint64_t>(status.st_size), kMapBytes);
}

TEST(Environment, CreateRefusesWhatHoldsDataAndChangesNothing) {
  TemporaryDirectory root;
  put(*must(Environment::create(root.path(), kOptions)), 0, "key", "value");
  EXPECT_EQ(fault_of(Environment::create(root.path(), kOptions)), Fault::exists);
  fs::remove(root.path() / "map_bytes");  // still data
  EXPECT_EQ(fault_of(Environment::create(root.path(), kOptions)), Fault::exists);
  auto environment = must(Environment::open(root.path(), kOptions));
  EXPECT_EQ(environment->map_bytes(), kMapBytes);  // from the meta page
  EXPECT_EQ(Reader(*environment).get(environment->table(0), "key"), "value");
}

TEST(Environment, CreateWithoutRoomLeavesNothingBehind) {
  TemporaryDirectory root;
  {
    SmallDisk disk;
    // Without a mount the limit makes the same failure, in the writing of the first pages.
    std::optional<FileSizeLimit> limit;
    if (!disk.mounted()) limit.emplace(4096);
    const auto result = Environment::create(disk.path() / "new" / "log", {8u << 20, {"first"}});
    EXPECT_EQ(fault_of(result), Fault::full);
    EXPECT_TRUE(fs::is_empty(disk.path()));
  }
  FileSizeLimit limit(4096);
  fs::create_directory(root.path() / "present");
  EXPECT_EQ(fault_of(Environment::create(root.path() / "present", kOptions)), Fault::full);
  EXPECT_TRUE(fs::is_empty(root.path() / "present"));
}

TEST(Environment, RefusesATinyMap) {
  TemporaryDirectory root;
  EXPECT_EQ(fault_of(Environment::create(root.path() / "log", {1000, {}})), Fault::invalid);
  EXPECT_FALSE(fs::exists(root.path() / "log"));
}

TEST(Environment, OpenNeedsData) {
  TemporaryDirectory root;
  EXPECT_EQ(fault_of(Environment::open(root.path(), kOptions)), Fault::not_found);
  EXPECT_EQ(fault_of(Environment::open(root.path() / "none", kOptions)), Fault::not_found);
  EXPECT_EQ(fault_of(Environment::open_read_only(root.path(), kOptions)), Fault::not_found);
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(Environment, WhatAnInterruptedCreationLeftCountsAsAbsent) {
  TemporaryDirectory root;
  must(Environment::create(root.path(), kOptions)).reset();
  fs::remove(root.path() / "map_bytes");  // as if it had been killed before the last step
  EXPECT_EQ(fault_of(Environment::open(root.path(), kOptions)), Fault::not_found);
  put(*must(Environment::create(root.path(), kOptions)), 0, "key", "value");

  TemporaryDirectory other;
  std::ofstream(other.path() / "data.mdb").flush();
  put(*must(Environment::create(other.path(), kOptions)), 0, "key", "value");
}

TEST(Environment, IsBusyInAnotherProcessAndSaysWhichOne) {
  TemporaryDirectory root;
  must(Environment::create(root.path(), kOptions)).reset();
  int ready[2], stop[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(stop), 0);
  const auto child = ::fork();
  if (child == 0) {
    ::close(stop[1]);
    auto held = Environment::open(root.path(), kOptions);
    char byte = held ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    const auto got = ::read(stop[0], &byte, 1);  // until the parent closes its end
    ::_exit(got == 0 ? 0 : 1);
  }
  ::close(stop[0]);
  char byte = 'n';
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  const auto result = Environment::open(root.path(), kOptions);
  EXPECT_EQ(fault_of(result), Fault::busy);
  EXPECT_THAT(result.error().message, HasSubstr("process " + std::to_string(child)));
  EXPECT_TRUE(Environment::open_read_only(root.path(), kOptions).has_value());
  ::close(stop[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(Environment::open(root.path(), kOptions).has_value());
}

TEST(Environment, IsOpenOnceInAProcess) {
  TemporaryDirectory root;
  auto environment = must(Environment::create(root.path(), kOptions));
  EXPECT_EQ(fault_of(Environment::open(root.path(), kOptions)), Fault::busy);
  EXPECT_EQ(fault_of(Environment::open_read_only(root.path(), kOptions)), Fault::busy);
  put(*environment, 0, "key", "value");  // and is unharmed
  environment.reset();
  EXPECT_TRUE(Environment::open_read_only(root.path(), kOptions).has_value());
}

TEST(Environment, LockIsNotInheritedByExec) {
  TemporaryDirectory root;
  auto environment = must(Environment::create(root.path(), kOptions));
  // A child that outlives us must not keep the next process out.
  int hold[2];
  ASSERT_EQ(::pipe2(hold, O_CLOEXEC), 0);
  const auto child = ::fork();
  if (child == 0) {
    ::dup2(hold[0], 0);  // reads until our end is closed
    ::execl("/bin/cat", "cat", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  // The child has exec'ed when its copy of this close-on-exec descriptor's lock is gone; flock then
  // succeeds on a second description as soon as ours is closed.
  environment.reset();
  const auto lock = ::open((root.path() / "owner.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(lock, 0);
  EXPECT_EQ(::flock(lock, LOCK_EX), 0);  // waits for the exec
  ::close(lock);
  EXPECT_TRUE(Environment::open(root.path(), kOptions).has_value());
  ::close(hold[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Environment, ReadOnlyRefusesMissingTables) {
  TemporaryDirectory root;
  must(Environment::create(root.path(), {kMapBytes, {"other"}})).reset();
  const auto result = Environment::open_read_only(root.path(), kOptions);
  EXPECT_EQ(fault_of(result), Fault::damaged);
  EXPECT_THAT(result.error().message, HasSubstr("\"first\""));
}

TEST(Environment, AWrongMapSizeFileSaysWhatToWrite) {
  TemporaryDirectory root;
  put(*must(Environment::create(root.path(), kOptions)), 0, "key", "value");
  std::ofstream(root.path() / "map_bytes") << "many\n";
  const auto result = Environment::open(root.path(), kOptions);
  EXPECT_EQ(fault_of(result), Fault::damaged);
  EXPECT_THAT(result.error().message, HasSubstr("write 1048576 into it"));
  std::ofstream(root.path() / "map_bytes") << "2097152\n";
  auto enlarged = must(Environment::open(root.path(), kOptions));
  EXPECT_EQ(enlarged->map_bytes(), 2 * kMapBytes);
  struct stat status {};
  ASSERT_EQ(::stat((root.path() / "data.mdb").c_str(), &status), 0);
  EXPECT_GE(static_cast<std::uint64_t>(status.st_blocks) * 512, 2 * kMapBytes);
}

TEST(Environment, UsedFractionFollowsTheData) {
  TemporaryDirectory root;
  auto environment = must(Environment::create(root.path(), kOptions));
  const auto empty = environment->used_fraction();
  EXPECT_LT(empty, 0.05);
  put(*environment, 1, "key", std::string(512 << 10, 'x'));
  EXPECT_GT(environment->used_fraction(), 0.5);
  const Write write{0, {{Mutation::Kind::erase, 1, "key", {}}}};
  const Write* const writes[] = {&write};
  LmdbTarget target(*environment);
  ASSERT_EQ(target.apply(target.last_group() + 1, writes), GroupTarget::Applied::durable);
  EXPECT_LT(environment->used_fraction(), 0.05);
}

TEST(Reader, SeesOneSnapshotUntilRenewed) {
  TemporaryDirectory root;
  auto environment = must(Environment::create(root.path(), kOptions));
  put(*environment, 0, "a", "1");
  Reader reader(*environment);
  put(*environment, 0, "a", "2");
  EXPECT_EQ(reader.get(environment->table(0), "a"), "1");
  reader.reset();
  reader.renew();
  EXPECT_EQ(reader.get(environment->table(0), "a"), "2");
}

TEST(Reader, ScansInOrderFromAKeyUntilToldToStop) {
  TemporaryDirectory root;
  auto environment = must(Environment::create(root.path(), kOptions));
  for (const char* key : {"b", "a", "d", "c"}) put(*environment, 1, key, std::string(key) + "!");
  Reader reader(*environment);
  EXPECT_EQ(reader.count(environment->table(1)), 4u);
  std::vector<std::string> seen;
  auto visit = [&](std::string_view key, std::string_view value) {
    seen.push_back(std::string(key) + "=" + std::string(value));
    return seen.size() < 2;
  };
  reader.scan(environment->table(1), {}, visit);
  EXPECT_THAT(seen, ElementsAre("a=a!", "b=b!"));
  seen.clear();
  reader.scan(environment->table(1), "bb", visit);
  EXPECT_THAT(seen, ElementsAre("c=c!", "d=d!"));
  seen.clear();
  reader.scan(environment->table(1), "e", visit);
  EXPECT_TRUE(seen.empty());
}

TEST(Reader, MayBeMadeAndEndedOnDifferentThreads) {
  TemporaryDirectory root;
  auto environment = must(Environment::create(root.path(), kOptions));
  put(*environment, 0, "a", "1");
  std::unique_ptr<Reader> one, two;
  std::thread([&] {
    one = std::make_unique<Reader>(*environment);
    two = std::make_unique<Reader>(*environment);
  }).join();
  EXPECT_EQ(one->get(environment->table(0), "a"), "1");
  EXPECT_EQ(two->get(environment->table(0), "a"), "1");
}

}  // namespace
}  // namespace twofold::lmdb
