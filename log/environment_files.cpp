#include "log/environment_files.h"

#include <fcntl.h>
#include <lmdb.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <utility>

#include "log/lmdb_layout.h"

namespace twofold::lmdb {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMagic = 0xBEEFC0DE;  // LMDB's on-disk format, version 1, since 2011
constexpr std::uint32_t kDataVersion = 1;
constexpr std::uint16_t kMetaFlag = 0x08;
constexpr std::size_t kMetaBytes = 136;
constexpr std::uint64_t kReaderTableBytes = 8192;  // LMDB's default of 126 readers

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

Error io_error(const std::string& what, int code) {
  const bool no_room = code == ENOSPC || code == EDQUOT || code == EFBIG;
  return {no_room ? Fault::full : Fault::io,
          what + ": " + words(code) + (no_room ? "; make room on that file system" : "")};
}

std::string read_small_file(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::uint64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Error damaged(const std::string& file, const std::string& what) {
  return {Fault::damaged, file + " is damaged: " + what +
                              "; restore it from a copy, do not delete it: it may be the only "
                              "record of transactions that are not finished"};
}

Result<MetaPage> parse_meta(const char* page, const std::string& file) {
  if (!(load<std::uint16_t>(page + 10) & kMetaFlag)) return damaged(file, "it has no meta page");
  const char* meta = page + kPageHeaderBytes;
  if (load<std::uint32_t>(meta) != kMagic) return damaged(file, "it is not an LMDB file");
  if (auto version = load<std::uint32_t>(meta + 4); version != kDataVersion) {
    return Error{Fault::unsupported, file + " has LMDB's format " + std::to_string(version) +
                                         ", this program knows format 1 only: use the Twofold "
                                         "that wrote it"};
  }
  MetaPage result;
  result.map_bytes = load<std::uint64_t>(meta + 16);
  result.page_bytes = load<std::uint32_t>(meta + 24);
  result.free_root = load<std::uint64_t>(meta + 24 + 40);
  result.main_root = load<std::uint64_t>(meta + 72 + 40);
  result.last_page = load<std::uint64_t>(meta + 120);
  result.transaction = load<std::uint64_t>(meta + 128);
  const auto bytes = result.page_bytes;
  if (bytes < 512 || bytes > 65536 || (bytes & (bytes - 1)) != 0) {
    return damaged(file, "its page size is " + std::to_string(bytes));
  }
  return result;
}

// Writes zeros where fallocate is not supported. Past the two meta pages nothing is stored yet.
Result<void> allocate_by_writing(int descriptor, const std::string& file, std::uint64_t bytes) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return io_error("cannot examine " + file, errno);
  const std::vector<char> zeros(1u << 20);
  for (auto at = static_cast<std::uint64_t>(status.st_size); at < bytes;) {
    const auto size = std::min<std::uint64_t>(zeros.size(), bytes - at);
    const auto written = ::pwrite(descriptor, zeros.data(), size, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return io_error("cannot allocate " + file, written < 0 ? errno : ENOSPC);
    at += static_cast<std::uint64_t>(written);
  }
  return {};
}

std::string holder_text(const fs::path& file) {
  const auto pid = parse_number(read_small_file(file));
  return pid ? "process " + std::to_string(*pid) : std::string("another process");
}

}  // namespace

std::string words(int code) {
  return mdb_strerror(code);
}

Presence presence(const fs::path& directory) {
  std::error_code ignored;
  const auto file = directory / "data.mdb";
  if (fs::exists(directory / "map_bytes", ignored)) return Presence::complete;
  if (!fs::exists(file, ignored)) return Presence::absent;
  // A copy of data.mdb alone, or what an interrupted creation left? That has at most one
  // transaction in it, the one that made the tables.
  Descriptor data(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (data.get() < 0) return Presence::complete;
  if (fs::file_size(file, ignored) == 0) return Presence::unfinished;
  const auto pages = read_meta_pages(data.get(), file.string());
  const bool empty = pages && pages->at(0).transaction <= 1 && pages->at(1).transaction <= 1;
  return empty ? Presence::unfinished : Presence::complete;
}

Result<int> take_owner_lock(const fs::path& directory) {
  const auto file = directory / "owner.lock";
  for (;;) {
    Descriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640));
    if (lock.get() < 0) return io_error("cannot open " + file.string(), errno);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return io_error("cannot lock " + file.string(), errno);
      return Error{Fault::busy, directory.string() + " is in use by " + holder_text(file) +
                                    ": stop it first, or give another directory"};
    }
    // A creation that failed may have removed the file between the two calls.
    struct stat held {
    }, named{};
    if (::fstat(lock.get(), &held) != 0 || ::stat(file.c_str(), &named) != 0 ||
        held.st_ino != named.st_ino) {
      continue;
    }
    const auto pid = std::to_string(::getpid()) + "\n";
    // For people only: a disk too full for it is no reason to refuse.
    if (::ftruncate(lock.get(), 0) == 0) {
      [[maybe_unused]] auto ignored = ::pwrite(lock.get(), pid.data(), pid.size(), 0);
    }
    return lock.release();
  }
}

