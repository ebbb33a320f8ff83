#include "log/decision_store.h"

#include <sys/random.h>

#include <cerrno>
#include <type_traits>
#include <utility>

#include "log/record_codec.h"
#include "protocol/check.h"
#include "protocol/text.h"
#include "protocol/utf8.h"

namespace twofold {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t index(LogTable table) {
  return static_cast<std::uint32_t>(table);
}

// Never zero: zero stands for none.
std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (number == 0) {
    if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) number = 0;
  }
  return number;
}

Mutation put(LogTable table, std::string key, std::string value) {
  return {Mutation::Kind::put, index(table), std::move(key), std::move(value)};
}

Mutation erase(LogTable table, std::string key) {
  return {Mutation::Kind::erase, index(table), std::move(key), {}};
}

template <class Record>
std::vector<Mutation> transaction_row(const Record& record) {
  auto key = transaction_key(record.id);
  auto row = encode_row(key, record);
  std::vector<Mutation> result;
  result.push_back(put(LogTable::transactions, std::move(key), std::move(row)));
  return result;
}

std::vector<Mutation> changes(const IntentRecord& record) {
  return transaction_row(record);
}
std::vector<Mutation> changes(const CommitRecord& record) {
  return transaction_row(record);
}
std::vector<Mutation> changes(const RefusalRecord& record) {
  return transaction_row(record);
}
std::vector<Mutation> changes(const EndRecord& record) {
  return transaction_row(record);
}

std::vector<Mutation> changes(const DroppedRecord& record) {
  return {erase(LogTable::transactions, transaction_key(record.id))};
}

std::vector<Mutation> changes(const HeuristicRecord& record) {
  auto key = heuristic_key(record.xid);
  auto row = encode_row(key, record);
  return {put(LogTable::heuristics, std::move(key), std::move(row))};
}

std::vector<Mutation> changes(const HeuristicForgottenRecord& record) {
  return {erase(LogTable::heuristics, heuristic_key(record.xid))};
}

std::vector<Mutation> changes(const PurgeRecord& record) {
  std::vector<Mutation> result;
  result.reserve(record.ids.size() + 1);
  for (const auto& id : record.ids) {
    result.push_back(erase(LogTable::transactions, transaction_key(id)));
  }
  result.push_back(
      put(LogTable::meta, std::string(kFloorKey), encode_floor(kFloorKey, record.floor)));
  return result;
}

std::vector<Mutation> changes(const ParticipantsRecord& record) {
  return {
      put(LogTable::meta, std::string(kParticipantsKey), encode_row(kParticipantsKey, record.all))};
}

// What is wrong, in which row, and what to do.
Error row_error(const fs::path& directory, const std::string& row, const Error& error) {
  auto message = directory.string() + ": " + row + ": " + error.message;
  if (error.fault == Fault::unsupported) {
    message += "; this log was written by a newer Twofold: use that one";
  } else {
    message +=
        "; see \"twofold-log verify " + directory.string() + "\", then restore the log from a copy";
  }
  return {error.fault, std::move(message)};
}

Error existing_log(const fs::path& directory) {
  return {Fault::exists, directory.string() +
                             " holds a log or other data already, nothing was changed: see "
                             "\"twofold-log dump " +
                             directory.string() + "\", or give another directory"};
}

// A row of meta, if it is there.
template <class Kind>
Result<std::optional<Kind>> read_meta(const lmdb::Environment& environment, std::string_view key) {
  const lmdb::Reader reader(environment);
  const auto bytes = reader.get(environment.table(index(LogTable::meta)), key);
  if (!bytes) return std::optional<Kind>();
  auto row = decode_row(key, *bytes);
  auto* kind = row ? std::get_if<Kind>(&*row) : nullptr;
  if (kind == nullptr) {
    return row_error(environment.directory(), "row " + std::string(key) + " of meta",
                     row ? Error{Fault::damaged, "it is of another kind"} : row.error());
  }
  return std::optional<Kind>(std::move(*kind));
}

// None: init was interrupted before it had named the log.
Result<std::optional<LogIdentity>> read_identity(const lmdb::Environment& environment) {
  auto read = read_meta<LogIdentity>(environment, kIdentityKey);
  if (!read || !*read) return read;
  const LogIdentity& identity = **read;
  if (identity.node.empty() || identity.log_id.value == 0) {
    return row_error(environment.directory(), "row identity of meta",
                     {Fault::damaged, "it does not name a log"});
  }
  if (identity.format > kLogFormat) {
    return row_error(environment.directory(), "row identity of meta",
                     {Fault::unsupported, "the log has format " + std::to_string(identity.format) +
                                              ", this program knows 1"});
  }
  return read;
}

