// Time as the deciding cores see it: a monotonic instant that is handed in. There is no now() here,
// so a core cannot read a clock (rule 24: deadlines are monotonic, wall time is for people).
#pragma once

#include <chrono>
#include <cstdint>

namespace twofold {

struct Monotonic {
  using duration = std::chrono::microseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Monotonic>;
  static constexpr bool is_steady = true;
};

using Time = Monotonic::time_point;
using Duration = Monotonic::duration;

}  // namespace twofold
