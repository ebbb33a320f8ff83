// What a store's reads see, apart from their own branch's writes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "log/lmdb.h"
#include "resource_manager/adapters/store_operations.h"
#include "resource_manager/adapters/store_rows.h"

namespace twofold::resource_manager::store {

// What commits have applied and not yet synced (rule 13).
class Overlay {
 public:
  // `sequence` rises with each commit.
  void apply(const WriteSet& writes, std::uint64_t sequence) {
    for (const auto& [key, value] : writes) entries_[key] = Entry{value, sequence};
  }
  // That commit is durable and every later snapshot shows it. A newer write of a key stays.
  void settle(const std::vector<std::string>& keys, std::uint64_t sequence) {
    for (const std::string& key : keys) {
      auto entry = entries_.find(key);
      if (entry != entries_.end() && entry->second.sequence == sequence) entries_.erase(entry);
    }
  }
  bool empty() const { return entries_.empty(); }
  // Null: not here. Otherwise what was applied; none: erased.
  const std::optional<std::string>* find(std::string_view key) const {
    auto entry = entries_.find(key);
    return entry == entries_.end() ? nullptr : &entry->second.value;
  }

 private:
  struct Entry {
    std::optional<std::string> value;
    std::uint64_t sequence = 0;
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

// A snapshot of what is durable, held for one call only: a reader pins pages. Taken anew each time,
// so that whatever has left the overlay is in it.
class Snapshot {
 public:
  explicit Snapshot(lmdb::Reader& reader) : reader_(reader) { reader_.renew(); }
  ~Snapshot() { reader_.reset(); }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  lmdb::Reader* operator->() { return &reader_; }

 private:
  lmdb::Reader& reader_;
};

// The applied state: the overlay over the newest durable snapshot, taken when first needed. For one
// call only.
class AppliedView final : public View {
 public:
  AppliedView(const Overlay& overlay, const lmdb::Environment& environment, lmdb::Reader& reader)
      : overlay_(overlay), environment_(environment), reader_(reader) {}
  std::optional<std::string_view> find(std::string_view key) override {
    if (const auto* applied = overlay_.find(key)) {
      if (!applied->has_value()) return std::nullopt;
      return std::string_view(**applied);
    }
    if (!snapshot_) snapshot_.emplace(reader_);
    return (*snapshot_)->get(environment_.table(kData), key);
  }

 private:
  const Overlay& overlay_;
  const lmdb::Environment& environment_;
  lmdb::Reader& reader_;
  std::optional<Snapshot> snapshot_;
};

}  // namespace twofold::resource_manager::store
