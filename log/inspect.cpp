#include "log/inspect.h"

#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>

namespace twofold {
namespace {

std::string row_name(LogTable table, std::string_view key) {
  switch (table) {
    case LogTable::meta: return "row " + std::string(key) + " of meta";
    case LogTable::epochs: {
      const auto number = parse_epoch_key(key);
      return "row " + (number ? std::to_string(*number) : base64url_encode(key)) + " of epochs";
    }
    case LogTable::transactions: {
      const auto id = parse_transaction_key(key);
      return "row " + (id ? to_text(*id) : base64url_encode(key)) + " of transactions";
    }
    case LogTable::heuristics: break;
  }
  return "row " + base64url_encode(key) + " of heuristics";
}

std::optional<std::uint64_t> parse_group(std::string_view bytes) {
  return parse_epoch_key(bytes);  // the same eight bytes
}

class Verifier {
 public:
  explicit Verifier(const Inspection& inspection) : inspection_(inspection) {}

  std::vector<Problem> all() {
    for (const auto& row : inspection_.rows) learn(row);
    if (!identity_) add("row identity of meta", "it is missing: the log's init was interrupted");
    if (!inspection_.group) add("row group of meta", "it is missing or not 8 bytes long");
    for (const auto& row : inspection_.rows) check(row);
    return std::move(problems_);
  }

 private:
  void add(std::string where, std::string what) {
    problems_.push_back({std::move(where), std::move(what)});
  }

  void learn(const InspectedRow& row) {
    if (!row.row) return;
    if (const auto* identity = std::get_if<LogIdentity>(&*row.row)) identity_ = *identity;
    if (const auto* former = std::get_if<FormerLogs>(&*row.row)) former_ = *former;
    if (const auto* epoch = std::get_if<EpochRef>(&*row.row)) nonces_[epoch->number] = epoch->nonce;
  }

  void check(const InspectedRow& row) {
    if (!row.row) {
      add(row.where, row.row.error().message);
    } else if (!belongs(row)) {
      add(row.where, "it does not belong into this table");
    } else {
      std::visit([&](const auto& value) { check(row, value); }, *row.row);
    }
  }

  static bool belongs(const InspectedRow& row) {
    switch (row.table) {
      case LogTable::meta: return belongs_to_meta(row);
      case LogTable::epochs: return std::holds_alternative<EpochRef>(*row.row);
      case LogTable::heuristics: return std::holds_alternative<HeuristicRecord>(*row.row);
      case LogTable::transactions: break;
    }
    return std::holds_alternative<IntentRecord>(*row.row) ||
           std::holds_alternative<CommitRecord>(*row.row) ||
           std::holds_alternative<RefusalRecord>(*row.row) ||
           std::holds_alternative<EndRecord>(*row.row);
  }

  static bool belongs_to_meta(const InspectedRow& row) {
    if (row.key == kIdentityKey) return std::holds_alternative<LogIdentity>(*row.row);
    if (row.key == kServedKey) return std::holds_alternative<ServedEpoch>(*row.row);
    if (row.key == kBackupKey) return std::holds_alternative<BackupMark>(*row.row);
    if (row.key == kFormerKey) return std::holds_alternative<FormerLogs>(*row.row);
    if (row.key == kParticipantsKey) return std::holds_alternative<Participants>(*row.row);
    return row.key == kFloorKey && std::holds_alternative<TxnId>(*row.row);
  }

  void check(const InspectedRow& row, const LogIdentity& identity) {
    if (identity.node.empty() || identity.log_id.value == 0) add(row.where, "it names no log");
    if (identity.format != kLogFormat) {
      add(row.where, "the log has format " + std::to_string(identity.format) +
                         ", this program knows " + std::to_string(kLogFormat));
    }
  }

  void check(const InspectedRow& row, const TxnId& floor) { check_epoch(row, floor); }

  void check(const InspectedRow& row, const ServedEpoch& served) {
    check_epoch(row, {served.number, 0});
  }

  // Of a copy in which nothing is certain it is 0.
  void check(const InspectedRow& row, const BackupMark& mark) {
    if (mark.certain_below != 0) check_epoch(row, {mark.certain_below, 0});
  }

  void check(const InspectedRow& row, const FormerLogs& former) {
    for (const FormerLog& log : former) {
      if (log.id.value == 0) add(row.where, "it names no log");
      if (log.certain_below != 0) check_epoch(row, {log.certain_below, 0});
    }
  }

  void check(const InspectedRow& row, const Participants& participants) {
    for (const Participant& participant : participants) {
      if (participant.name.empty()) add(row.where, "a participant has no name");
    }
  }