Result<std::vector<MetaPage>> read_meta_pages(int descriptor, const std::string& file) {
  std::vector<MetaPage> pages;
  std::array<char, kPageHeaderBytes + kMetaBytes> bytes{};
  for (std::uint64_t at = 0; pages.size() < 2; at += pages.back().page_bytes) {
    const auto got = ::pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (got < 0) return io_error("cannot read " + file, errno);
    if (static_cast<std::size_t>(got) < bytes.size()) return damaged(file, "it is cut off");
    auto page = parse_meta(bytes.data(), file);
    if (!page) return page.error();
    pages.push_back(*page);
  }
  return pages;
}

Result<MetaPage> check_meta_pages(const fs::path& directory) {
  const auto file = directory / "data.mdb";
  Descriptor data(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (data.get() < 0) {
    if (errno == ENOENT) return damaged(file.string(), "it is missing");
    return io_error("cannot open " + file.string(), errno);
  }
  auto pages = read_meta_pages(data.get(), file.string());
  if (!pages) return pages.error();
  const auto& newest =
      pages->at(0).transaction < pages->at(1).transaction ? pages->at(1) : pages->at(0);
  constexpr std::uint64_t kMapBytesMax = std::uint64_t{1} << 46;
  if (newest.page_bytes != pages->at(0).page_bytes || newest.map_bytes > kMapBytesMax ||
      newest.last_page >= newest.map_bytes / newest.page_bytes) {
    return damaged(file.string(), "its meta pages contradict themselves");
  }
  return newest;
}

Result<std::uint64_t> read_map_bytes(const fs::path& directory, const MetaPage& meta) {
  const auto file = directory / "map_bytes";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return meta.map_bytes;
  const auto number = parse_number(read_small_file(file));
  if (!number || *number < 4 * meta.page_bytes || *number > std::uint64_t{1} << 46) {
    return Error{Fault::damaged, file.string() +
                                     " must hold the map's size in bytes as one number: write " +
                                     std::to_string(meta.map_bytes) + " into it"};
  }
  return *number;
}

Result<void> write_map_bytes(const fs::path& directory, std::uint64_t map_bytes) {
  const auto file = directory / "map_bytes";
  const auto fresh = directory / "map_bytes.new";
  const auto text = std::to_string(map_bytes) + "\n";
  Descriptor out(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640));
  if (out.get() < 0) return io_error("cannot create " + fresh.string(), errno);
  const auto written = ::write(out.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    return io_error("cannot write " + fresh.string(), written < 0 ? errno : ENOSPC);
  }
  if (::fsync(out.get()) != 0) return io_error("cannot sync " + fresh.string(), errno);
  if (::rename(fresh.c_str(), file.c_str()) != 0) {
    return io_error("cannot name " + file.string(), errno);
  }
  return {};
}

Result<void> allocate_reader_table(const fs::path& directory) {
  const auto file = directory / "lock.mdb";
  Descriptor table(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640));
  if (table.get() < 0) return io_error("cannot open " + file.string(), errno);
  if (const int code = ::posix_fallocate(table.get(), 0, kReaderTableBytes)) {
    return io_error("cannot allocate " + file.string(), code);
  }
  return {};
}

Result<void> allocate(int descriptor, const std::string& file, std::uint64_t bytes) {
  // Asked first: a file system may hand out all it has before it says no, and starve everybody
  // else.
  struct stat status {};
  struct statvfs room {};
  if (::fstat(descriptor, &status) != 0 || ::fstatvfs(descriptor, &room) != 0) {
    return io_error("cannot examine " + file, errno);
  }
  const auto present = static_cast<std::uint64_t>(status.st_blocks) * 512;
  const auto free = static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize;
  int code = 0;
  if (bytes > present && bytes - present > free) {
    code = ENOSPC;
  } else {
    do {
      code = ::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) == 0
                 ? 0
                 : errno;
    } while (code == EINTR);
  }
  if (code == EOPNOTSUPP || code == ENOSYS) return allocate_by_writing(descriptor, file, bytes);
  if (code != 0) {
    return io_error("cannot allocate " + std::to_string(bytes) + " bytes for " + file, code);
  }
  return {};
}

Result<void> sync_directory(const fs::path& directory) {
  Descriptor handle(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() < 0 || ::fsync(handle.get()) != 0) {
    return io_error("cannot sync " + directory.string(), errno);
  }
  return {};
}

void remove_files(const fs::path& directory) {
  std::error_code ignored;
  for (const char* name : {"data.mdb", "lock.mdb", "map_bytes.new", "map_bytes"}) {
    fs::remove(directory / name, ignored);
  }
}

CreationGuard::~CreationGuard() {
  if (kept_) return;
  std::error_code ignored;
  if (owns_files_) {
    remove_files(directory_);
    fs::remove(directory_ / "owner.lock", ignored);
  }
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) fs::remove(*made, ignored);
}

Result<void> CreationGuard::make_directories() {
  std::vector<fs::path> missing;
  std::error_code code;
  for (auto path = fs::absolute(directory_).lexically_normal(); !fs::exists(path, code);) {
    if (path.has_filename()) missing.push_back(path);
    path = path.parent_path();
  }
  for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
    fs::create_directory(*path, code);
    if (code) return io_error("cannot make the directory " + path->string(), code.value());
    made_.push_back(*path);
  }
  return {};
}

std::vector<fs::path> CreationGuard::changed_directories() const {
  std::vector<fs::path> result{directory_};
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    result.push_back(made->parent_path());
  }
  return result;
}

}  // namespace twofold::lmdb
