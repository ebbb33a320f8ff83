#include "log/page_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <thread>

#include "log/group_commit.h"
#include "log/lmdb.h"
#include "tests/log/temporary_directory.h"

namespace twofold::lmdb {
namespace {

using test::TemporaryDirectory;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::uint64_t kMapBytes = 4u << 20;
constexpr std::size_t kPageBytes = 4096;
const EnvironmentOptions kOptions{kMapBytes, {"meta", "data"}};

std::unique_ptr<Environment> must(Result<std::unique_ptr<Environment>> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

Result<void> check(const Environment& environment) {
  Reader reader(environment);
  return check_pages(reader.native(), "data.mdb");
}

// Values from nothing to several overflow pages, keys to 500 bytes, a third of them erased again.
std::vector<Mutation> random_mutations(std::mt19937& random, std::size_t count) {
  std::vector<Mutation> mutations;
  for (std::size_t i = 0; i < count; ++i) {
    auto key = std::to_string(random() % 2000);
    key.resize(key.size() + random() % 100 * (random() % 5 == 0 ? 5 : 0), 'k');
    const bool large = random() % 20 == 0;
    const bool erase = random() % 3 == 0;
    mutations.push_back({erase ? Mutation::Kind::erase : Mutation::Kind::put, 1, std::move(key),
                         std::string(random() % (large ? 9000 : 60), 'v')});
  }
  return mutations;
}

void fill(Environment& environment, unsigned seed, int groups) {
  std::mt19937 random(seed);
  LmdbTarget target(environment);
  for (int group = 0; group < groups; ++group) {
    const Write write{0, random_mutations(random, 1 + random() % 300)};
    const Write* const writes[] = {&write};
    ASSERT_EQ(target.apply(target.last_group() + 1, writes), GroupTarget::Applied::durable);
  }
}

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_bytes(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A directory with `bytes` as its data, opened and read from end to end. True: it opened.
bool open_and_read(const fs::path& directory, const std::string& bytes) {
  write_bytes(directory / "data.mdb", bytes);
  auto environment = Environment::open(directory, kOptions);
  if (!environment) {
    EXPECT_THAT(environment.error().fault, ::testing::AnyOf(Fault::damaged, Fault::unsupported))
        << environment.error().message;
    return false;
  }
  std::size_t total = 0;
  Reader reader(**environment);
  for (std::size_t table : {0, 1}) {
    reader.scan((*environment)->table(table), {}, [&](auto key, auto value) {
      total += key.size() + static_cast<std::size_t>(std::count(value.begin(), value.end(), 'v'));
      return true;
    });
  }
  EXPECT_GT(total, 0u);
  return true;
}

TEST(PageCheck, AcceptsWhateverLmdbWrites) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    TemporaryDirectory root;
    auto environment = must(Environment::create(root.path(), kOptions));
    EXPECT_TRUE(check(*environment).has_value());
    for (int round = 0; round < 10; ++round) {
      fill(*environment, seed * 100 + static_cast<unsigned>(round), 4);
      const auto checked = check(*environment);
      ASSERT_TRUE(checked.has_value()) << checked.error().message;
    }
  }
}

TEST(PageCheck, AcceptsASnapshotBesideARunningWriter) {
  TemporaryDirectory root;
  auto environment = must(Environment::create(root.path(), kOptions));
  fill(*environment, 1, 5);
  std::thread writer([&] { fill(*environment, 2, 40); });
  for (int i = 0; i < 20; ++i) {
    const auto checked = check(*environment);
    EXPECT_TRUE(checked.has_value()) << checked.error().message;
  }
  writer.join();
}

TEST(PageCheck, ATruncatedFileIsDamagedWhereverItEnds) {
  TemporaryDirectory root;
  {
    auto environment = must(Environment::create(root.path(), kOptions));
    fill(*environment, 3, 10);
  }
  const auto whole = bytes_of(root.path() / "data.mdb");
  ASSERT_GT(whole.size(), 50 * kPageBytes);
  ASSERT_TRUE(open_and_read(root.path(), whole));
  int refused = 0, opened = 0;
  for (std::size_t size = 0; size < whole.size(); size += 7 * kPageBytes + 700) {
    (open_and_read(root.path(), whole.substr(0, size)) ? opened : refused)++;
  }
  // The last pages of the file may be free ones, which nobody misses.
  EXPECT_GT(refused, 10);
  EXPECT_LT(opened, 5);
}

TEST(PageCheck, GarbageIsAnErrorAndNeverASignal) {
  TemporaryDirectory root;
  {
    auto environment = must(Environment::create(root.path(), kOptions));
    fill(*environment, 4, 10);
  }
  const auto whole = bytes_of(root.path() / "data.mdb");
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 90; ++round) {
    auto bytes = whole;
    const auto at = random() % bytes.size();
    const std::size_t length = round % 3 == 0 ? 1 : round % 3 == 1 ? 16 : kPageBytes;
    for (std::size_t i = at; i < std::min(at + length, bytes.size()); ++i) {
      bytes[i] = static_cast<char>(random());
    }
    refused += !open_and_read(root.path(), bytes);
  }
  EXPECT_GT(refused, 10);
}

TEST(PageCheck, GarbageInEveryHeaderIsAnErrorAndNeverASignal) {
  TemporaryDirectory root;
  {
    auto environment = must(Environment::create(root.path(), kOptions));
    fill(*environment, 6, 10);
  }
  const auto whole = bytes_of(root.path() / "data.mdb");
  std::mt19937 random(7);
  int refused = 0;
  for (std::size_t page = 0; page < whole.size();
       page += page < 8 * kPageBytes ? kPageBytes : 5 * kPageBytes) {
    auto bytes = whole;
    for (int i = 0; i < 3; ++i) bytes[page + random() % 24] = static_cast<char>(random());
    refused += !open_and_read(root.path(), bytes);
  }
  EXPECT_GT(refused, 10);
}

TEST(PageCheck, SomethingElseIsNoEnvironment) {
  TemporaryDirectory root;
  {
    auto environment = must(Environment::create(root.path(), kOptions));
    fill(*environment, 8, 1);
  }
  write_bytes(root.path() / "data.mdb", std::string(100'000, 'x'));
  auto result = Environment::open(root.path(), kOptions);
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().fault, Fault::damaged);
  EXPECT_THAT(result.error().message, HasSubstr("data.mdb is damaged: "));
  EXPECT_THAT(result.error().message, HasSubstr("restore"));
  write_bytes(root.path() / "data.mdb", "");
  result = Environment::open(root.path(), kOptions);
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().fault, Fault::damaged);
  fs::remove(root.path() / "data.mdb");
  result = Environment::open(root.path(), kOptions);
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().fault, Fault::damaged);
}

TEST(PageCheck, AnotherFormatOfLmdbIsUnsupported) {
  TemporaryDirectory root;
  must(Environment::create(root.path(), kOptions)).reset();
  auto bytes = bytes_of(root.path() / "data.mdb");
  bytes[20] = 2;  // mm_version of meta page 0
  write_bytes(root.path() / "data.mdb", bytes);
  const auto result = Environment::open(root.path(), kOptions);
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().fault, Fault::unsupported);
}

}  // namespace
}  // namespace twofold::lmdb
