// The nodes' records of the files kind on a disk whose syncs fail for want of room: what failed is
// tried again, and the record before it stays the newest durable one until that has succeeded.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "protocol/text.h"
#include "resource_manager/adapters/files_nodes.h"
#include "tests/log/temporary_directory.h"

namespace {
enum class Failing { none, files, folders } failing = Failing::none;
int synced_files = 0, synced_folders = 0;
}  // namespace

// This program's own definition takes precedence over libc's.
extern "C" int fsync(int descriptor) {
  struct stat status {};
  ::fstat(descriptor, &status);
  const bool folder = S_ISDIR(status.st_mode);
  if (failing == (folder ? Failing::folders : Failing::files)) {
    errno = ENOSPC;
    return -1;
  }
  ++(folder ? synced_folders : synced_files);
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace twofold::resource_manager::files {
namespace {

namespace fs = std::filesystem;

class FilesSyncTest : public ::testing::Test {
 protected:
  void SetUp() override {
    failing = Failing::none;
    nodes_.recover();
  }
  static NodeRecord record(std::uint64_t epoch, std::size_t former = 0) {
    NodeRecord made{"main", LogId{0xa1}, epoch, 77, {epoch, 1}, {}};
    for (std::uint64_t log = 1; log <= former; ++log) made.former.push_back({LogId{~log}, {1, 1}});
    return made;
  }
  std::string slots() const {
    std::ifstream in(directory_.path() / base64url_encode("main"), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Of those of a file with two.
  static bool same_slot(const std::string& one, const std::string& other, std::size_t number) {
    const std::size_t bytes = one.size() / 2;
    return one.compare(number * bytes, bytes, other, number * bytes, bytes) == 0;
  }

  test::TemporaryDirectory directory_;
  Nodes nodes_{directory_.path()};
};

// As a machine that loses power would find it: only what was synced counts.
TEST_F(FilesSyncTest, AnAttemptThatFailedIsWrittenOverAndNotTheRecordBefore) {
  for (std::uint64_t epoch = 3; epoch < 7; ++epoch) {
    ASSERT_TRUE(nodes_.record(record(epoch)));
    const std::string durable = slots();
    failing = Failing::files;
    for (int attempt = 0; attempt < 3; ++attempt) {
      EXPECT_FALSE(nodes_.record(record(epoch + 1)));
      EXPECT_TRUE(same_slot(slots(), durable, (epoch - 2) % 2)) << epoch << " " << attempt;
    }
    failing = Failing::none;
  }
  Nodes later{directory_.path()};
  EXPECT_EQ(later.recover(), std::vector{record(7)});  // written, and synced now
  ASSERT_TRUE(later.record(record(8)));
  EXPECT_EQ(Nodes{directory_.path()}.recover(), std::vector{record(8)});
}

TEST_F(FilesSyncTest, ANameIsDurableBeforeItsRecordIsTold) {
  for (const std::size_t former : {std::size_t{0}, std::size_t{400}}) {
    failing = Failing::folders;
    EXPECT_FALSE(nodes_.record(record(3, former)));
    const std::string named = slots();
    EXPECT_FALSE(nodes_.record(record(3, former)));
    EXPECT_EQ(slots(), named);  // no other file may be there after a crash
    failing = Failing::none;
    synced_folders = 0;
    EXPECT_TRUE(nodes_.record(record(3, former)));
    EXPECT_GT(synced_folders, 0);
    EXPECT_EQ(Nodes{directory_.path()}.recover(), std::vector{record(3, former)});
  }
}

// What the process before it wrote may be in memory only, and this one goes on from there.
TEST_F(FilesSyncTest, WhatIsFoundIsMadeDurable) {
  ASSERT_TRUE(nodes_.record(record(3)));
  synced_files = synced_folders = 0;
  Nodes later{directory_.path()};
  later.recover();
  EXPECT_GT(synced_files, 0);
  EXPECT_GT(synced_folders, 0);
}

}  // namespace
}  // namespace twofold::resource_manager::files
