#include "resource_manager/adapters/store_operations.h"

#include <algorithm>
#include <array>
#include <utility>

#include "protocol/check.h"
#include "resource_manager/adapters/arguments.h"

namespace twofold::resource_manager::store {
namespace {

constexpr std::array<std::string_view, 1> kKey{"key"};
constexpr std::array<std::string_view, 2> kKeyValue{"key", "value"};
constexpr std::array<std::string_view, 2> kKeyBy{"key", "by"};
constexpr std::array<std::string_view, 2> kMinMax{"min", "max"};
constexpr std::array<Signature, 6> kVerbs{{
    // In the order of Verb.
    {"get", kKey, {}, "get takes key"},
    {"put", kKeyValue, {}, "put takes key and value"},
    {"insert", kKeyValue, {}, "insert takes key and value"},
    {"erase", kKey, {}, "erase takes key"},
    {"add", kKeyBy, kMinMax, "add takes key and by, and if wanted min and max"},
    {"expect", kKeyValue, {}, "expect takes key and value"},
}};

std::string_view name(Verb verb) {
  return kVerbs[static_cast<std::size_t>(verb)].name;
}

// ---- parsing
// ---------------------------------------------------------------------------------------

std::optional<Wrong> take_key(const Value& value, std::string& key) {
  const auto* text = std::get_if<std::string>(&value.data);
  if (text == nullptr || text->empty() || text->size() > kKeyBytesMax) {
    return Wrong{"key is a text of 1 to 400 bytes", shown(value)};
  }
  key = *text;
  return std::nullopt;
}

std::optional<Wrong> take_value(const Value& value, bool null_allowed, Value& out) {
  const auto* text = std::get_if<std::string>(&value.data);
  const bool right = text != nullptr
                         ? text->size() <= kTextBytesMax
                         : std::holds_alternative<std::int64_t>(value.data) ||
                               (null_allowed && std::holds_alternative<std::monostate>(value.data));
  if (!right) {
    return Wrong{null_allowed ? "value is an int64, a text of up to 1 MiB, or null"
                              : "value is an int64 or a text of up to 1 MiB",
                 shown(value)};
  }
  out = value;
  return std::nullopt;
}

std::optional<Wrong> take_integer(std::string_view argument, const Value& value,
                                  std::int64_t& out) {
  const auto* number = std::get_if<std::int64_t>(&value.data);
  if (number == nullptr) return Wrong{std::string(argument) + " is an int64", shown(value)};
  out = *number;
  return std::nullopt;
}

std::optional<Wrong> take_argument(std::string_view argument, const Value& value,
                                   StoreOperation& out) {
  if (argument == "key") return take_key(value, out.key);
  if (argument == "value") return take_value(value, out.verb == Verb::expect, out.value);
  if (argument == "by") return take_integer(argument, value, out.by);
  return take_integer(argument, value, argument == "min" ? out.min.emplace() : out.max.emplace());
}

std::optional<Wrong> parse_one(const Operation& operation, StoreOperation& out) {
  const auto signature = std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Signature& each) {
    return each.name == operation.name;
  });
  if (signature == kVerbs.end()) {
    return Wrong{"a store knows get, put, insert, erase, add and expect", clipped(operation.name)};
  }
  out.verb = static_cast<Verb>(signature - kVerbs.begin());
  if (auto wrong = wrong_names(*signature, operation)) return wrong;
  for (const auto& [argument, value] : operation.arguments) {
    if (auto wrong = take_argument(argument, value, out)) return wrong;
  }
  return std::nullopt;
}

// ---- evaluation
// ------------------------------------------------------------------------------------

class Evaluation {
 public:
  Evaluation(View& view, WriteSet& writes) : view_(view), writes_(writes) {}

