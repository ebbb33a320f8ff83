#include "resource_manager/adapters/files_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

#include "log/environment_files.h"
#include "protocol/check.h"
#include "resource_manager/adapters/files_io.h"

namespace twofold::resource_manager::files {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "twofold files 2";
constexpr const char* kFolders[] = {"files", "staging", "outcomes", "nodes"};
constexpr std::size_t kReserveFileBytes = 64u << 10;  // enough to remove a few hundred files

std::runtime_error damaged(const fs::path& file, const std::string& what) {
  return std::runtime_error(file.string() + " is damaged: " + what +
                            "; start the version that wrote it, or put a copy of the data back");
}

std::uint64_t random_id() {
  std::random_device device;
  std::uint64_t id = 0;
  while (id == 0) id = static_cast<std::uint64_t>(device()) << 32 | device();
  return id;
}

// A start finds what is there: it cannot know that there was more.
constexpr const char* kBranchRemoved =
    "somebody removed a prepared branch: put its folder back before the next start, or a commit of "
    "its transaction ends as a heuristic rollback";

// ---- making and opening -------------------------------------------------------------------------

// Nothing is there but what an interrupted creation of ours may have left.
bool may_be_made(const fs::path& directory) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const bool folder =
        std::find(std::begin(kFolders), std::end(kFolders), name) != std::end(kFolders);
    if (folder && fs::is_empty(entry.path(), error)) continue;
    if (name != "owner.lock" && name != "format.new") return false;
  }
  return true;
}

Result<std::uint64_t> make(const fs::path& directory) {
  const std::uint64_t store_id = random_id();
  bool room = true;
  for (const char* folder : kFolders) room = room && make_folder(directory / folder);
  room = room && replace_file(directory / "format",
                              std::string(kFormat) + "\n" + std::to_string(store_id) + "\n");
  if (room && sync_folder(directory.parent_path())) return store_id;
  return Error{Fault::full, "the data in " + directory.string() +
                                " cannot be made: make room on that file system"};
}

Result<std::uint64_t> identify(const fs::path& directory) {
  const fs::path file = directory / "format";
  const Result<std::string> text = read_file(file);
  if (!text) return text.error();
  const std::vector<std::string> lines = split_lines(*text);
  if (lines.empty() || lines[0] != kFormat) {
    return Error{Fault::unsupported,
                 file.string() + " is not of the format that this build knows, '" +
                     std::string(kFormat) + "': start the version that wrote it"};
  }
  for (const char* folder : kFolders) {
    if (is_there(directory / folder)) continue;
    return Error{Fault::damaged,
                 (directory / folder).string() +
                     " is missing, a part of the data: put it back from where it has gone, or a "
                     "copy of all the data. An empty one in its place would lose what was in it: "
                     "branches in doubt (staging), what they published (files), and what the "
                     "coordinators ask for (outcomes, nodes)"};
  }
  const auto id = lines.size() == 2 ? parse_number(lines[1]) : std::nullopt;
  if (id && *id != 0) return *id;
  return Error{Fault::damaged, damaged(file, "its second line is the store's id").what()};
}

// ---- manifests ----------------------------------------------------------------------------------

constexpr std::string_view kManifest = "twofold branch 1";
constexpr std::string_view kEnd = "end";

