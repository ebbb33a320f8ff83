// A progress bar on standard error, if that is a terminal; else nothing but notices.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace twofold::cli {

class Progress {
 public:
  explicit Progress(std::uint64_t total);  // 0: not known
  ~Progress();

  struct Now {
    std::uint64_t told = 0;
    std::uint64_t ending = 0;
    std::string words;  // "committed 12, refused 3"
    bool connected = true;
  };
  void draw(const Now& now);
  void notice(const std::string& text);  // a line of its own, above the bar

 private:
  std::string bar(std::uint64_t told) const;
  void erase();
  std::uint64_t total_;
  std::chrono::steady_clock::time_point begin_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace twofold::cli
