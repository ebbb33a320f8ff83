#include "tests/log/failing_disk.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

using twofold::test::fail_data_write;
using twofold::test::fail_meta_write;
using twofold::test::fail_sync;

namespace {

constexpr off_t kMetaBytes = 2 * 4096;

bool fails(const std::atomic<int>& switch_, int descriptor) {
  if (switch_ == 0 || descriptor <= 2) return false;
  errno = switch_;
  return true;
}

}  // namespace

extern "C" {

int fdatasync(int descriptor) {
  if (fails(fail_sync, descriptor)) return -1;
  return static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t at) {
  if (fails(at < kMetaBytes ? fail_meta_write : fail_data_write, descriptor)) return -1;
  return ::syscall(SYS_pwrite64, descriptor, bytes, size, at);
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off_t at) {
  return pwrite(descriptor, bytes, size, at);
}

ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  if (fails(fail_data_write, descriptor)) return -1;
  return ::syscall(SYS_writev, descriptor, parts, count);
}

}  // extern "C"