bool take_line(Manifest& manifest, std::string_view word, const std::string& rest) {
  if (word == "one_phase") {
    manifest.one_phase = true;
  } else if (word == "voted_us") {
    const auto number = parse_number(rest);
    manifest.wall_us = static_cast<std::int64_t>(number.value_or(0));
    return number.has_value();
  } else if (word == "shared" || word == "exclusive") {
    manifest.locks.push_back({rest, word == "shared" ? LockMode::shared : LockMode::exclusive});
  } else if (word == "publish") {
    manifest.publish.push_back(rest);
  } else if (word == "remove") {
    manifest.remove.push_back(rest);
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string encode(const Manifest& manifest) {
  std::string text(kManifest);
  const auto line = [&](std::string_view word, const std::string& rest) {
    text.append("\n").append(word).append(" ").append(rest);
  };
  line("voted_us", std::to_string(manifest.wall_us));
  if (manifest.one_phase) line("one_phase", "");
  for (const LockRequest& lock : manifest.locks) {
    line(lock.mode == LockMode::shared ? "shared" : "exclusive", lock.key);
  }
  for (const std::string& path : manifest.publish) line("publish", path);
  for (const std::string& path : manifest.remove) line("remove", path);
  return text.append("\n").append(kEnd).append("\n");
}

Result<Manifest> decode(std::string_view text) {
  const std::vector<std::string> lines = split_lines(text);
  Manifest manifest;
  bool whole = lines.size() >= 2 && lines.front() == kManifest && lines.back() == kEnd;
  for (std::size_t i = 1; whole && i + 1 < lines.size(); ++i) {
    const std::size_t space = lines[i].find(' ');
    whole = space != std::string::npos &&
            take_line(manifest, std::string_view(lines[i]).substr(0, space),
                      lines[i].substr(space + 1));
  }
  if (!whole) return Error{Fault::damaged, "this is no whole manifest of this version"};
  return manifest;
}

Result<std::unique_ptr<Disk>> Disk::open(const fs::path& directory) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is a lack of room, not a death
  std::error_code error;
  fs::path path = fs::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // it ended with /
  const bool there = fs::exists(path / "format", error);
  if (!there && fs::exists(path, error) && !may_be_made(path)) {
    return Error{Fault::exists, "the data in " + path.string() +
                                    " cannot be made: the directory holds other files. Name an "
                                    "empty or missing directory with --data"};
  }
  fs::create_directories(path, error);
  if (error) {
    return Error{Fault::io, "cannot make the directory " + path.string() + ": " + error.message()};
  }
  Result<int> lock = lmdb::take_owner_lock(path);
  if (!lock) return lock.error();
  // Looked at again: whoever had the lock may have made it.
  Result<std::uint64_t> id = fs::exists(path / "format", error) ? identify(path) : make(path);
  if (!id) {
    ::close(*lock);
    return id.error();
  }
  return std::unique_ptr<Disk>(new Disk(path, *lock, *id));
}

Disk::Disk(fs::path directory, int lock, std::uint64_t store_id)
    : directory_(std::move(directory)),
      files_(directory_ / "files"),
      staging_(directory_ / "staging"),
      outcomes_(directory_ / "outcomes"),
      reserve_(directory_ / "reserve"),
      node_files_(directory_ / "nodes"),
      lock_(lock),
      store_id_(store_id) {}

Disk::~Disk() {
  ::close(lock_);
}

// ---- branches -----------------------------------------------------------------------------------

fs::path Disk::folder_of(const Xid& xid) const {
  return staging_ / to_text(xid);
}

bool Disk::staged(const Xid& xid) const {
  return is_there(folder_of(xid) / "manifest");
}

bool Disk::has_outcome(const Xid& xid) const {
  return is_there(outcomes_ / to_text(xid));
}

Manifest Disk::manifest_of(const Xid& xid) const {
  const fs::path file = folder_of(xid) / "manifest";
  const Result<std::string> text = read_file(file);
  Result<Manifest> manifest = text ? decode(*text) : Result<Manifest>(text.error());
  if (!text && !is_there(file)) fatal("find", file, ENOENT, kBranchRemoved);
  if (!manifest) fatal("read", file, 0, manifest.error().message);
  return std::move(*manifest);
}

Written Disk::stage(const Xid& xid, const Manifest& manifest, const Changes& changes,
                    std::uint64_t reserve_bytes) {
  std::uint64_t bytes = 0;
  for (const auto& [path, content] : changes) bytes += content ? content->size() : 0;
  // What only removes makes room, so it may use the reserve.
  if (!manifest.publish.empty() && !has_room(staging_, bytes + reserve_bytes)) {
    return Written::no_room;
  }
  const fs::path folder = folder_of(xid);
  bool written = write_branch(folder, manifest, changes);
  if (!written && manifest.publish.empty() && give_reserve()) {
    written = write_branch(folder, manifest, changes);
  }
  if (!written) return Written::no_room;
  if (!manifest.one_phase) ++prepared_;
  return Written::durable;
}

// False: no room, and nothing is left of it.
bool Disk::write_branch(const fs::path& folder, const Manifest& manifest, const Changes& changes) {
  if (write_folder(folder, manifest, changes)) return true;
  remove_folder(folder, "manifest");
  must_sync_folder(staging_);  // or a crash might bring its manifest back
  return false;
}

bool Disk::write_folder(const fs::path& folder, const Manifest& manifest, const Changes& changes) {
  if (!make_folder(folder)) return false;
  std::size_t number = 0;
  for (const std::string& path : manifest.publish) {
    const std::string name = std::to_string(number++);
    if (!write_file(folder / name, changes.at(path).value())) return false;
  }
  return write_file(folder / "outcome", "") &&
         replace_file(folder / "manifest", encode(manifest)) && sync_folder(staging_);
}

Written Disk::commit(const Xid& xid) {
  Written written = try_commit(xid);
  if (written == Written::no_room && give_reserve()) written = try_commit(xid);
  if (written == Written::durable) fill_reserve();
  return written;
}

// Each step leaves alone what an earlier attempt has done.
Written Disk::try_commit(const Xid& xid) {
  const fs::path folder = folder_of(xid);
  const Manifest manifest = manifest_of(xid);
  const fs::path outcome = outcomes_ / to_text(xid);
  if (!is_there(outcome)) {
    if (!room(::rename((folder / "outcome").c_str(), outcome.c_str()), "name", outcome)) {
      return Written::no_room;
    }
    must_sync_folder(outcomes_);  // this is the instant
  }
  if (!apply(folder, manifest)) return Written::no_room;
  remove_folder(folder, "manifest");
  // Before anybody else changes these paths: carried out once more it would undo that.
  must_sync_folder(staging_);
  if (!manifest.one_phase) --prepared_;
  return Written::durable;
}

// Removes first: a file may have to make way for a folder, or a folder for a file. False: no room.
bool Disk::apply(const fs::path& folder, const Manifest& manifest) {
  std::set<fs::path> changed;  // folders
  for (const std::string& path : manifest.remove) {
    remove_published(files_, files_ / path, changed);
  }
  std::size_t number = 0;
  for (const std::string& path : manifest.publish) {
    const fs::path from = folder / std::to_string(number++);
    if (!publish(files_, from, files_ / path, changed)) return false;
  }
  return std::all_of(changed.begin(), changed.end(),
                     [](const fs::path& one) { return !is_there(one) || sync_folder(one); });
}

void Disk::remove(const Xid& xid) {
  const fs::path folder = folder_of(xid);
  const bool counted = is_there(folder / "manifest") && !manifest_of(xid).one_phase;
  remove_folder(folder, "manifest");
  // Synced, although a rollback need not be: a branch that comes after it may hold its locks.
  must_sync_folder(staging_);
  if (counted) --prepared_;
  fill_reserve();
}

// ---- the reserve --------------------------------------------------------------------------------

// As soon as there is room for it again.
void Disk::fill_reserve() {
  if (is_there(reserve_) || !has_room(directory_, kReserveFileBytes)) return;
  if (!replace_file(reserve_, std::string(kReserveFileBytes, '\0'))) {
    remove_file(reserve_.string() + ".new");
  }
}

// False: it has been given already. Its blocks are free when this returns.
bool Disk::give_reserve() {
  if (!is_there(reserve_)) return false;
  remove_file(reserve_);
  must_sync_folder(directory_);
  return true;
}

// ---- nodes --------------------------------------------------------------------------------------

Written Disk::record(const NodeRecord& record) {
  return node_files_.record(record) ? Written::durable : Written::no_room;
}

void Disk::purge(const NodeRecord& record) {
  for (const fs::path& file : children(outcomes_)) {
    const Result<Xid> xid = parse_xid(file.filename().string());
    const std::optional<Gtrid> gtrid = xid ? Gtrid::decode(xid->gtrid) : std::nullopt;
    if (!gtrid || gtrid->node != record.node || gtrid->log_id != record.log_id) continue;
    if (gtrid->txn_id() < record.low_water) remove_file(file);
  }
}

// ---- starting -----------------------------------------------------------------------------------

Recovered Disk::recover(Time now) {
  Recovered recovered;
  must_sync_folder(outcomes_);  // a process that has ended may have put one there and not synced it
  for (const fs::path& folder : children(staging_)) take_branch(folder, now, recovered);
  must_sync_folder(staging_);
  recovered.nodes = node_files_.recover();
  fill_reserve();
  return recovered;
}

void Disk::take_branch(const fs::path& folder, Time now, Recovered& recovered) {
  Result<Xid> xid = parse_xid(folder.filename().string());
  if (!xid) throw damaged(folder, "its name is no xid");
  if (!is_there(folder / "manifest")) return remove_folder(folder, "manifest");
  Result<Manifest> manifest = decode(read_file(folder / "manifest").value());
  if (!manifest) throw damaged(folder / "manifest", manifest.error().message);
  if (!manifest->one_phase) ++prepared_;
  if (has_outcome(*xid)) {
    if (commit(*xid) == Written::durable) return;
    throw std::runtime_error("a commit in " + directory_.string() +
                             " was interrupted and cannot be finished: the disk has no room; make "
                             "room and start again");
  }
  if (manifest->one_phase) return remove_folder(folder, "manifest");
  const Duration age{std::max<std::int64_t>(0, wall_us() - manifest->wall_us)};
  recovered.prepared.push_back({std::move(*xid), std::move(manifest->locks), now - age});
}

// ---- what is published --------------------------------------------------------------------------

Result<std::optional<std::uint64_t>> Disk::size_of(const std::string& path) {
  return size_of_file(files_ / path);
}

Result<std::string> Disk::read(const std::string& path) {
  return read_file(files_ / path);
}

Result<std::vector<std::string>> Disk::list(const std::string& prefix) {
  const std::size_t slash = prefix.rfind('/');
  const std::string top = slash == std::string::npos ? "" : prefix.substr(0, slash + 1);
  std::vector<std::string> found;
  if (auto error = walk(files_ / top, top, prefix, found)) return *error;
  std::sort(found.begin(), found.end());
  return found;
}

wire::ScanAnswer Disk::scan(const std::string& prefix, std::uint64_t bytes_max) {
  wire::ScanAnswer answer;
  answer.set_prepared(prepared_);
  const Result<std::vector<std::string>> paths = list(prefix);
  std::uint64_t bytes = 0;
  if (!paths) return answer;
  for (const std::string& path : *paths) {
    bytes += path.size() + 24;  // with what the encoding adds
    if (bytes > bytes_max) {
      answer.set_truncated(true);
      break;
    }
    const auto size = size_of(path);
    if (!size || !*size) continue;
    wire::KeyValue& entry = *answer.add_entries();
    entry.set_key(path);
    entry.mutable_value()->set_integer(static_cast<std::int64_t>(**size));
  }
  return answer;
}

}  // namespace twofold::resource_manager::files
