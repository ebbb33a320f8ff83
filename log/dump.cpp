#include <spdlog/fmt/fmt.h>

#include <boost/json.hpp>
#include <ctime>

#include "log/inspect.h"
#include "protocol/text.h"

namespace twofold {
namespace {

namespace json = boost::json;

std::string hex(std::uint64_t number) {
  return fmt::format("{:016x}", number);
}

std::string rm_name(std::string_view bqual) {
  const auto decoded = Bqual::decode(bqual);
  return decoded ? printable(decoded->rm) : base64url_encode(bqual);
}

json::object describe(const BranchRecord& branch) {
  return {{"rm", rm_name(branch.xid.bqual)},
          {"xid", to_text(branch.xid)},
          {"store_id", hex(branch.store_id)}};
}

json::object transaction(const TxnId& id, RowKind kind, std::string_view gtrid,
                         const RequestRef& request) {
  const auto kind_name = name(kind);
  json::object out{{"id", to_text(id)},
                   {"kind", json::string_view(kind_name.data(), kind_name.size())},
                   {"gtrid", gtrid_text(gtrid)}};
  if (!request.id.empty()) {
    out["request_id"] = printable(request.id);
    out["payload_hash"] = hex(request.payload_hash);
  }
  return out;
}

json::object describe(const IntentRecord& record) {
  auto out = transaction(record.id, RowKind::intent, record.gtrid, record.request);
  out["branches"] = json::array{describe(record.branch)};
  return out;
}

json::object describe(const CommitRecord& record) {
  auto out = transaction(record.id, RowKind::commit, record.gtrid, record.request);
  auto& branches = out["branches"].emplace_array();
  for (const auto& branch : record.branches) branches.push_back(describe(branch));
  return out;
}

json::object describe(const RefusalRecord& record) {
  auto out = transaction(record.id, RowKind::refusal, record.gtrid, record.request);
  auto& refusals = out["refusals"].emplace_array();
  for (const auto& refusal : record.refusals) {
    refusals.push_back(json::object{{"rm", printable(refusal.rm)},
                                    {"operation", refusal.operation},
                                    {"op", printable(refusal.op)},
                                    {"check", printable(refusal.check)},
                                    {"key", printable(refusal.key)},
                                    {"value", printable(refusal.value)},
                                    {"limit", printable(refusal.limit)}});
  }
  return out;
}

json::object describe(const EndRecord& record) {
  auto out = transaction(record.id, RowKind::end, record.gtrid, record.request);
  auto& branches = out["branches"].emplace_array();
  for (const auto& bqual : record.bquals) {
    branches.push_back(json::object{{"rm", rm_name(bqual)}, {"bqual", base64url_encode(bqual)}});
  }
  return out;
}

json::object describe(const HeuristicRecord& record) {
  const auto code = name(record.code);
  return {{"id", to_text(record.id)},
          {"rm", rm_name(record.xid.bqual)},
          {"xid", to_text(record.xid)},
          {"code", json::string_view(code.data(), code.size())},
          {"decided", record.decided_commit ? "commit" : "abort"}};
}

json::object describe(const EpochRef& epoch) {
  return {{"number", epoch.number}, {"nonce", hex(epoch.nonce)}};
}

json::object describe(const FormerLog& log) {
  return {{"log_id", hex(log.id.value)}, {"certain_below", log.certain_below}};
}

json::object describe(const Participant& participant) {
  const auto state = name(participant.state);
  return {{"rm", printable(participant.name)},
          {"store_id", hex(participant.store_id)},
          {"state", json::string_view(state.data(), state.size())}};
}

std::string utc(std::int64_t wall_us) {
  const auto seconds = static_cast<std::time_t>(wall_us / 1'000'000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const auto size = std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return {text, size};
}

// Files each row under its table.
class Json {
 public:
  explicit Json(const Inspection& inspection) {
    out_ = {{"directory", printable(inspection.directory.string())},
            {"node", nullptr},
            {"log_id", nullptr},
            {"format", nullptr},
            {"map_bytes", inspection.map_bytes},
            {"used_fraction", inspection.used_fraction},
            {"group", inspection.group ? json::value(*inspection.group) : json::value(nullptr)},
            {"floor", "0.0"},
            {"served", 0},
            {"backup", nullptr}};
    for (const char* list :
         {"former", "participants", "epochs", "transactions", "heuristics", "problems"}) {
      out_[list].emplace_array();
    }
    for (const auto& row : inspection.rows) {
      if (row.row) std::visit([this](const auto& value) { add(value); }, *row.row);
    }
    for (const auto& problem : verify(inspection)) {
      out_["problems"].as_array().push_back(
          json::object{{"where", printable(problem.where)}, {"what", printable(problem.what)}});
    }
  }
  const json::object& out() const { return out_; }

 private:
  void add(const LogIdentity& identity) {
    out_["node"] = printable(identity.node);
    out_["log_id"] = hex(identity.log_id.value);
    out_["format"] = identity.format;
  }
  void add(const TxnId& floor) { out_["floor"] = to_text(floor); }
  void add(const ServedEpoch& served) { out_["served"] = served.number; }
  void add(const BackupMark& mark) {
    out_["backup"] = {{"wall_us", mark.wall_us},
                      {"certain_below", mark.certain_below},
                      {"known_by", printable(mark.known_by)}};
  }
  void add(const FormerLogs& former) {
    for (const FormerLog& log : former) out_["former"].as_array().push_back(describe(log));
  }
  void add(const Participants& participants) {
    for (const Participant& one : participants) {
      out_["participants"].as_array().push_back(describe(one));
    }
  }
  void add(const EpochRef& epoch) { out_["epochs"].as_array().push_back(describe(epoch)); }
  void add(const HeuristicRecord& record) {
    out_["heuristics"].as_array().push_back(describe(record));
  }
  template <class Record>
  void add(const Record& record) {
    out_["transactions"].as_array().push_back(describe(record));
  }

  json::object out_;
};

std::string text(const json::value& value) {
  return value.is_string() ? std::string(value.as_string()) : json::serialize(value);
}

std::string transaction_lines(const json::object& row) {
  std::string out = fmt::format("  {:<12} {:<8} {}", text(row.at("id")), text(row.at("kind")),
                                text(row.at("gtrid")));
  if (const auto* request = row.if_contains("request_id")) {
    out += fmt::format("  request {}", text(*request));
  }
  out += "\n";
  if (const auto* branches = row.if_contains("branches")) {
    for (const auto& item : branches->as_array()) {
      const auto& branch = item.as_object();
      const auto* xid = branch.if_contains("xid");
      out += fmt::format("      {:<16} {}\n", text(branch.at("rm")),
                         text(xid != nullptr ? *xid : branch.at("bqual")));
    }
  }
  if (const auto* refusals = row.if_contains("refusals")) {
    for (const auto& item : refusals->as_array()) {
      const auto& check = item.as_object();
      out += fmt::format("      {:<16} {} {}: found {}, {} {}\n", text(check.at("rm")),
                         text(check.at("op")), text(check.at("key")), text(check.at("value")),
                         text(check.at("check")), text(check.at("limit")));
    }
  }
  return out;
}

}  // namespace

std::string describe(const BackupMark& mark) {
  if (mark.known_by.empty()) return "made by twofold-log backup at " + utc(mark.wall_us);
  return "found out at " + utc(mark.wall_us) + ": resource manager " + printable(mark.known_by) +
         " knows a later epoch";
}

std::string dump_json(const Inspection& inspection) {
  return json::serialize(Json(inspection).out()) + "\n";
}

std::string dump_text(const Inspection& inspection) {
  const Json dumped(inspection);
  const auto& log = dumped.out();
  std::string out = fmt::format(
      "log of node {}, log id {}, format {}\nmap of {} bytes, {:.1f} % used; last group {}; floor "
      "{}\n",
      text(log.at("node")), text(log.at("log_id")), text(log.at("format")), inspection.map_bytes,
      100 * inspection.used_fraction, text(log.at("group")), text(log.at("floor")));
  if (const auto mark = backup_mark(inspection)) {
    out += fmt::format("BACKUP, {}: a coordinator starts on it with --restored only\n",
                       describe(*mark));
  }
  for (const auto& item : log.at("former").as_array()) {
    out += fmt::format("restored from log id {}, certain below epoch {}\n", text(item.at("log_id")),
                       text(item.at("certain_below")));
  }
  auto heading = [&](const char* list) -> const json::array& {
    const auto& items = log.at(list).as_array();
    out += fmt::format("{} ({})\n", list, items.size());
    return items;
  };
  for (const auto& item : heading("participants")) {
    out += fmt::format("  {:<16} {:<8} store {}\n", text(item.at("rm")), text(item.at("state")),
                       text(item.at("store_id")));
  }
  for (const auto& item : heading("epochs")) {
    out += fmt::format("  {:<12} nonce {}\n", text(item.at("number")), text(item.at("nonce")));
  }
  for (const auto& item : heading("transactions")) out += transaction_lines(item.as_object());
  for (const auto& item : heading("heuristics")) {
    out += fmt::format("  {:<12} {} {} where {} was decided  {}\n", text(item.at("id")),
                       text(item.at("rm")), text(item.at("code")), text(item.at("decided")),
                       text(item.at("xid")));
  }
  if (log.at("problems").as_array().empty()) return out;
  for (const auto& item : heading("problems")) {
    out += fmt::format("  {}: {}\n", text(item.at("where")), text(item.at("what")));
  }
  return out;
}

}  // namespace twofold
