// A kind of participant, as this suite needs to know it: how to start one, and a few operations
// that write, read and fail. Whatever speaks docs/protocol.md can be one; kinds.cpp has the list.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "protocol/operation.h"
#include "protocol/xa.h"

namespace twofold {

inline void PrintTo(Xa code, std::ostream* out) {
  *out << name(code);
}
inline void PrintTo(const Value& value, std::ostream* out) {
  *out << to_text(value);
}

}  // namespace twofold

namespace twofold::conformance {

struct Kind {
  std::string name;  // of the test's parameter: letters and digits
  std::string program;
  // {name}, {listen} (HOST:PORT, port 0: any free one) and {data} (a directory, missing at first)
  // are filled in. Once it serves it prints a line "listening on HOST:PORT".
  std::vector<std::string> arguments;
  bool crash_points = false;  // knows twofold-rm's --crash-at

  std::function<Operation(const std::string& key, std::int64_t number)> write;  // never fails
  std::function<Operation(const std::string& key)> read;                        // of nothing: null
  std::function<Value(std::int64_t number)> written;                            // as read tells it
  std::function<Operation(const std::string& key)> fail;  // a check fails if there is no such key
};

// Those that this build has; and one more, named by the environment:
//
//   TWOFOLD_PARTICIPANT="PROGRAM ARGUMENTS…"    speaks the store's put, get and add
std::vector<Kind> kinds();

inline void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

}  // namespace twofold::conformance
