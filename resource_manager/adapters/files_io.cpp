#include "resource_manager/adapters/files_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace twofold::resource_manager::files {
namespace {

namespace fs = std::filesystem;

constexpr int kExitIo = 74;  // EX_IOERR of sysexits.h
constexpr mode_t kFileMode = 0640, kFolderMode = 0750;

bool lacks_room(int code) {
  return code == ENOSPC || code == EDQUOT || code == EFBIG;
}

Error cannot(const char* doing, const fs::path& path, int code) {
  return {Fault::io,
          std::string("cannot ") + doing + " " + path.string() + ": " + std::strerror(code)};
}

class Handle {
 public:
  Handle(const fs::path& path, int flags)
      : value_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, kFileMode)) {}
  ~Handle() {
    if (value_ >= 0) ::close(value_);
  }
  Handle(const Handle&) = delete;
  int get() const { return value_; }

 private:
  const int value_;
};

bool write_all(int descriptor, std::string_view content, const fs::path& file) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (!room(written < 0 ? -1 : 0, "write", file)) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// The folders between `root` and `path`, outermost first.
std::vector<fs::path> folders_between(const fs::path& root, const fs::path& path) {
  std::vector<fs::path> folders;
  for (fs::path at = path.parent_path(); at != root; at = at.parent_path()) folders.push_back(at);
  std::reverse(folders.begin(), folders.end());
  return folders;
}

// What is empty below `folder`, and then itself. It may hold nothing but folders: publishing
// leaves none behind, but a crash may.
void remove_empty(const fs::path& folder) {
  for (const fs::path& child : children(folder)) remove_empty(child);
  if (::rmdir(folder.c_str()) != 0 && errno != ENOENT) {
    fatal("remove the folder", folder, errno, "a file is to be published under its name");
  }
}

}  // namespace

void fatal(const char* doing, const fs::path& path, int code, const std::string& detail) {
  if (code == ENOENT && detail.empty()) {  // nothing here goes by itself
    fatal(doing, path, code, "somebody removed a part of the data: put it back");
  }
  std::fprintf(stderr,
               "twofold-rm: cannot %s %s: %s%s%s; look at that file system, then start again\n",
               doing, path.c_str(), code != 0 ? std::strerror(code) : "",
               code != 0 && !detail.empty() ? "; " : "", detail.c_str());
  std::_Exit(kExitIo);
}

bool room(int result, const char* doing, const fs::path& path) {
  if (result == 0) return true;
  if (!lacks_room(errno)) fatal(doing, path, errno);
  return false;
}

bool is_there(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fatal("look at", path, errno);
  return false;
}

bool has_room(const fs::path& on, std::uint64_t bytes) {
  struct statvfs status {};
  if (::statvfs(on.c_str(), &status) != 0) fatal("look at the file system of", on, errno);
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize >= bytes;
}

bool make_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), kFolderMode) == 0 || errno == EEXIST) return true;
  return room(-1, "make the folder", folder);
}

bool sync_folder(const fs::path& folder) {
  const Handle handle(folder, O_RDONLY | O_DIRECTORY);
  if (handle.get() < 0) fatal("open the folder", folder, errno);
  return room(::fsync(handle.get()), "sync the folder", folder);
}

void must_sync_folder(const fs::path& folder) {
  if (!sync_folder(folder)) fatal("sync the folder", folder, ENOSPC);
}

void must_sync_file(const fs::path& file) {
  const Handle handle(file, O_RDONLY);
  if (handle.get() < 0 || ::fsync(handle.get()) != 0) fatal("sync", file, errno);
}

bool write_file(const fs::path& file, std::string_view content) {
  const Handle handle(file, O_WRONLY | O_CREAT | O_TRUNC);
  if (handle.get() < 0) return room(-1, "make the file", file);
  return write_all(handle.get(), content, file) && room(::fsync(handle.get()), "sync", file);
}

