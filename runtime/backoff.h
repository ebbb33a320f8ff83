// Capped, jittered exponential backoff: each pause is drawn between half of and the whole of a
// doubling bound. For drivers and clients; the deciding cores draw no random number.
#pragma once

#include <chrono>
#include <random>

namespace twofold {

class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds max)
      : first_(first), max_(max), bound_(first), random_(std::random_device{}()) {}
  std::chrono::milliseconds next();
  void reset() { bound_ = first_; }

 private:
  std::chrono::milliseconds first_, max_, bound_;
  std::minstd_rand random_;
};

}  // namespace twofold
