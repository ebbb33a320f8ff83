#include "runtime/backoff.h"

#include <algorithm>

namespace twofold {

std::chrono::milliseconds Backoff::next() {
  const auto bound = std::min(bound_, max_).count();
  bound_ = std::min(bound_ * 2, max_);
  return std::chrono::milliseconds(
      std::uniform_int_distribution<decltype(bound_)::rep>(bound / 2, bound)(random_));
}

}  // namespace twofold
