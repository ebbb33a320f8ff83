#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <string>

#include "log/environment_files.h"
#include "log/group_commit.h"
#include "protocol/check.h"

namespace twofold {
namespace {

using lmdb::fatal;

constexpr std::string_view kGroupKey = "group";
constexpr std::uint32_t kGroupTable = 0;

std::string encode(std::uint64_t number) {
  std::string bytes(8, '\0');
  for (std::size_t i = 8; i-- > 0; number >>= 8) bytes[i] = static_cast<char>(number & 0xff);
  return bytes;
}

std::uint64_t decode(std::string_view bytes) {
  TWOFOLD_CHECK(bytes.size() == 8);
  std::uint64_t number = 0;
  for (char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

int erase_range(MDB_txn* txn, MDB_dbi table, const Mutation& range) {
  MDB_cursor* cursor = nullptr;
  if (int code = mdb_cursor_open(txn, table, &cursor)) return code;
  int code = 0;
  for (;;) {
    MDB_val key = lmdb::value(range.key), data{};
    // From the start again after each: a cursor's place after a deletion is LMDB's secret.
    code = mdb_cursor_get(cursor, &key, &data, range.key.empty() ? MDB_FIRST : MDB_SET_RANGE);
    if (code != 0 || (!range.value.empty() && lmdb::view(key) >= range.value)) break;
    if ((code = mdb_cursor_del(cursor, 0)) != 0) break;
  }
  mdb_cursor_close(cursor);
  return code == MDB_NOTFOUND ? 0 : code;
}

int apply_one(MDB_txn* txn, MDB_dbi table, const Mutation& mutation) {
  MDB_val key = lmdb::value(mutation.key), data = lmdb::value(mutation.value);
  switch (mutation.kind) {
    case Mutation::Kind::put: return mdb_put(txn, table, &key, &data, 0);
    case Mutation::Kind::erase: {
      const int code = mdb_del(txn, table, &key, nullptr);
      return code == MDB_NOTFOUND ? 0 : code;
    }
    case Mutation::Kind::erase_range: return erase_range(txn, table, mutation);
  }
  TWOFOLD_CHECK(false);
  return 0;
}

// The step that failed is for the message when it is fatal.
struct Attempt {
  int code = 0;
  const char* step = "";
};

Attempt write_group(const lmdb::Environment& environment, std::uint64_t group,
                    std::span<const Write* const> writes) {
  MDB_txn* txn = nullptr;
  if (int code = mdb_txn_begin(environment.native(), nullptr, 0, &txn)) {
    return {code, "cannot begin a group"};
  }
  const Mutation number{Mutation::Kind::put, kGroupTable, std::string(kGroupKey), encode(group)};
  int code = apply_one(txn, environment.table(kGroupTable), number);
  for (const Write* write : writes) {
    for (const Mutation& mutation : write->mutations) {
      if (code == 0) code = apply_one(txn, environment.table(mutation.table), mutation);
    }
  }
  if (code != 0) {
    mdb_txn_abort(txn);
    return {code, "cannot write a group"};
  }
  return {mdb_txn_commit(txn), "cannot commit a group"};
}

// LMDB turns a write that was cut short into EIO, which a broken disk gives as well. Only where the
// lack of room can be seen does EIO mean it.
bool no_room_to_see(const lmdb::Environment& environment) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < environment.map_bytes()) {
    return true;
  }
  struct statvfs status {};
  if (::statvfs(environment.directory().c_str(), &status) == 0 && status.f_bavail == 0) return true;
  // Also finds quotas. If there is room, the map has its blocks again afterwards.
  int descriptor = -1;
  mdb_env_get_fd(environment.native(), &descriptor);
  const auto allocated = lmdb::allocate(descriptor, "data.mdb", environment.map_bytes());
  return !allocated && allocated.error().fault == Fault::full;
}

bool is_no_room(const lmdb::Environment& environment, int code) {
  switch (code) {
    case MDB_MAP_FULL:
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return true;
    case EIO: return no_room_to_see(environment);
    default: return false;
  }
}

}  // namespace

GroupTarget::Applied LmdbTarget::apply(std::uint64_t group, std::span<const Write* const> writes) {
  const auto attempt = write_group(environment_, group, writes);
  if (attempt.code == 0) return Applied::durable;
  if (!is_no_room(environment_, attempt.code)) fatal(attempt.step, attempt.code);
  // The meta page may have reached the file although its write failed: then nobody knows what is
  // durable.
  if (last_group() != group - 1) fatal("a group that could not be committed shows", attempt.code);
  return Applied::refused;
}

std::uint64_t LmdbTarget::last_group() {
  const lmdb::Reader fresh(environment_);
  const auto number = fresh.get(environment_.table(kGroupTable), kGroupKey);
  return number ? decode(*number) : 0;
}

}  // namespace twofold
