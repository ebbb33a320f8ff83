#include "log/record_codec.h"

#include <zlib.h>

#include <utility>

#include "log/record.pb.h"
#include "protocol/check.h"

namespace twofold {
namespace {

constexpr std::size_t kHeaderBytes = 2;
constexpr std::size_t kTrailerBytes = 4;

void append_number(std::string& out, std::uint64_t number, std::size_t bytes) {
  for (std::size_t i = bytes; i-- > 0;) out.push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

std::uint64_t read_number(std::string_view bytes) {
  std::uint64_t number = 0;
  for (char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

std::uint32_t checksum(std::string_view key, std::string_view row) {
  auto add = [](uLong crc, std::string_view bytes) {
    return crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  };
  return static_cast<std::uint32_t>(add(add(0, key), row));
}

std::string make_row(std::string_view key, RowKind kind,
                     const google::protobuf::MessageLite& payload) {
  std::string row;
  row.reserve(kHeaderBytes + payload.ByteSizeLong() + kTrailerBytes);
  row.push_back(static_cast<char>(kRowVersion));
  row.push_back(static_cast<char>(kind));
  TWOFOLD_CHECK(payload.AppendToString(&row));
  append_number(row, checksum(key, row), kTrailerBytes);
  return row;
}

void set_request(record::Request& out, const RequestRef& request) {
  out.set_id(request.id);
  out.set_payload_hash(request.payload_hash);
}

RequestRef get_request(const record::Request& request) {
  return {request.id(), request.payload_hash()};
}

void set_xid(record::Branch& out, const Xid& xid, std::string_view gtrid) {
  out.set_format_id(xid.format_id);
  if (xid.gtrid != gtrid) out.set_gtrid(xid.gtrid);
  out.set_bqual(xid.bqual);
}

void set_branch(record::Branch& out, const BranchRecord& branch, std::string_view gtrid) {
  set_xid(out, branch.xid, gtrid);
  out.set_store_id(branch.store_id);
}

BranchRecord get_branch(const record::Branch& branch, const std::string& gtrid) {
  return {{branch.format_id(), branch.gtrid().empty() ? gtrid : branch.gtrid(), branch.bqual()},
          branch.store_id()};
}

Error damaged(std::string what) {
  return {Fault::damaged, std::move(what)};
}

template <class Message>
std::optional<Message> parse(std::string_view payload) {
  Message message;
  if (!message.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    return std::nullopt;
  return message;
}

Error does_not_parse() {
  return damaged("its payload does not parse");
}

Error wrong_key() {
  return damaged("its key is not one of this kind of row");
}

Result<Row> decode_identity(std::string_view, std::string_view payload) {
  const auto message = parse<record::Identity>(payload);
  if (!message) return does_not_parse();
  return LogIdentity{message->node(), {message->log_id()}, message->format()};
}

Result<Row> decode_floor(std::string_view, std::string_view payload) {
  const auto message = parse<record::Floor>(payload);
  if (!message) return does_not_parse();
  return TxnId{message->epoch(), message->sequence()};
}

Result<Row> decode_epoch(std::string_view key, std::string_view payload) {
  const auto number = parse_epoch_key(key);
  if (!number) return wrong_key();
  const auto message = parse<record::Epoch>(payload);
  if (!message) return does_not_parse();
  return EpochRef{*number, message->nonce()};
}

Result<Row> decode_served(std::string_view payload) {
  const auto message = parse<record::Served>(payload);
  if (!message) return does_not_parse();
  return ServedEpoch{message->epoch()};
}

Result<Row> decode_backup(std::string_view payload) {
  const auto message = parse<record::Backup>(payload);
  if (!message) return does_not_parse();
  return BackupMark{message->wall_us(), message->certain_below(), message->known_by()};
}

Result<Row> decode_former(std::string_view payload) {
  const auto message = parse<record::Former>(payload);
  if (!message) return does_not_parse();
  FormerLogs former;
  for (const auto& log : message->logs()) {
    former.push_back({{log.log_id()}, log.certain_below()});
  }
  return former;
}

Result<Row> decode_participants(std::string_view payload) {
  const auto message = parse<record::Participants>(payload);
  if (!message) return does_not_parse();
  Participants participants;
  for (const auto& one : message->all()) {
    if (one.state() > static_cast<std::uint32_t>(Participant::State::drained)) {
      return damaged("it has a participant in a state that there is not");
    }
    participants.push_back(
        {one.name(), one.store_id(), static_cast<Participant::State>(one.state())});
  }
  return participants;
}

Result<Row> decode_intent(const TxnId& id, std::string_view payload) {
  const auto message = parse<record::Intent>(payload);
  if (!message) return does_not_parse();
  return IntentRecord{id, message->gtrid(), get_branch(message->branch(), message->gtrid()),
                      get_request(message->request())};
}

Result<Row> decode_commit(const TxnId& id, std::string_view payload) {
  const auto message = parse<record::Commit>(payload);
  if (!message) return does_not_parse();
  CommitRecord record{id, message->gtrid(), {}, get_request(message->request())};
  for (const auto& branch : message->branches()) {
    record.branches.push_back(get_branch(branch, message->gtrid()));
  }
  return record;
}

Result<Row> decode_refusal(const TxnId& id, std::string_view payload) {
  const auto message = parse<record::Refusal>(payload);
  if (!message) return does_not_parse();
  RefusalRecord record{id, message->gtrid(), get_request(message->request()), {}};
  for (const auto& check : message->refusals()) {
    record.refusals.push_back({check.rm(), check.operation(), check.op(), check.check(),
                               check.key(), check.value(), check.limit()});
  }
  return record;
}

Result<Row> decode_end(const TxnId& id, std::string_view payload) {
  const auto message = parse<record::End>(payload);
  if (!message) return does_not_parse();
  return EndRecord{id,
                   message->gtrid(),
                   {message->bquals().begin(), message->bquals().end()},
                   get_request(message->request())};
}

Result<Row> decode_heuristic(std::string_view key, std::string_view payload) {
  const auto message = parse<record::Heuristic>(payload);
  if (!message) return does_not_parse();
  HeuristicRecord record{{message->epoch(), message->sequence()},
                         get_branch(message->branch(), {}).xid,
                         static_cast<Xa>(message->code()),
                         message->decided_commit()};
  if (heuristic_key(record.xid) != key) return wrong_key();
  if (!is_heuristic(record.code)) return damaged("its code is not a heuristic result");
  return record;
}

Result<Row> decode_transaction(RowKind kind, std::string_view key, std::string_view payload) {
  const auto id = parse_transaction_key(key);
  if (!id) return wrong_key();
  switch (kind) {
    case RowKind::intent: return decode_intent(*id, payload);
    case RowKind::commit: return decode_commit(*id, payload);
    case RowKind::refusal: return decode_refusal(*id, payload);
    default: return decode_end(*id, payload);
  }
}

}  // namespace

std::string_view name(RowKind kind) {
  switch (kind) {
    case RowKind::identity: return "identity";
    case RowKind::floor: return "floor";
    case RowKind::epoch: return "epoch";
    case RowKind::intent: return "intent";
    case RowKind::commit: return "commit";
    case RowKind::refusal: return "refusal";
    case RowKind::end: return "end";
    case RowKind::heuristic: return "heuristic";
    case RowKind::served: return "served";
    case RowKind::backup: return "backup";
    case RowKind::former: return "former";
    case RowKind::participants: return "participants";
  }
  return "unknown";
}

std::string transaction_key(const TxnId& id) {
  std::string key;
  append_number(key, id.epoch, 8);
  append_number(key, id.sequence, 8);
  return key;
}

std::optional<TxnId> parse_transaction_key(std::string_view key) {
  if (key.size() != 16) return std::nullopt;
  return TxnId{read_number(key.substr(0, 8)), read_number(key.substr(8))};
}

std::string epoch_key(std::uint64_t number) {
  std::string key;
  append_number(key, number, 8);
  return key;
}

std::optional<std::uint64_t> parse_epoch_key(std::string_view key) {
  if (key.size() != 8) return std::nullopt;
  return read_number(key);
}

std::string heuristic_key(const Xid& xid) {
  std::string key;
  append_number(key, static_cast<std::uint32_t>(xid.format_id), 4);
  append_number(key, xid.gtrid.size(), 1);
  return key + xid.gtrid + xid.bqual;
}

std::string encode_row(std::string_view key, const LogIdentity& identity) {
  record::Identity message;
  message.set_node(identity.node);
  message.set_log_id(identity.log_id.value);
  message.set_format(identity.format);
  return make_row(key, RowKind::identity, message);
}

std::string encode_floor(std::string_view key, const TxnId& floor) {
  record::Floor message;
  message.set_epoch(floor.epoch);
  message.set_sequence(floor.sequence);
  return make_row(key, RowKind::floor, message);
}

std::string encode_row(std::string_view key, const EpochRef& epoch) {
  record::Epoch message;
  message.set_nonce(epoch.nonce);
  return make_row(key, RowKind::epoch, message);
}

std::string encode_row(std::string_view key, const ServedEpoch& served) {
  record::Served message;
  message.set_epoch(served.number);
  return make_row(key, RowKind::served, message);
}

std::string encode_row(std::string_view key, const BackupMark& mark) {
  record::Backup message;
  message.set_wall_us(mark.wall_us);
  message.set_certain_below(mark.certain_below);
  message.set_known_by(mark.known_by);
  return make_row(key, RowKind::backup, message);
}

std::string encode_row(std::string_view key, const FormerLogs& former) {
  record::Former message;
  for (const FormerLog& log : former) {
    auto& out = *message.add_logs();
    out.set_log_id(log.id.value);
    out.set_certain_below(log.certain_below);
  }
  return make_row(key, RowKind::former, message);
}

std::string encode_row(std::string_view key, const Participants& participants) {
  record::Participants message;
  for (const Participant& participant : participants) {
    auto& out = *message.add_all();
    out.set_name(participant.name);
    out.set_store_id(participant.store_id);
    out.set_state(static_cast<std::uint32_t>(participant.state));
  }
  return make_row(key, RowKind::participants, message);
}

std::string encode_row(std::string_view key, const IntentRecord& record) {
  record::Intent message;
  message.set_gtrid(record.gtrid);
  set_branch(*message.mutable_branch(), record.branch, record.gtrid);
  set_request(*message.mutable_request(), record.request);
  return make_row(key, RowKind::intent, message);
}

std::string encode_row(std::string_view key, const CommitRecord& record) {
  record::Commit message;
  message.set_gtrid(record.gtrid);
  for (const auto& branch : record.branches) {
    set_branch(*message.add_branches(), branch, record.gtrid);
  }
  set_request(*message.mutable_request(), record.request);
  return make_row(key, RowKind::commit, message);
}

std::string encode_row(std::string_view key, const RefusalRecord& record) {
  record::Refusal message;
  message.set_gtrid(record.gtrid);
  set_request(*message.mutable_request(), record.request);
  for (const auto& refusal : record.refusals) {
    auto& check = *message.add_refusals();
    check.set_rm(refusal.rm);
    check.set_operation(refusal.operation);
    check.set_op(refusal.op);
    check.set_check(refusal.check);
    check.set_key(refusal.key);
    check.set_value(refusal.value);
    check.set_limit(refusal.limit);
  }
  return make_row(key, RowKind::refusal, message);
}

std::string encode_row(std::string_view key, const EndRecord& record) {
  record::End message;
  message.set_gtrid(record.gtrid);
  for (const auto& bqual : record.bquals) message.add_bquals(bqual);
  set_request(*message.mutable_request(), record.request);
  return make_row(key, RowKind::end, message);
}

std::string encode_row(std::string_view key, const HeuristicRecord& record) {
  record::Heuristic message;
  message.set_epoch(record.id.epoch);
  message.set_sequence(record.id.sequence);
  set_xid(*message.mutable_branch(), record.xid, {});
  message.set_code(static_cast<std::int32_t>(record.code));
  message.set_decided_commit(record.decided_commit);
  return make_row(key, RowKind::heuristic, message);
}

Result<Row> decode_row(std::string_view key, std::string_view bytes) {
  if (bytes.empty()) return damaged("it is empty");
  const auto version = static_cast<std::uint8_t>(bytes[0]);
  if (version > kRowVersion) {
    return Error{Fault::unsupported, "it has version " + std::to_string(version) +
                                         ", this program knows " + std::to_string(kRowVersion)};
  }
  if (version == 0 || bytes.size() < kHeaderBytes + kTrailerBytes) {
    return damaged("it has no header");
  }
  const auto body = bytes.substr(0, bytes.size() - kTrailerBytes);
  if (read_number(bytes.substr(body.size())) != checksum(key, body)) {
    return damaged("its checksum is wrong");
  }
  const auto kind = static_cast<RowKind>(bytes[1]);
  const auto payload = body.substr(kHeaderBytes);
  switch (kind) {
    case RowKind::identity: return decode_identity(key, payload);
    case RowKind::floor: return decode_floor(key, payload);
    case RowKind::epoch: return decode_epoch(key, payload);
    case RowKind::intent:
    case RowKind::commit:
    case RowKind::refusal:
    case RowKind::end: return decode_transaction(kind, key, payload);
    case RowKind::heuristic: return decode_heuristic(key, payload);
    case RowKind::served: return decode_served(payload);
    case RowKind::backup: return decode_backup(payload);
    case RowKind::former: return decode_former(payload);
    case RowKind::participants: return decode_participants(payload);
  }
  return Error{Fault::unsupported, "it is of kind " + std::to_string(static_cast<int>(kind)) +
                                       ", which this program does not know"};
}

}  // namespace twofold
