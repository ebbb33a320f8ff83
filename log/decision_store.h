// The decision store: where a coordinator's decisions survive (rules 1, 2 and 4 to 8). A small
// blocking interface, so that a replicated store can stand behind it one day: open an epoch, apply
// groups, replay.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "log/group_commit.h"
#include "log/record.h"
#include "protocol/result.h"

namespace twofold {

// The environment's tables, in this order (docs/log_format.md).
enum class LogTable : std::uint32_t { meta = 0, epochs = 1, transactions = 2, heuristics = 3 };

// The tables' names, in that order, and the keys of table meta.
std::vector<std::string> log_table_names();
inline constexpr std::string_view kIdentityKey = "identity";
inline constexpr std::string_view kFloorKey = "floor";
inline constexpr std::string_view kServedKey = "served";
inline constexpr std::string_view kBackupKey = "backup";
inline constexpr std::string_view kFormerKey = "former";
inline constexpr std::string_view kParticipantsKey = "participants";
inline constexpr std::string_view kGroupKey = "group";  // not a row: 8 bytes, see LmdbTarget

// The changes that a record makes. Every row carries its version (log/record_codec.h).
std::vector<Mutation> mutations(const LogRecord& record);
std::vector<Mutation> mutations(const ServedEpoch& served);
std::vector<Mutation> mutations(const BackupMark& mark);

struct LogInfo {
  std::string node;
  LogId log_id;
  std::uint32_t format = 0;
  std::uint64_t map_bytes = 0;
  double used_fraction = 0;
  std::uint64_t group = 0;
  std::vector<EpochRef> epochs;
  std::uint64_t served = 0;          // the newest epoch that was, 0: none
  std::optional<BackupMark> backup;  // marked as one
  FormerLogs former;
};

// What to tell a person whose directory holds no log.
Error missing_log(const std::filesystem::path& directory);
// What to tell a person who starts on a log that is marked as a backup (rule 2).
Error marked_as_backup(const std::filesystem::path& directory, const BackupMark& mark);

class DecisionStore {
 public:
  virtual ~DecisionStore() = default;
  virtual LogInfo info() = 0;
  // A new epoch, durable before it returns (rule 1). Before a GroupCommit is made for target().
  // full: there is no room, and nothing was written. invalid: this is marked as a backup (rule 2).
  virtual Result<Epoch> open_epoch() = 0;
  // Rule 2: the operator says that this is an older copy of its log. It gets a new log id and
  // remembers the former one, with what is certain of its epochs; a mark as a backup goes, and no
  // participant counts as drained, since it may have been taken back later. Durable before it
  // returns, all or nothing. Before open_epoch(). full: as there.
  virtual Result<FormerLog> restore() = 0;
  // Everything there is. damaged or unsupported: what was found, in which row, and what to do.
  virtual Result<Recovered> replay() = 0;
  virtual GroupTarget& target() = 0;
};

class LmdbDecisionStore final : public DecisionStore {
 public:
  // Rule 1: only an explicit init creates a log. Fault::exists if there is one already.
  // invalid: the node's name or the map's size; full: no room, and nothing is left behind.
  static Result<LogInfo> init(const std::filesystem::path& directory, const std::string& node,
                              std::uint64_t map_bytes);
  // not_found, busy, damaged, unsupported: the message says what to do.
  static Result<std::unique_ptr<LmdbDecisionStore>> open(const std::filesystem::path& directory);
  // For twofold-log: works beside a running coordinator, changes nothing; open_epoch() is refused.
  static Result<std::unique_ptr<LmdbDecisionStore>> open_read_only(
      const std::filesystem::path& directory);
  // Copies what is durable now, also beside a running coordinator, and marks the copy as a backup.
  // `destination` is there complete or not at all; exists: there is something already. The copy
  // takes as many blocks as the source has used, not its whole map (backup.cpp).
  static Result<LogInfo> back_up(const std::filesystem::path& source,
                                 const std::filesystem::path& destination);
  ~LmdbDecisionStore() override;

  LogInfo info() override;
  Result<Epoch> open_epoch() override;
  Result<FormerLog> restore() override;
  Result<Recovered> replay() override;
  GroupTarget& target() override;

 private:
  struct State;
  explicit LmdbDecisionStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace twofold