Error no_room(const fs::path& directory, const std::string& for_what) {
  return {Fault::full, "there is no room for " + for_what + " in the log in " + directory.string() +
                           ": make room on its disk, or raise the number in its file map_bytes, "
                           "then start again"};
}

// Ascending, since keys are big-endian.
Result<std::vector<EpochRef>> read_epochs(const lmdb::Environment& environment) {
  std::vector<EpochRef> epochs;
  std::optional<Error> error;
  const lmdb::Reader reader(environment);
  reader.scan(environment.table(index(LogTable::epochs)), {},
              [&](std::string_view key, std::string_view bytes) {
                auto row = decode_row(key, bytes);
                auto* epoch = row ? std::get_if<EpochRef>(&*row) : nullptr;
                if (epoch != nullptr) {
                  epochs.push_back(*epoch);
                } else {
                  error = row ? Error{Fault::damaged, "it is no epoch"} : row.error();
                }
                return !error;
              });
  if (error) {
    const auto next = epochs.empty() ? 1 : epochs.back().number + 1;
    return row_error(environment.directory(), "row " + std::to_string(next) + " of epochs", *error);
  }
  return epochs;
}

bool valid_node(const std::string& node) {
  if (node.empty() || node.size() > kNodeBytesMax) return false;
  for (char c : node) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') return false;
  }
  return is_utf8(node);
}

// Creates the environment, or takes over one that an interrupted init left without an identity.
Result<std::unique_ptr<lmdb::Environment>> new_environment(
    const fs::path& directory, const lmdb::EnvironmentOptions& options) {
  auto created = lmdb::Environment::create(directory, options);
  if (created || created.error().fault != Fault::exists) return created;
  {
    auto present = lmdb::Environment::open_read_only(directory, options);
    if (!present) {
      return present.error().fault == Fault::damaged ? existing_log(directory) : present.error();
    }
    auto identity = read_identity(**present);
    if (!identity || *identity) return existing_log(directory);
  }
  return lmdb::Environment::open(directory, options);
}

// Collects the rows of a table; the first that is wrong ends it.
class Replay {
 public:
  Replay(const lmdb::Environment& environment, Recovered& recovered)
      : environment_(environment), reader_(environment), recovered_(recovered) {}

  Result<void> all() {
    if (auto done = meta(kFloorKey, recovered_.floor); !done) return done;
    if (auto done = meta(kParticipantsKey, recovered_.participants); !done) return done;
    if (auto done = table(LogTable::transactions, "transactions"); !done) return done;
    return table(LogTable::heuristics, "heuristics");
  }

 private:
  template <class Kind>
  Result<void> meta(std::string_view key, Kind& kept) {
    auto read = read_meta<Kind>(environment_, key);
    if (!read) return read.error();
    if (*read) kept = std::move(**read);
    return {};
  }

  Result<void> table(LogTable which, const std::string& table_name) {
    std::optional<Error> error;
    reader_.scan(environment_.table(index(which)), {},
                 [&](std::string_view key, std::string_view bytes) {
                   auto row = decode_row(key, bytes);
                   if (!row) {
                     error = row.error();
                   } else if (!take(which, std::move(*row))) {
                     error = Error{Fault::damaged, "it does not belong into this table"};
                   }
                   if (error)
                     *error = row_error(environment_.directory(),
                                        row_text(which, key) + " of " + table_name, *error);
                   return !error;
                 });
    if (error) return *error;
    return {};
  }

  static std::string row_text(LogTable which, std::string_view key) {
    const auto id = parse_transaction_key(key);
    if (which == LogTable::transactions && id) return "row " + to_text(*id);
    return "row " + base64url_encode(key);
  }

  bool take(LogTable which, Row row) {
    const bool heuristic = std::holds_alternative<HeuristicRecord>(row);
    if (heuristic != (which == LogTable::heuristics)) return false;
    return std::visit([&](auto& record) { return keep(std::move(record)); }, row);
  }

