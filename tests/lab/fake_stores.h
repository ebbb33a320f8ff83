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
    std::map<std::string, View> views;
    for (const auto& branch : transaction.branches) {
      auto& view = views.try_emplace(branch.rm, data_[branch.rm]).first->second;
      for (std::size_t i = 0; i < branch.work.size(); ++i) {
        if (auto refusal = apply(branch.work[i], view)) {
          refusal->rm = branch.rm;
          refusal->operation = static_cast<std::uint32_t>(i);
          outcome.refusals.push_back(std::move(*refusal));
        }
      }
    }
    outcome.ended = true;
    outcome.verdict = outcome.refusals.empty() ? Verdict::committed : Verdict::aborted;
    outcome.reason = outcome.refusals.empty() ? Reason::none : Reason::refused;
    if (!outcome.refusals.empty()) return outcome;
    for (auto& [rm, view] : views) {
      for (auto& [key, value] : view.changed) data_[rm][key] = std::move(value);
    }
    return outcome;
  }

 private:
  using Store = std::map<std::string, Value>;

  // A store as one transaction sees it.
  struct View {
    explicit View(const Store& data) : store(data) {}
    const Value* find(const std::string& key) const {
      if (const auto at = changed.find(key); at != changed.end()) return &at->second;
      const auto at = store.find(key);
      return at == store.end() ? nullptr : &at->second;
    }
    const Store& store;
    Store changed;
  };

  static std::optional<Refusal> apply(const Operation& operation, View& view) {
    const auto& key = std::get<std::string>(operation.find("key")->data);
    Refusal refusal{{}, 0, operation.name, {}, key, {}, {}};
    const auto refuse = [&](const char* check) {
      refusal.check = check;
      return refusal;
    };
    if (operation.name == "put") {
      view.changed[key] = *operation.find("value");
      return std::nullopt;
    }
    if (operation.name == "insert") {
      if (view.find(key)) return refuse("present");
      view.changed[key] = *operation.find("value");
      return std::nullopt;
    }
    if (operation.name != "add") return refuse("invalid");
    const auto* before = view.find(key);
    if (!before) return refuse("absent");
    std::int64_t sum = 0;
    if (__builtin_add_overflow(number(*before), number(*operation.find("by")), &sum)) {
      return refuse("overflow");
    }
    if (const auto* min = operation.find("min"); min && sum < number(*min)) return refuse("min");
    view.changed[key] = Value{sum};
    return std::nullopt;
  }
  static std::int64_t number(const Value& value) { return std::get<std::int64_t>(value.data); }

  std::map<std::string, Store> data_;
};

}  // namespace twofold::lab