bool replace_file(const fs::path& file, std::string_view content) {
  const fs::path fresh = file.string() + ".new";
  return write_file(fresh, content) && room(::rename(fresh.c_str(), file.c_str()), "name", file) &&
         sync_folder(file.parent_path());
}

bool overwrite_file(const fs::path& file, std::uint64_t offset, std::string_view content) {
  const Handle handle(file, O_WRONLY);
  if (handle.get() < 0 || ::lseek(handle.get(), static_cast<off_t>(offset), SEEK_SET) < 0) {
    fatal("open", file, errno);
  }
  return write_all(handle.get(), content, file) && room(::fsync(handle.get()), "sync", file);
}

void remove_file(const fs::path& file) {
  if (::unlink(file.c_str()) != 0 && errno != ENOENT) fatal("remove", file, errno);
}

void remove_folder(const fs::path& folder, const char* first) {
  if (!is_there(folder)) return;
  remove_file(folder / first);
  for (const fs::path& child : children(folder)) remove_file(child);
  if (::rmdir(folder.c_str()) != 0) fatal("remove the folder", folder, errno);
}

std::vector<fs::path> children(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    found.push_back(entry.path());
  }
  if (error) fatal("list", folder, error.value());
  std::sort(found.begin(), found.end());
  return found;
}

bool publish(const fs::path& root, const fs::path& from, const fs::path& to,
             std::set<fs::path>& changed) {
  if (!is_there(from)) {
    if (!is_there(to)) fatal("find", from, ENOENT, "a branch that is being committed needs it");
    changed.insert(to.parent_path());
    return true;
  }
  for (const fs::path& folder : folders_between(root, to)) {
    if (is_there(folder)) continue;
    if (!make_folder(folder)) return false;
    changed.insert(folder.parent_path());
  }
  struct stat status {};
  if (::lstat(to.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) remove_empty(to);
  changed.insert(to.parent_path());
  return room(::rename(from.c_str(), to.c_str()), "publish", to);
}

void remove_published(const fs::path& root, const fs::path& file, std::set<fs::path>& changed) {
  // Not there, or a folder now, or below a file: an earlier attempt came that far.
  const bool done_before = ::unlink(file.c_str()) != 0;
  if (done_before && errno != ENOENT && errno != EISDIR && errno != ENOTDIR) {
    fatal("remove", file, errno);
  }
  fs::path folder = file.parent_path();
  while (folder != root && (::rmdir(folder.c_str()) == 0 || errno == ENOENT)) {
    folder = folder.parent_path();
  }
  changed.insert(folder);
}

Result<std::optional<std::uint64_t>> size_of_file(const fs::path& file) {
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<std::uint64_t>();
    return cannot("look at", file, errno);
  }
  if (!S_ISREG(status.st_mode)) return std::optional<std::uint64_t>();
  return std::optional<std::uint64_t>(static_cast<std::uint64_t>(status.st_size));
}

Result<std::string> read_file(const fs::path& file) {
  const Handle handle(file, O_RDONLY);
  if (handle.get() < 0) return cannot("open", file, errno);
  std::string content;
  char chunk[65536];
  while (true) {
    const ssize_t got = ::read(handle.get(), chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot("read", file, errno);
    if (got == 0) return content;
    content.append(chunk, static_cast<std::size_t>(got));
  }
}

std::optional<Error> walk(const fs::path& folder, const std::string& name,
                          const std::string& prefix, std::vector<std::string>& found) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string path = name + entries->path().filename().string();
    const fs::file_status status = entries->symlink_status(error);
    if (error) break;
    if (fs::is_regular_file(status) && path.starts_with(prefix)) found.push_back(path);
    const bool leads_there = path.starts_with(prefix) || prefix.starts_with(path + "/");
    if (!fs::is_directory(status) || !leads_there) continue;
    if (auto below = walk(entries->path(), path + "/", prefix, found)) return below;
  }
  const bool none =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (!error || none) return std::nullopt;
  return cannot("list", folder, error.value());
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::int64_t wall_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace twofold::resource_manager::files
