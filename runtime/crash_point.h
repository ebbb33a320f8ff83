// Crash points: `--crash-at before|after:<Event or Effect>[@rm][#n]` kills the process with SIGKILL
// at the n-th (default first) crossing between a core and the world. The names are the cores' event
// and effect types, so that a new one is a new point. In shipped binaries: one comparison when none
// is set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/result.h"

namespace twofold {

class CrashPoint {
 public:
  CrashPoint() = default;  // none
  // `names`: what this program can cross. Invalid: the message lists the choices.
  static Result<CrashPoint> parse(std::string_view text,
                                  const std::vector<std::string_view>& names);
  // All points of those names, in the form that parse() takes, for --list-crash-points.
  static std::vector<std::string> all(const std::vector<std::string_view>& names);

  bool armed() const { return armed_; }
  // Called around each crossing. `rm` is empty where none is concerned. `flush` is called before
  // the kill by after(), so that what was sent before the point has really been sent.
  void before(std::string_view name, std::string_view rm) {
    if (armed_ && !after_) hit(name, rm, nullptr);
  }
  void after(std::string_view name, std::string_view rm, const std::function<void()>& flush) {
    if (armed_ && after_) hit(name, rm, &flush);
  }

 private:
  void hit(std::string_view name, std::string_view rm, const std::function<void()>* flush);
  bool armed_ = false;
  bool after_ = false;
  std::string text_;  // as parse() took it, for the last line that the process writes
  std::string name_;
  std::string rm_;  // empty: any
  std::uint64_t remaining_ = 1;
};

}  // namespace twofold
