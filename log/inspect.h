// Looking at a decision log from outside: also at a damaged one, also beside a running coordinator.
// Changes nothing. The rows are copied out of one snapshot first, so that a slow reader of the
// output pins no pages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "log/decision_store.h"
#include "log/lmdb.h"
#include "log/record_codec.h"
#include "protocol/result.h"

namespace twofold {

struct InspectedRow {
  LogTable table = LogTable::meta;
  std::string key;
  Result<Row> row;
  std::string where;  // "row 3.17 of transactions"
};

struct Problem {
  std::string where;
  std::string what;
};

struct Inspection {
  std::filesystem::path directory;
  std::uint64_t map_bytes = 0;
  double used_fraction = 0;
  std::optional<std::uint64_t> group;
  std::vector<InspectedRow> rows;  // by table and key; the group number is not among them
};

// not_found, damaged (the pages do not check), unsupported, io.
Result<Inspection> inspect(const std::filesystem::path& directory);

// If it is marked as a backup. Never wrong by itself.
std::optional<BackupMark> backup_mark(const Inspection& inspection);
// "made by twofold-log backup at 2026-03-01 10:11:12 UTC", for people.
std::string describe(const BackupMark& mark);

// Everything that is wrong: rows that do not decode, keys that contradict their rows, rows in the
// wrong table, epochs that do not ascend, transactions of an epoch or log that this is not, no
// identity, no group number.
std::vector<Problem> verify(const Inspection& inspection);

// For people, and as one JSON object. Rows that do not decode are shown as such.
std::string dump_text(const Inspection& inspection);
std::string dump_json(const Inspection& inspection);

}  // namespace twofold
