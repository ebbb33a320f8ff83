// What every kind checks of the work it is given: that it can be decoded, that each operation is
// one of its own with the arguments it takes. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/operation.h"
#include "protocol/outcome.h"

namespace twofold::resource_manager {

// Of many refusals, the first: a frame, the log and a reader have their limits.
inline constexpr std::size_t kRefusalsMax = 1'000;

// A refusal is kept and logged by coordinators: a long text is shown by its beginning.
std::string clipped(std::string text);
std::string shown(const Value& value);

struct Signature {
  std::string_view name;
  std::span<const std::string_view> required;
  std::span<const std::string_view> optional;
  std::string_view takes;  // "get takes key"
};

// The first thing wrong with an operation: what is allowed, and what was found.
struct Wrong {
  std::string limit;
  std::string value = {};
};
std::optional<Wrong> wrong_names(const Signature& signature, const Operation& operation);

// Decodes `work`, empty work too, and hands out its operations one after the other; what is
// wrong with them comes back as refusals with check "invalid". `subject` names the argument that a
// refusal is about: "key".
std::vector<Refusal> for_each_operation(
    std::string_view work, std::string_view subject,
    const std::function<std::optional<Wrong>(const Operation&)>& take);

}  // namespace twofold::resource_manager
