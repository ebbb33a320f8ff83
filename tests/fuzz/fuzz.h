// What the fuzz targets share. A target is one file with one LLVMFuzzerTestOneInput, which states
// properties: libFuzzer drives it (./dev fuzz), and replay.cpp drives it over the corpus in the
// ordinary test build.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "protocol/result.h"
#include "protocol/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace twofold::fuzz {

// Ends the process if the property does not hold; the driver keeps the input.
inline void require(bool holds, std::string_view property, std::string_view shown = {}) {
  if (holds) return;
  std::fprintf(stderr, "property broken: %.*s\n", static_cast<int>(property.size()),
               property.data());
  if (!shown.empty()) {
    std::fprintf(stderr, "with: %.*s\n", static_cast<int>(shown.size()), shown.data());
  }
  std::abort();
}

// Something that a person may see on one line of a terminal: not empty, UTF-8, bounded, and without
// control characters.
inline void require_line(std::string_view text) {
  constexpr std::size_t kLineMax = 2'000;
  require(!text.empty(), "a text for people is not empty");
  require(text.size() <= kLineMax, "a text for people is of bounded length", text);
  require(is_utf8(text), "a text for people is UTF-8", text);
  const bool control =
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
  require(!control, "a text for people has no control characters", text);
}

// result.h: what happened, to what, and what to do next; no trailing full stop.
inline void require_sentence(const Error& error) {
  require_line(error.message);
  require(error.message.find(' ') != std::string::npos, "an error says what happened",
          error.message);
  require(error.message.back() != '.', "an error has no trailing full stop", error.message);
}

// Takes an input apart from its front. At its end: zeros and nothing.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  bool next_is(char byte) const { return !rest_.empty() && rest_[0] == byte; }
  std::uint8_t byte() {
    const std::string_view one = take(1);
    return one.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(one[0]);
  }
  std::string_view take(std::size_t bytes) {
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() { return take(rest_.size()); }

 private:
  std::string_view rest_;
};

}  // namespace twofold::fuzz