  template <class Record>
  bool keep(Record record) {
    if constexpr (std::is_same_v<Record, IntentRecord>) {
      recovered_.intents.push_back(std::move(record));
    } else if constexpr (std::is_same_v<Record, CommitRecord>) {
      recovered_.commits.push_back(std::move(record));
    } else if constexpr (std::is_same_v<Record, RefusalRecord>) {
      recovered_.refusals.push_back(std::move(record));
    } else if constexpr (std::is_same_v<Record, EndRecord>) {
      recovered_.ends.push_back(std::move(record));
    } else if constexpr (std::is_same_v<Record, HeuristicRecord>) {
      recovered_.heuristics.push_back(std::move(record));
    } else {
      return false;
    }
    return true;
  }

  const lmdb::Environment& environment_;
  lmdb::Reader reader_;
  Recovered& recovered_;
};

}  // namespace

std::vector<std::string> log_table_names() {
  return {"meta", "epochs", "transactions", "heuristics"};
}

Error missing_log(const fs::path& directory) {
  return {Fault::not_found, "there is no log in " + directory.string() +
                                ": name the one that this system has run with, if it has; a new "
                                "system's log is made with: twofold-log init " +
                                directory.string() + " --node NAME"};
}

Error marked_as_backup(const fs::path& directory, const BackupMark& mark) {
  const std::string why = mark.known_by.empty()
                              ? " is marked as a backup"
                              : " is marked as an older copy, since resource manager " +
                                    mark.known_by + " knows a later epoch of it";
  return {
      Fault::invalid,
      "the log in " + directory.string() + why +
          ": decisions made since are not in it. If a newer copy is left, start the coordinator "
          "on that one. If this is the newest there is, start it once with --restored "
          "(docs/backup.md says what that means)"};
}

std::vector<Mutation> mutations(const LogRecord& record) {
  return std::visit([](const auto& alternative) { return changes(alternative); }, record);
}

std::vector<Mutation> mutations(const ServedEpoch& served) {
  return {put(LogTable::meta, std::string(kServedKey), encode_row(kServedKey, served))};
}

std::vector<Mutation> mutations(const BackupMark& mark) {
  return {put(LogTable::meta, std::string(kBackupKey), encode_row(kBackupKey, mark))};
}

struct LmdbDecisionStore::State {
  std::unique_ptr<lmdb::Environment> environment;
  LogIdentity identity;
  std::vector<EpochRef> epochs;
  std::uint64_t served = 0;
  std::optional<BackupMark> backup;
  FormerLogs former;
  bool read_only = false;
  LmdbTarget target{*environment};

  static Result<std::unique_ptr<State>> load(std::unique_ptr<lmdb::Environment> environment,
                                             bool read_only) {
    auto identity = read_identity(*environment);
    if (!identity) return identity.error();
    if (!*identity) return missing_log(environment->directory());
    auto epochs = read_epochs(*environment);
    if (!epochs) return epochs.error();
    auto served = read_meta<ServedEpoch>(*environment, kServedKey);
    if (!served) return served.error();
    auto backup = read_meta<BackupMark>(*environment, kBackupKey);
    if (!backup) return backup.error();
    auto former = read_meta<FormerLogs>(*environment, kFormerKey);
    if (!former) return former.error();
    return std::unique_ptr<State>(
        new State{std::move(environment), std::move(**identity), std::move(*epochs),
                  served->value_or(ServedEpoch{}).number, std::move(*backup),
                  former->value_or(FormerLogs{}), read_only});
  }

  // Alone, before there is a GroupCommit.
  GroupTarget::Applied write(std::vector<Mutation> changes) {
    const Write write{0, std::move(changes), Urgency::now, true};
    const Write* const writes[] = {&write};
    return target.apply(target.last_group() + 1, writes);
  }
};

LmdbDecisionStore::LmdbDecisionStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
LmdbDecisionStore::~LmdbDecisionStore() = default;

Result<LogInfo> LmdbDecisionStore::init(const fs::path& directory, const std::string& node,
                                        std::uint64_t map_bytes) {
  if (!valid_node(node)) {
    return Error{Fault::invalid, "a node's name has 1 to " + std::to_string(kNodeBytesMax) +
                                     " bytes of UTF-8 without spaces, not \"" + shown(node) + "\""};
  }
  auto environment = new_environment(directory, {map_bytes, log_table_names()});
  if (!environment) {
    if (environment.error().fault == Fault::exists) return existing_log(directory);
    return environment.error();
  }
  const LogIdentity identity{node, {random_number()}, kLogFormat};
  const std::string key(kIdentityKey);
  const Write write{0, {put(LogTable::meta, key, encode_row(key, identity))}, Urgency::now, true};
  const Write* const writes[] = {&write};
  LmdbTarget target(**environment);
  if (target.apply(target.last_group() + 1, writes) != GroupTarget::Applied::durable) {
    return Error{Fault::full, "there is no room for a log in " + directory.string()};
  }
  auto state = State::load(std::move(*environment), false);
  if (!state) return state.error();
  return LmdbDecisionStore(std::move(*state)).info();
}

