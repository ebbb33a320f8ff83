// A file system of one MiB: a tmpfs mount where the test may mount (root), otherwise a file size
// limit, which LMDB sees as the same lack of room.
#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/log/temporary_directory.h"

namespace twofold::test {

// While it lives, no file of this process grows beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    struct rlimit limit {
      bytes, before_.rlim_max
    };
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  struct rlimit before_ {};
};

class SmallDisk {
 public:
  SmallDisk() : mounted_(::mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, "size=1m") == 0) {}
  ~SmallDisk() {
    if (mounted_) ::umount2(directory_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return directory_.path(); }

  // Takes every free block. Returns the bytes taken.
  std::uint64_t fill() {
    const int filler = ::open((path() / "filler").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const std::vector<char> block(4096, 'x');
    std::uint64_t taken = 0;
    for (ssize_t got = 0; (got = ::write(filler, block.data(), block.size())) > 0;) {
      taken += static_cast<std::uint64_t>(got);
    }
    ::close(filler);
    return taken;
  }
  void free_again() { std::filesystem::remove(path() / "filler"); }

 private:
  TemporaryDirectory directory_;
  bool mounted_;
};

}  // namespace twofold::test
