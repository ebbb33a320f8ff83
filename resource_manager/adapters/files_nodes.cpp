#include "resource_manager/adapters/files_nodes.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "resource_manager/adapters/files_io.h"

namespace twofold::resource_manager::files {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = "twofold node 2";
constexpr const char* kSpare = ".spare";
constexpr std::size_t kSlotBytes = 4'096;  // of a record with some 60 former logs
constexpr std::size_t kBodyLine = 3;       // header, serial and checksum come before it

struct Slot {
  std::uint64_t serial = 0;
  NodeRecord record;
};
struct NodeFile {
  std::size_t slot_bytes = 0;
  std::optional<Slot> newest;
};

std::uint64_t checksum(std::string_view serial, std::string_view body) {
  const auto crc = [](uLong before, std::string_view text) {
    return crc32_z(before, reinterpret_cast<const Bytef*>(text.data()), text.size());
  };
  return crc(crc(0, serial), body);
}

std::string encode(const NodeRecord& record, std::uint64_t serial) {
  std::string body = std::to_string(record.log_id.value) + "\n" + std::to_string(record.epoch) +
                     "\n" + std::to_string(record.nonce) + "\n" + to_text(record.low_water) + "\n";
  for (const FormerLog& log : record.former) {
    body += std::to_string(log.log_id.value) + " " + to_text(log.low_water) + "\n";
  }
  const std::string number = std::to_string(serial);
  return std::string(kHeader) + "\n" + number + "\n" + std::to_string(checksum(number, body)) +
         "\n" + body;
}

std::optional<FormerLog> parse_former(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto log = parse_number(line.substr(0, space));
  const Result<TxnId> low_water = parse_txn_id(line.substr(space + 1));
  if (!log || !low_water) return std::nullopt;
  return FormerLog{LogId{*log}, *low_water};
}

std::optional<NodeRecord> parse_body(const std::string& node, const std::string* line,
                                     const std::string* end) {
  if (end - line < 4) return std::nullopt;
  const auto log = parse_number(line[0]), epoch = parse_number(line[1]),
             nonce = parse_number(line[2]);
  const Result<TxnId> low_water = parse_txn_id(line[3]);
  if (!log || !epoch || !nonce || !low_water) return std::nullopt;
  NodeRecord record{node, LogId{*log}, *epoch, *nonce, *low_water, {}};
  for (line += 4; line != end; ++line) {
    const std::optional<FormerLog> former = parse_former(*line);
    if (!former) return std::nullopt;
    record.former.push_back(*former);
  }
  return record;
}

// None: nothing was written there, or not to its end.
std::optional<Slot> read_slot(const std::string& node, std::string_view bytes) {
  const std::string_view text = bytes.substr(0, std::min(bytes.find('\0'), bytes.size()));
  const std::vector<std::string> lines = split_lines(text);
  if (lines.size() < kBodyLine || lines[0] != kHeader) return std::nullopt;
  const std::size_t body = lines[0].size() + lines[1].size() + lines[2].size() + kBodyLine;
  const auto serial = parse_number(lines[1]), sum = parse_number(lines[2]);
  if (!serial || !sum || body > text.size()) return std::nullopt;
  if (*sum != checksum(lines[1], text.substr(body))) return std::nullopt;
  std::optional<NodeRecord> record =
      parse_body(node, lines.data() + kBodyLine, lines.data() + lines.size());
  if (!record) return std::nullopt;
  return Slot{*serial, std::move(*record)};
}

NodeFile read_file_of(const std::string& node, const fs::path& file) {
  const std::string content = read_file(file).value();
  NodeFile found{content.size() / 2, {}};
  for (const std::size_t at : {std::size_t{0}, found.slot_bytes}) {
    std::optional<Slot> slot =
        read_slot(node, std::string_view(content).substr(at, found.slot_bytes));
    if (!slot || (found.newest && found.newest->serial > slot->serial)) continue;
    found.newest = std::move(slot);
  }
  return found;
}

// Where the record with that serial goes: the newest is in the other slot.
std::uint64_t offset_of(std::uint64_t serial, std::size_t slot_bytes) {
  return serial % 2 * slot_bytes;
}

std::string padded(std::string text, std::size_t bytes) {
  text.resize(bytes, '\0');
  return text;
}

}  // namespace

std::vector<NodeRecord> Nodes::recover() {
  std::vector<NodeRecord> records;
  for (const fs::path& file : children(folder_)) {
    if (file.extension() == ".new") {
      remove_file(file);
      continue;
    }
    if (file.filename() == kSpare) continue;
    const std::optional<std::string> node = base64url_decode(file.filename().string());
    NodeFile found = node ? read_file_of(*node, file) : NodeFile{};
    if (!found.newest) {
      throw std::runtime_error(file.string() +
                               " is damaged: it is no record of a coordinator's node; start the "
                               "version that wrote it, or put a copy of the data back");
    }
    // A process that has ended may have written it, and not have synced it.
    must_sync_file(file);
    durable_[*node] = {found.newest->serial, found.slot_bytes};
    records.push_back(std::move(found.newest->record));
  }
  must_sync_folder(folder_);
  make_spare();
  return records;
}

bool Nodes::record(const NodeRecord& record) {
  if (!sync_names()) return false;  // before the only durable record may be written over
  const fs::path file = folder_ / base64url_encode(record.node);
  Durable& node = durable_[record.node];
  const std::uint64_t serial = node.serial + 1;
  const std::string text = encode(record, serial);
  if (text.size() <= node.slot_bytes) {
    // An attempt before this one may have written there, and not have made it durable.
    const std::uint64_t offset = offset_of(serial, node.slot_bytes);
    if (!overwrite_file(file, offset, padded(text, node.slot_bytes))) return false;
    node.serial = serial;
    return true;
  }
  return name_new_file(file, text, serial, node);
}

bool Nodes::name_new_file(const fs::path& file, const std::string& text, std::uint64_t serial,
                          Durable& node) {
  const fs::path spare = folder_ / kSpare;
  const bool use_spare = node.serial == 0 && text.size() <= kSlotBytes && is_there(spare);
  const std::size_t slot_bytes =
      use_spare ? kSlotBytes : (text.size() / kSlotBytes + 1) * kSlotBytes;
  const std::string content = padded(text, slot_bytes);
  const std::uint64_t offset = offset_of(serial, slot_bytes);
  const fs::path from = use_spare ? spare : fs::path(file.string() + ".new");
  const bool written =
      use_spare ? overwrite_file(spare, offset, content)
                : write_file(from, padded(std::string(offset, '\0') + content, 2 * slot_bytes));
  if (!written || !room(std::rename(from.c_str(), file.c_str()), "name", file)) return false;
  node = {serial, slot_bytes};
  names_unsynced_ = true;
  if (!sync_names()) return false;
  make_spare();
  return true;
}

bool Nodes::sync_names() {
  names_unsynced_ = names_unsynced_ && !sync_folder(folder_);
  return !names_unsynced_;
}

// Its blocks are written, not only set aside: to write them again needs nothing more.
void Nodes::make_spare() {
  const fs::path spare = folder_ / kSpare;
  if (is_there(spare)) return;
  const fs::path fresh = folder_ / (std::string(kSpare) + ".new");
  if (!write_file(fresh, std::string(2 * kSlotBytes, '\0'))) return remove_file(fresh);
  if (!room(std::rename(fresh.c_str(), spare.c_str()), "name", spare)) remove_file(fresh);
}

}  // namespace twofold::resource_manager::files
