// TWOFOLD_CHECK(condition): a broken contract ends the process, in release builds as well. A
// process that has lost its own invariants must not go on deciding; recovery is the repair.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace twofold::detail {
[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: contract broken: %s\n", file, line, condition);
  std::abort();
}
}  // namespace twofold::detail

#define TWOFOLD_CHECK(condition)      \
  ((condition) ? static_cast<void>(0) \
               : ::twofold::detail::check_failed(#condition, __FILE__, __LINE__))
