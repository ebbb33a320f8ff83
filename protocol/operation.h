// Work as a resource manager sees it: named operations with named, typed values. The coordinator
// passes encoded work through unread; an adapter gives the names a meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/result.h"

namespace twofold {

struct Bytes {
  std::string value;
  auto operator<=>(const Bytes&) const = default;
};

struct Value;
using List = std::vector<Value>;

struct Value {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Bytes, List> data;
  bool operator==(const Value&) const = default;
};
std::string to_text(const Value& value);  // as a person reads it: 12, "text", null

struct Operation {
  std::string name;
  std::vector<std::pair<std::string, Value>> arguments;  // in the order given
  bool operator==(const Operation&) const = default;
  const Value* find(std::string_view argument) const;  // null if absent
};

using Work = std::vector<Operation>;
using Results = std::vector<Value>;  // one per operation

// The first name or text in `work` that is not UTF-8, so that no receiver could parse it, as a
// person would look for it ("the value of argument 'key' of operation 2 (add)"); empty: none.
std::string find_not_utf8(const Work& work);

inline constexpr std::size_t kListDepthMax = 16;  // a list of numbers has depth 1
inline constexpr std::size_t kArgumentsMax = 64;  // of one operation

// The bytes of wire.proto's Work and Results. Encoding is a function of the value alone, so that a
// resent submission has the same payload hash (rule 7). Decoding refuses (Fault::invalid, naming
// the operation) what is malformed, nameless, doubled, not UTF-8, or beyond the limits above.
std::string encode_work(const Work& work);
Result<Work> decode_work(std::string_view bytes);
std::string encode_results(const Results& results);
Result<Results> decode_results(std::string_view bytes);

}  // namespace twofold
