// Four stores in memory that do an order's operations literally: every check that fails is
// reported, and nothing is written unless none does. The order workflow's counterpart in unit
// tests.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "client/client.h"
#include "protocol/outcome.h"

namespace twofold::lab {

class FakeStores {
 public:
  Outcome run(const client::Transaction& transaction) {
    Outcome outcome;
    auto after = data_;
    for (const auto& branch : transaction.branches) {
      for (std::size_t i = 0; i < branch.work.size(); ++i) {
        if (auto refusal = apply(branch.work[i], after[branch.rm])) {
          refusal->rm = branch.rm;
          refusal->operation = static_cast<std::uint32_t>(i);
          outcome.refusals.push_back(std::move(*refusal));
        }
      }
    }
    outcome.ended = true;
    outcome.verdict = outcome.refusals.empty() ? Verdict::committed : Verdict::aborted;
    outcome.reason = outcome.refusals.empty() ? Reason::none : Reason::refused;
    if (outcome.refusals.empty()) data_ = std::move(after);
    return outcome;
  }

 private:
  using Store = std::map<std::string, Value>;

  static std::optional<Refusal> apply(const Operation& operation, Store& store) {
    const auto& key = std::get<std::string>(operation.find("key")->data);
    Refusal refusal{{}, 0, operation.name, {}, key, {}, {}};
    const auto refuse = [&](const char* check) {
      refusal.check = check;
      return refusal;
    };
    if (operation.name == "put") {
      store[key] = *operation.find("value");
      return std::nullopt;
    }
    if (operation.name == "insert") {
      if (store.contains(key)) return refuse("present");
      store[key] = *operation.find("value");
      return std::nullopt;
    }
    if (operation.name != "add") return refuse("invalid");
    const auto at = store.find(key);
    if (at == store.end()) return refuse("absent");
    std::int64_t sum = 0;
    if (__builtin_add_overflow(number(at->second), number(*operation.find("by")), &sum)) {
      return refuse("overflow");
    }
    if (const auto* min = operation.find("min"); min && sum < number(*min)) return refuse("min");
    at->second = Value{sum};
    return std::nullopt;
  }
  static std::int64_t number(const Value& value) { return std::get<std::int64_t>(value.data); }

  std::map<std::string, Store> data_;
};

}  // namespace twofold::lab
