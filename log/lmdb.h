// LMDB as Twofold uses it: one environment per process and directory, default (full) syncing, one
// writer thread, readers that are not tied to a thread, a map allocated in full at creation.
//
// Facts this rests on: LMDB lets a second process in, so a lock file beside the data keeps it out
// (rule 1); a write transaction belongs to its thread; disk full shows as EIO, ENOSPC or EFBIG,
// MAP_FULL also at commit (rule 23). LMDB trusts its file: a truncated or overwritten one ends the
// process by a signal, so open() walks the pages first (page_check.h).
//
// A process that opens an environment ignores SIGXFSZ from then on, unless it handles it: a file
// size limit is to be an error, not a death. Never fork() with an open environment without exec().
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/result.h"

namespace twofold::lmdb {

using Table = MDB_dbi;

struct EnvironmentOptions {
  std::uint64_t map_bytes = 256u << 20;  // used by create() only: kept in a file beside the data
  std::vector<std::string> tables;       // made where missing; handles are in the order given
  bool allocate = true;                  // open() gives the map its blocks, as far as there is room
};

// Not copyable, not movable. Readers may be made on any thread; one Writer at a time, on one
// thread.
class Environment {
 public:
  // Makes directory and data and allocates map_bytes on disk, at least 128 KiB. Fault::exists if
  // there is data already, full if there is no room; after any failure nothing is left behind.
  // Whatever an interrupted create() left behind counts as absent here and in open().
  static Result<std::unique_ptr<Environment>> create(const std::filesystem::path& directory,
                                                     const EnvironmentOptions& options);
  // not_found: no data there; busy: another process, or this one, has it; damaged: its pages do not
  // check; unsupported: another format of LMDB's. Raising the number in the file map_bytes enlarges
  // the map.
  static Result<std::unique_ptr<Environment>> open(const std::filesystem::path& directory,
                                                   const EnvironmentOptions& options);
  // Without the lock file and without changing anything: for offline tools.
  static Result<std::unique_ptr<Environment>> open_read_only(const std::filesystem::path& directory,
                                                             const EnvironmentOptions& options);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  // Copies one snapshot, and the map's size, into an empty directory; anybody may write meanwhile.
  // Not synced. full: there is no room.
  Result<void> copy_to(const std::filesystem::path& directory) const;

  MDB_env* native() const { return env_; }
  Table table(std::size_t index) const { return tables_.at(index); }
  const std::filesystem::path& directory() const { return directory_; }
  double used_fraction() const;  // of the map, free pages not counted as used; any thread
  std::uint64_t map_bytes() const;

 private:
  Environment() = default;
  // The steps of creating and opening; each fills in what the next one needs.
  Result<void> claim();
  Result<void> open_native(std::uint64_t map_bytes, bool read_only);
  Result<void> open_tables(const std::vector<std::string>& tables, bool read_only);
  Result<void> open_checked(const EnvironmentOptions& options, bool read_only);
  Result<void> create_files(const EnvironmentOptions& options);

  std::filesystem::path directory_;
  std::filesystem::path claimed_;  // in this process's list of open environments
  MDB_env* env_ = nullptr;
  int lock_descriptor_ = -1;
  std::vector<Table> tables_;
};

// A snapshot. Short-lived: it pins pages. Views are valid until it is reset, renewed or destroyed.
class Reader {
 public:
  explicit Reader(const Environment& environment);  // throws std::runtime_error: no reader slot
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  void reset();  // lets the snapshot go and keeps the slot
  void renew();  // a fresh snapshot after reset()

  std::optional<std::string_view> get(Table table, std::string_view key) const;
  // Calls visit(key, value) from the first key at or after `from`, in order, until it returns
  // false.
  template <class Visit>
  void scan(Table table, std::string_view from, Visit&& visit) const;
  std::uint64_t count(Table table) const;
  MDB_txn* native() const { return txn_; }

 private:
  MDB_txn* txn_ = nullptr;
};

std::string_view view(const MDB_val& value);
MDB_val value(std::string_view bytes);
// Logs to stderr and ends the process at once with status 74 (EX_IOERR): nothing is acknowledged
// after it.
[[noreturn]] void fatal(const char* what, int code);

template <class Visit>
void Reader::scan(Table table, std::string_view from, Visit&& visit) const {
  MDB_cursor* cursor = nullptr;
  if (int code = mdb_cursor_open(txn_, table, &cursor)) fatal("mdb_cursor_open", code);
  MDB_val key = value(from), data{};
  int code = from.empty() ? mdb_cursor_get(cursor, &key, &data, MDB_FIRST)
                          : mdb_cursor_get(cursor, &key, &data, MDB_SET_RANGE);
  while (code == 0 && visit(view(key), view(data))) {
    code = mdb_cursor_get(cursor, &key, &data, MDB_NEXT);
  }
  mdb_cursor_close(cursor);
  if (code != 0 && code != MDB_NOTFOUND) fatal("mdb_cursor_get", code);
}

}  // namespace twofold::lmdb
