// A copy of a log beside its coordinator, marked so that nobody takes it for the log (rule 2).
#include <chrono>
#include <system_error>

#include "log/decision_store.h"
#include "log/environment_files.h"

namespace twofold {
namespace {

namespace fs = std::filesystem;

std::int64_t wall_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Result<void> copy_log(const fs::path& source, const fs::path& directory) {
  const auto environment = lmdb::Environment::open_read_only(source, {0, log_table_names()});
  if (!environment) return environment.error();
  return (*environment)->copy_to(directory);
}

// The sync of this group makes all of the copy durable.
Result<void> mark_copy(const fs::path& directory, const BackupMark& as) {
  lmdb::EnvironmentOptions options{0, log_table_names()};
  options.allocate = false;
  const auto environment = lmdb::Environment::open(directory, options);
  if (!environment) return environment.error();
  LmdbTarget target(**environment);
  const Write write{0, mutations(as), Urgency::now, true};
  const Write* const writes[] = {&write};
  if (target.apply(target.last_group() + 1, writes) == GroupTarget::Applied::durable) return {};
  return Error{Fault::full, "there is no room for the backup's mark in " + directory.string() +
                                ": make room there, or raise the number in the log's file "
                                "map_bytes while its coordinator is stopped"};
}

Error taken(const fs::path& path) {
  return {Fault::exists, path.string() +
                             " exists already, nothing was changed: give another "
                             "directory, or remove it"};
}

}  // namespace

// Made under another name: what is not marked yet must not be taken for the log.
Result<LogInfo> LmdbDecisionStore::back_up(const fs::path& source, const fs::path& destination) {
  std::error_code ignored;
  auto place = fs::absolute(destination).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  auto partial = place;
  partial += ".partial";
  if (fs::exists(place, ignored)) return taken(place);
  if (fs::exists(partial, ignored)) return taken(partial);
  BackupMark as{wall_us(), 0, {}};
  {
    const auto store = open_read_only(source);
    if (!store) return store.error();
    const LogInfo info = (*store)->info();
    as.certain_below = info.backup ? info.backup->certain_below : info.served;
  }
  lmdb::CreationGuard guard(partial);
  if (auto done = guard.make_directories(); !done) return done.error();
  guard.owns_files();
  if (auto done = copy_log(source, partial); !done) return done.error();
  if (auto done = mark_copy(partial, as); !done) return done.error();
  if (auto done = lmdb::sync_directory(partial); !done) return done.error();
  std::error_code code;
  fs::rename(partial, place, code);
  if (code) {
    return Error{Fault::io, "cannot name the backup " + place.string() + ": " + code.message()};
  }
  guard.keep();
  for (const auto& directory : guard.changed_directories()) {
    if (directory == partial) continue;  // it is the backup now
    if (auto synced = lmdb::sync_directory(directory); !synced) return synced.error();
  }
  const auto made = open_read_only(place);
  if (!made) return made.error();
  return (*made)->info();
}

}  // namespace twofold
