// The core's views of transactions as wire messages, for people: with wall time and ages.
#pragma once

#include <chrono>
#include <cstdint>

#include "coordinator/core/coordinator.h"
#include "protocol/time.h"
#include "protocol/wire.pb.h"

namespace twofold::coordinator {

// Wall time of monotonic instants, by one offset taken at the start: phases of one transaction keep
// their distances whatever happens to the system's clock.
class WallClock {
 public:
  WallClock();
  std::int64_t us_since_1970(Time time) const {
    return (time.time_since_epoch() + offset_).count();
  }

 private:
  Duration offset_;
};

void to_wire(const TransactionView& view, const WallClock& wall, Time now,
             wire::TransactionView& out);

}  // namespace twofold::coordinator
