#include "log/lmdb.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <set>
#include <stdexcept>

#include "log/environment_files.h"
#include "log/page_check.h"
#include "protocol/check.h"

namespace twofold::lmdb {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMapBytesMin = 128u << 10;
constexpr int kExitStatus = 74;  // EX_IOERR

// LMDB must not have one environment open twice in a process: closing one drops the other's locks.
std::mutex open_directories_mutex;
std::set<fs::path>& open_directories() {
  static std::set<fs::path> directories;
  return directories;
}

Error native_error(const std::string& what, int code) {
  const bool no_room = code == MDB_MAP_FULL || code == ENOSPC || code == EDQUOT || code == EFBIG;
  if (no_room) return {Fault::full, what + ": " + words(code) + "; make room there"};
  if (code == MDB_INVALID || code == MDB_CORRUPTED || code == MDB_PAGE_NOTFOUND) {
    return {Fault::damaged, what + ": " + words(code) + "; restore it from a copy"};
  }
  if (code == EACCES || code == EPERM) {
    return {Fault::io, what + ": " + words(code) + "; run as the user that owns it"};
  }
  return {Fault::io, what + ": " + words(code)};
}

void ignore_file_size_signal() {
  struct sigaction current {};
  if (::sigaction(SIGXFSZ, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    std::signal(SIGXFSZ, SIG_IGN);
  }
}

std::uint64_t whole_pages(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::uint64_t pages_in_use(const MDB_stat& stat) {
  return stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
}

}  // namespace

Result<std::unique_ptr<Environment>> Environment::create(const fs::path& directory,
                                                         const EnvironmentOptions& options) {
  const auto exists = Error{Fault::exists, directory.string() +
                                               " holds data already: nothing was changed; give "
                                               "another directory"};
  if (presence(directory) == Presence::complete) return exists;
  if (options.map_bytes < kMapBytesMin) {
    return Error{Fault::invalid, "a map of " + std::to_string(options.map_bytes) +
                                     " bytes is too small: give at least " +
                                     std::to_string(kMapBytesMin)};
  }
  CreationGuard guard(directory);
  if (auto made = guard.make_directories(); !made) return made.error();
  std::unique_ptr<Environment> environment(new Environment);
  environment->directory_ = directory;
  auto lock = take_owner_lock(directory);
  if (!lock) return lock.error();
  environment->lock_descriptor_ = *lock;
  if (presence(directory) == Presence::complete) return exists;
  guard.owns_files();
  // The guard is older, so it removes the files only after the environment was closed.
  if (auto claimed = environment->claim(); !claimed) return claimed.error();
  if (auto done = environment->create_files(options); !done) return done.error();
  for (const auto& changed : guard.changed_directories()) {
    if (auto synced = sync_directory(changed); !synced) return synced.error();
  }
  guard.keep();
  return environment;
}

Result<std::unique_ptr<Environment>> Environment::open(const fs::path& directory,
                                                       const EnvironmentOptions& options) {
  const auto not_found =
      Error{Fault::not_found, "there is no data in " + directory.string() + ": create it first"};
  if (presence(directory) != Presence::complete) return not_found;
  std::unique_ptr<Environment> environment(new Environment);
  environment->directory_ = directory;
  auto lock = take_owner_lock(directory);
  if (!lock) return lock.error();
  environment->lock_descriptor_ = *lock;
  if (presence(directory) != Presence::complete) return not_found;
  if (auto done = environment->open_checked(options, false); !done) return done.error();
  return environment;
}

Result<std::unique_ptr<Environment>> Environment::open_read_only(
    const fs::path& directory, const EnvironmentOptions& options) {
  if (presence(directory) != Presence::complete) {
    return Error{Fault::not_found,
                 "there is no data in " + directory.string() + ": look for the right directory"};
  }
  std::unique_ptr<Environment> environment(new Environment);
  environment->directory_ = directory;
  if (auto done = environment->open_checked(options, true); !done) return done.error();
  return environment;
}

Environment::~Environment() {
  if (env_ != nullptr) mdb_env_close(env_);
  if (!claimed_.empty()) {
    std::lock_guard guard(open_directories_mutex);
    open_directories().erase(claimed_);
  }
  if (lock_descriptor_ >= 0) ::close(lock_descriptor_);
}

Result<void> Environment::claim() {
  std::error_code code;
  auto path = fs::canonical(directory_, code);
  if (code) return native_error("cannot find " + directory_.string(), code.value());
  std::lock_guard guard(open_directories_mutex);
  if (!open_directories().insert(path).second) {
    return Error{Fault::busy, directory_.string() + " is open in this process already"};
  }
  claimed_ = std::move(path);
  return {};
}

Result<void> Environment::create_files(const EnvironmentOptions& options) {
  remove_files(directory_);
  const auto map_bytes = whole_pages(options.map_bytes);
  if (auto opened = open_native(map_bytes, false); !opened) return opened;
  int descriptor = -1;
  mdb_env_get_fd(env_, &descriptor);
  const auto file = (directory_ / "data.mdb").string();
  if (auto done = allocate(descriptor, file, map_bytes); !done) return done;
  if (::fsync(descriptor) != 0) return native_error("cannot sync " + file, errno);
  if (auto done = open_tables(options.tables, false); !done) return done;
  return write_map_bytes(directory_, map_bytes);
}

Result<void> Environment::open_checked(const EnvironmentOptions& options, bool read_only) {
  if (auto claimed = claim(); !claimed) return claimed;
  const auto meta = check_meta_pages(directory_);
  if (!meta) return meta.error();
  const auto map_bytes = read_map_bytes(directory_, *meta);
  if (!map_bytes) return map_bytes.error();
  if (auto opened = open_native(whole_pages(*map_bytes), read_only); !opened) return opened;
  if (int code = mdb_reader_check(env_, nullptr)) {
    return native_error("cannot clear old readers of " + directory_.string(), code);
  }
  const auto file = (directory_ / "data.mdb").string();
  MDB_txn* reader = nullptr;
  if (int code = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reader)) {
    return native_error("cannot read " + file, code);
  }
  auto checked = check_pages(reader, file);
  mdb_txn_abort(reader);
  if (!checked) return checked;
  if (!read_only && options.allocate) {
    // A copied or enlarged file has no blocks for its map yet. Without room for them it still
    // serves: a commit that finds none is refused.
    int descriptor = -1;
    mdb_env_get_fd(env_, &descriptor);
    [[maybe_unused]] auto ignored = allocate(descriptor, file, this->map_bytes());
  }
  return open_tables(options.tables, read_only);
}

Result<void> Environment::open_native(std::uint64_t map_bytes, bool read_only) {
  ignore_file_size_signal();
  if (auto done = allocate_reader_table(directory_); !done) return done;
  if (int code = mdb_env_create(&env_)) return native_error("cannot set up LMDB", code);
  constexpr MDB_dbi kTablesMax = 32;
  int code = mdb_env_set_mapsize(env_, map_bytes);
  if (code == 0) code = mdb_env_set_maxdbs(env_, kTablesMax);
  const unsigned flags = MDB_NOTLS | (read_only ? static_cast<unsigned>(MDB_RDONLY) : 0u);
  if (code == 0) code = mdb_env_open(env_, directory_.c_str(), flags, 0640);
  if (code == 0) return {};
  mdb_env_close(env_);
  env_ = nullptr;
  return native_error("cannot open " + (directory_ / "data.mdb").string(), code);
}

Result<void> Environment::open_tables(const std::vector<std::string>& tables, bool read_only) {
  MDB_txn* txn = nullptr;
  const auto what = "cannot open the tables of " + directory_.string();
  const unsigned begin_flags = read_only ? static_cast<unsigned>(MDB_RDONLY) : 0u;
  if (int code = mdb_txn_begin(env_, nullptr, begin_flags, &txn)) return native_error(what, code);
  for (const auto& name : tables) {
    Table table = 0;
    const unsigned open_flags = read_only ? 0u : static_cast<unsigned>(MDB_CREATE);
    if (int code = mdb_dbi_open(txn, name.c_str(), open_flags, &table)) {
      mdb_txn_abort(txn);
      if (code == MDB_NOTFOUND || code == MDB_INCOMPATIBLE) {
        return Error{Fault::damaged, directory_.string() + " has no table \"" + name +
                                         "\": it holds something else, or was never finished; look "
                                         "for the right directory"};
      }
      return native_error(what, code);
    }
    tables_.push_back(table);
  }
  if (int code = mdb_txn_commit(txn)) return native_error(what, code);
  return {};
}

Result<void> Environment::copy_to(const fs::path& directory) const {
  if (int code = mdb_env_copy2(env_, directory.c_str(), 0)) {
    return native_error("cannot copy " + directory_.string() + " to " + directory.string(), code);
  }
  return write_map_bytes(directory, map_bytes());
}

double Environment::used_fraction() const {
  Reader reader(*this);
  MDB_stat stat{};
  std::uint64_t pages = 2;               // the meta pages
  const Table free_list = 0, names = 1;  // LMDB's own two
  for (Table table : {free_list, names}) {
    if (int code = mdb_stat(reader.native(), table, &stat)) fatal("mdb_stat", code);
    pages += pages_in_use(stat);
  }
  for (Table table : tables_) {
    if (int code = mdb_stat(reader.native(), table, &stat)) fatal("mdb_stat", code);
    pages += pages_in_use(stat);
  }
  return static_cast<double>(pages) * stat.ms_psize / static_cast<double>(map_bytes());
}

std::uint64_t Environment::map_bytes() const {
  MDB_envinfo info{};
  if (int code = mdb_env_info(env_, &info)) fatal("mdb_env_info", code);
  return info.me_mapsize;
}

Reader::Reader(const Environment& environment) {
  const int code = mdb_txn_begin(environment.native(), nullptr, MDB_RDONLY, &txn_);
  if (code == MDB_PANIC) fatal("mdb_txn_begin", code);
  if (code != 0) {
    throw std::runtime_error("cannot read " + environment.directory().string() + ": " +
                             words(code));
  }
}

Reader::~Reader() {
  mdb_txn_abort(txn_);
}

void Reader::reset() {
  mdb_txn_reset(txn_);
}

void Reader::renew() {
  if (int code = mdb_txn_renew(txn_)) fatal("mdb_txn_renew", code);
}

std::optional<std::string_view> Reader::get(Table table, std::string_view key) const {
  MDB_val native_key = value(key), data{};
  const int code = mdb_get(txn_, table, &native_key, &data);
  if (code == MDB_NOTFOUND) return std::nullopt;
  if (code != 0) fatal("mdb_get", code);
  return view(data);
}

std::uint64_t Reader::count(Table table) const {
  MDB_stat stat{};
  if (int code = mdb_stat(txn_, table, &stat)) fatal("mdb_stat", code);
  return stat.ms_entries;
}

std::string_view view(const MDB_val& value) {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

MDB_val value(std::string_view bytes) {
  return {bytes.size(), const_cast<char*>(bytes.data())};  // LMDB does not write to it
}

void fatal(const char* what, int code) {
  std::fprintf(stderr,
               "fatal: %s: %s. The process ends without acknowledging anything more; look at the "
               "disk, then start it again: it recovers from what is durable\n",
               what, words(code).c_str());
  std::fflush(stderr);
  std::_Exit(kExitStatus);
}

}  // namespace twofold::lmdb
