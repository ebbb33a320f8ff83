// Work as a resource manager sees it: named operations with named, typed values. The coordinator
// passes encoded work through unread; an adapter gives the names a meaning.
#pragma once

#include <concepts>
#include <cstddef>
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

template <class T>
concept CharacterType = std::same_as<T, char> || std::same_as<T, wchar_t> ||
    std::same_as<T, char8_t> || std::same_as<T, char16_t> || std::same_as<T, char32_t>;
template <class T>
concept IntegerValue = std::integral<T> && !std::same_as<T, bool> && !CharacterType<T> &&
                       (std::signed_integral<T> ? sizeof(T) <= sizeof(std::int64_t)
                                                : sizeof(T) < sizeof(std::int64_t));
template <class T>
concept RealValue = std::same_as<T, float> || std::same_as<T, double>;

struct Value;
using List = std::vector<Value>;

// Made from plain C++ values, so that an operation reads as in docs/store.md:
//   Operation{"add", {{"key", "customer/c-1"}, {"by", -2350}, {"min", 0}}}
// What would change on the way does not compile: a pointer is never a bool, a character never a
// number, and a type of numbers that has some which do not fit (std::uint64_t, long double) is for
// the caller to convert. A List must be named, since braces around one could mean a list of lists.
struct Value {
  using Data = std::variant<std::monostate, bool, std::int64_t, double, std::string, Bytes, List>;

  Value() = default;  // null
  Value(std::nullptr_t) {}
  template <std::same_as<bool> Bool>
  Value(Bool boolean) : data(boolean) {}
  template <IntegerValue Integer>
  Value(Integer integer) : data(static_cast<std::int64_t>(integer)) {}
  template <RealValue Real>
  Value(Real real) : data(static_cast<double>(real)) {}
  Value(std::string text) : data(std::move(text)) {}
  Value(std::string_view text) : data(std::string(text)) {}
  Value(const char* text) : data(std::string(text)) {}  // never null
  Value(Bytes bytes) : data(std::move(bytes)) {}
  explicit Value(List list) : data(std::move(list)) {}

  Data data;
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