  // Numbers ascend by one from one: each start of a coordinator took the next.
  void check(const InspectedRow& row, const EpochRef& epoch) {
    if (epoch.number != last_epoch_ + 1) {
      add(row.where, "the epoch before it is " + std::to_string(last_epoch_) +
                         ": rows are missing, or were added by something else");
    }
    last_epoch_ = epoch.number;
    if (epoch.nonce == 0) add(row.where, "its nonce is missing");
  }

  void check(const InspectedRow& row, const IntentRecord& record) {
    check_gtrid(row, record.id, record.gtrid);
    check_branch(row, record.gtrid, record.branch);
  }

  void check(const InspectedRow& row, const CommitRecord& record) {
    check_gtrid(row, record.id, record.gtrid);
    for (const auto& branch : record.branches) check_branch(row, record.gtrid, branch);
    if (record.branches.empty()) add(row.where, "it commits no branch");
  }

  void check(const InspectedRow& row, const RefusalRecord& record) {
    check_gtrid(row, record.id, record.gtrid);
  }

  void check(const InspectedRow& row, const EndRecord& record) {
    check_gtrid(row, record.id, record.gtrid);
  }

  void check(const InspectedRow& row, const HeuristicRecord& record) {
    check_epoch(row, record.id);
    if (!valid(record.xid)) add(row.where, "its xid is not valid");
  }

  void check_epoch(const InspectedRow& row, const TxnId& id) {
    if (!nonces_.contains(id.epoch)) {
      add(row.where, "its epoch " + std::to_string(id.epoch) + " was not recorded by this log");
    }
  }

  bool is_ours(const Gtrid& gtrid) const {
    if (!identity_) return true;
    return gtrid.node == identity_->node &&
           (gtrid.log_id == identity_->log_id ||
            std::any_of(former_.begin(), former_.end(),
                        [&](const FormerLog& log) { return log.id == gtrid.log_id; }));
  }

  // Rule 2: this node, this log id or a former one, an epoch and nonce that this log recorded.
  void check_gtrid(const InspectedRow& row, const TxnId& id, const std::string& bytes) {
    const auto gtrid = Gtrid::decode(bytes);
    if (!gtrid) {
      add(row.where, "its gtrid is not one of Twofold's");
      return;
    }
    if (gtrid->txn_id() != id) add(row.where, "its gtrid is that of " + to_text(gtrid->txn_id()));
    check_epoch(row, id);
    const auto nonce = nonces_.find(id.epoch);
    if (!is_ours(*gtrid)) add(row.where, "its gtrid is of another log");
    if (nonce != nonces_.end() && nonce->second != gtrid->nonce) {
      add(row.where, "its gtrid has another nonce than its epoch");
    }
  }

  void check_branch(const InspectedRow& row, const std::string& gtrid, const BranchRecord& branch) {
    if (!valid(branch.xid)) add(row.where, "an xid of it is not valid");
    if (branch.xid.gtrid != gtrid) add(row.where, "a branch of it is of another transaction");
  }

  const Inspection& inspection_;
  std::vector<Problem> problems_;
  std::optional<LogIdentity> identity_;
  FormerLogs former_;
  std::map<std::uint64_t, std::uint64_t> nonces_;
  std::uint64_t last_epoch_ = 0;
};

}  // namespace

Result<Inspection> inspect(const std::filesystem::path& directory) {
  auto opened = lmdb::Environment::open_read_only(directory, {0, log_table_names()});
  if (!opened) {
    return opened.error().fault == Fault::not_found ? missing_log(directory) : opened.error();
  }
  const auto& environment = **opened;
  Inspection result;
  result.directory = directory;
  result.map_bytes = environment.map_bytes();
  result.used_fraction = environment.used_fraction();
  const lmdb::Reader reader(environment);
  for (std::uint32_t index = 0; index < log_table_names().size(); ++index) {
    const auto table = static_cast<LogTable>(index);
    reader.scan(environment.table(index), {}, [&](std::string_view key, std::string_view bytes) {
      if (table == LogTable::meta && key == kGroupKey) {
        result.group = parse_group(bytes);
      } else {
        result.rows.push_back(
            {table, std::string(key), decode_row(key, bytes), row_name(table, key)});
      }
      return true;
    });
  }
  return result;
}

std::optional<BackupMark> backup_mark(const Inspection& inspection) {
  for (const auto& row : inspection.rows) {
    if (!row.row || row.table != LogTable::meta || row.key != kBackupKey) continue;
    if (const auto* mark = std::get_if<BackupMark>(&*row.row)) return *mark;
  }
  return std::nullopt;
}

std::vector<Problem> verify(const Inspection& inspection) {
  return Verifier(inspection).all();
}

}  // namespace twofold
