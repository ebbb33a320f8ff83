#include "resource_manager/adapters/arguments.h"

#include <algorithm>
#include <utility>

#include "protocol/text.h"
#include "protocol/utf8.h"

namespace twofold::resource_manager {
namespace {

constexpr std::size_t kShownBytesMax = 200;

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string clipped(std::string text) {
  if (text.size() <= kShownBytesMax) return text;
  return std::string(utf8_prefix(text, kShownBytesMax)) + "…";
}

std::string shown(const Value& value) {
  return clipped(to_text(value));
}

std::optional<Wrong> wrong_names(const Signature& signature, const Operation& operation) {
  for (const auto& [argument, value] : operation.arguments) {
    if (!contains(signature.required, argument) && !contains(signature.optional, argument)) {
      return Wrong{std::string(signature.takes), clipped(argument)};
    }
  }
  for (std::string_view required : signature.required) {
    if (operation.find(required) == nullptr) {
      return Wrong{std::string(signature.takes) + "; " + std::string(required) + " is missing"};
    }
  }
  return std::nullopt;
}

std::vector<Refusal> for_each_operation(
    std::string_view work, std::string_view subject,
    const std::function<std::optional<Wrong>(const Operation&)>& take) {
  std::vector<Refusal> invalid;
  if (work.empty()) return invalid;
  Result<Work> decoded = decode_work(work);
  if (!decoded) {
    invalid.emplace_back().check = "invalid";
    invalid.back().limit = decoded.error().message;
    return invalid;
  }
  for (std::uint32_t i = 0; i < decoded->size() && invalid.size() < kRefusalsMax; ++i) {
    const Operation& operation = (*decoded)[i];
    std::optional<Wrong> wrong = take(operation);
    if (!wrong) continue;
    const Value* named = operation.find(subject);
    const auto* text = named != nullptr ? std::get_if<std::string>(&named->data) : nullptr;
    invalid.push_back({.rm = {},
                       .operation = i,
                       .op = clipped(operation.name),
                       .check = "invalid",
                       .key = text != nullptr ? clipped(*text) : "",
                       .value = std::move(wrong->value),
                       .limit = std::move(wrong->limit)});
  }
  return invalid;
}

}  // namespace twofold::resource_manager