  Value apply(const StoreOperation& operation, std::uint32_t index) {
    operation_ = &operation;
    index_ = index;
    switch (operation.verb) {
      case Verb::get: return found();
      case Verb::put: return write(operation.value, Value{});
      case Verb::insert: return insert();
      case Verb::erase: return erase();
      case Verb::add: return add();
      case Verb::expect: return expect();
    }
    TWOFOLD_CHECK(false);
  }
  std::vector<Refusal> take_refusals() { return std::move(refusals_); }

 private:
  // Null if the key is absent.
  Value found() {
    std::optional<std::string_view> bytes;
    if (auto own = writes_.find(operation_->key); own != writes_.end()) {
      if (own->second) bytes = *own->second;
    } else {
      bytes = view_.find(operation_->key);
    }
    return bytes ? decode_value(*bytes) : Value{};
  }
  static bool absent(const Value& value) {
    return std::holds_alternative<std::monostate>(value.data);
  }

  Value write(const Value& value, Value result) {
    writes_[operation_->key] = encode_value(value);
    return result;
  }

  Value insert() {
    Value before = found();
    if (!absent(before)) return refuse("present", shown(before), "");
    return write(operation_->value, Value{});
  }

  Value erase() {
    if (absent(found())) return Value{false};
    writes_[operation_->key] = std::nullopt;
    return Value{true};
  }

  Value add() {
    const StoreOperation& operation = *operation_;
    Value before = found();
    if (absent(before)) return refuse("absent", "", std::to_string(operation.by));
    const auto* number = std::get_if<std::int64_t>(&before.data);
    if (number == nullptr) return refuse("type", shown(before), "int64");
    std::int64_t after = 0;
    if (__builtin_add_overflow(*number, operation.by, &after)) {
      return refuse("overflow", shown(before), std::to_string(operation.by));
    }
    const bool low = operation.min && after < *operation.min;
    const bool high = operation.max && after > *operation.max;
    if (low) refuse("min", shown(before), std::to_string(*operation.min));
    if (high) refuse("max", shown(before), std::to_string(*operation.max));
    if (low || high) return Value{};
    return write(Value{after}, Value{after});
  }

  Value expect() {
    Value before = found();
    if (before == operation_->value) return Value{};
    return refuse("expect", absent(before) ? "" : shown(before), shown(operation_->value));
  }

  Value refuse(std::string_view check, std::string value, std::string limit) {
    if (refusals_.size() == kRefusalsMax) return Value{};
    refusals_.push_back({.rm = {},
                         .operation = index_,
                         .op = std::string(name(operation_->verb)),
                         .check = std::string(check),
                         .key = operation_->key,
                         .value = std::move(value),
                         .limit = std::move(limit)});
    return Value{};
  }

  View& view_;
  WriteSet& writes_;
  const StoreOperation* operation_ = nullptr;
  std::uint32_t index_ = 0;
  std::vector<Refusal> refusals_;
};

}  // namespace

Parsed parse(std::string_view work) {
  Parsed parsed;
  parsed.invalid = for_each_operation(work, "key", [&](const Operation& operation) {
    return parse_one(operation, parsed.operations.emplace_back());
  });
  return parsed;
}

std::vector<LockRequest> locks_of(const std::vector<StoreOperation>& operations) {
  std::vector<LockRequest> locks;
  locks.reserve(operations.size());
  for (const StoreOperation& operation : operations) {
    const bool reads = operation.verb == Verb::get || operation.verb == Verb::expect;
    locks.push_back({operation.key, reads ? LockMode::shared : LockMode::exclusive});
  }
  normalise(locks);
  return locks;
}

Evaluated evaluate(const std::vector<StoreOperation>& operations, View& view, WriteSet& writes) {
  Evaluated evaluated;
  evaluated.results.reserve(operations.size());
  Evaluation evaluation(view, writes);
  for (std::uint32_t i = 0; i < operations.size(); ++i) {
    evaluated.results.push_back(evaluation.apply(operations[i], i));
  }
  evaluated.refusals = evaluation.take_refusals();
  return evaluated;
}

}  // namespace twofold::resource_manager::store
