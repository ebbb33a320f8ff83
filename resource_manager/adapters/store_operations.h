// What the store's operations mean. Pure: data comes from a View, changes go into a write set.
//
//   get{key} -> value or null          insert{key, value} -> null; fails "present"
//   put{key, value} -> null            erase{key} -> whether it was there
//   expect{key, value} -> null         add{key, by, min?, max?} -> the new value
//
// `value` is an int64 or a text; null only for expect, which then wants the key to be absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/operation.h"
#include "resource_manager/adapter.h"
#include "resource_manager/adapters/store_rows.h"

namespace twofold::resource_manager::store {

enum class Verb : std::uint8_t { get, put, insert, erase, add, expect };

struct StoreOperation {
  Verb verb = Verb::get;
  std::string key;
  Value value;  // of put, insert and expect
  std::int64_t by = 0;
  std::optional<std::int64_t> min, max;
};

struct Parsed {
  std::vector<StoreOperation> operations;
  std::vector<Refusal> invalid;  // check "invalid": the limit says what is allowed; the first 1,000
};
Parsed parse(std::string_view work);
std::vector<LockRequest> locks_of(const std::vector<StoreOperation>& operations);  // normalised

// What is applied, by key: encoded values. The result is valid until the next call.
class View {
 public:
  virtual ~View() = default;
  virtual std::optional<std::string_view> find(std::string_view key) = 0;
};

struct Evaluated {
  Results results;                // one per operation; null where a check failed
  std::vector<Refusal> refusals;  // the first 1,000
};
// In order, each operation seeing what those before it wrote. One that fails changes nothing, and
// the rest is evaluated all the same, so that every failed check is told.
Evaluated evaluate(const std::vector<StoreOperation>& operations, View& view, WriteSet& writes);

}  // namespace twofold::resource_manager::store