Result<std::unique_ptr<LmdbDecisionStore>> LmdbDecisionStore::open(const fs::path& directory) {
  auto environment = lmdb::Environment::open(directory, {0, log_table_names()});
  if (!environment) {
    if (environment.error().fault == Fault::not_found) return missing_log(directory);
    return environment.error();
  }
  auto state = State::load(std::move(*environment), false);
  if (!state) return state.error();
  return std::unique_ptr<LmdbDecisionStore>(new LmdbDecisionStore(std::move(*state)));
}

Result<std::unique_ptr<LmdbDecisionStore>> LmdbDecisionStore::open_read_only(
    const fs::path& directory) {
  auto environment = lmdb::Environment::open_read_only(directory, {0, log_table_names()});
  if (!environment) {
    if (environment.error().fault == Fault::not_found) return missing_log(directory);
    return environment.error();
  }
  auto state = State::load(std::move(*environment), true);
  if (!state) return state.error();
  return std::unique_ptr<LmdbDecisionStore>(new LmdbDecisionStore(std::move(*state)));
}

LogInfo LmdbDecisionStore::info() {
  const auto& environment = *state_->environment;
  return {state_->identity.node,
          state_->identity.log_id,
          state_->identity.format,
          environment.map_bytes(),
          environment.used_fraction(),
          state_->target.last_group(),
          state_->epochs,
          state_->served,
          state_->backup,
          state_->former};
}

Result<Epoch> LmdbDecisionStore::open_epoch() {
  if (state_->read_only) {
    return Error{Fault::invalid, "the log in " + state_->environment->directory().string() +
                                     " is open for reading only: an epoch cannot be opened"};
  }
  if (state_->backup) return marked_as_backup(state_->environment->directory(), *state_->backup);
  Epoch epoch{state_->identity.node, state_->identity.log_id, {}, state_->epochs, state_->former};
  epoch.current.number = epoch.earlier.empty() ? 1 : epoch.earlier.back().number + 1;
  epoch.current.nonce = random_number();
  auto key = epoch_key(epoch.current.number);
  auto row = encode_row(key, epoch.current);
  if (state_->write({put(LogTable::epochs, std::move(key), std::move(row))}) !=
      GroupTarget::Applied::durable) {
    return no_room(state_->environment->directory(), "a new epoch");
  }
  state_->epochs.push_back(epoch.current);
  return epoch;
}

Result<FormerLog> LmdbDecisionStore::restore() {
  TWOFOLD_CHECK(!state_->read_only);
  const auto& backup = state_->backup;
  const FormerLog before{state_->identity.log_id, backup ? backup->certain_below : state_->served};
  FormerLogs former = state_->former;
  former.push_back(before);
  LogIdentity identity = state_->identity;
  identity.log_id.value = random_number();
  auto participants = read_meta<Participants>(*state_->environment, kParticipantsKey);
  if (!participants) return participants.error();
  ParticipantsRecord known{participants->value_or(Participants{})};
  for (Participant& participant : known.all) participant.state = Participant::State::active;
  const std::string identity_key(kIdentityKey), former_key(kFormerKey);
  std::vector<Mutation> all = changes(known);
  all.push_back(put(LogTable::meta, identity_key, encode_row(identity_key, identity)));
  all.push_back(put(LogTable::meta, former_key, encode_row(former_key, former)));
  all.push_back(erase(LogTable::meta, std::string(kBackupKey)));
  if (state_->write(std::move(all)) != GroupTarget::Applied::durable) {
    return no_room(state_->environment->directory(), "a new log id");
  }
  state_->identity = std::move(identity);
  state_->former = std::move(former);
  state_->backup.reset();
  return before;
}

Result<Recovered> LmdbDecisionStore::replay() {
  Recovered recovered;
  if (auto done = Replay(*state_->environment, recovered).all(); !done) return done.error();
  return recovered;
}

GroupTarget& LmdbDecisionStore::target() {
  return state_->target;
}

}  // namespace twofold
