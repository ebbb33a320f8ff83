#include "runtime/crash_point.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "protocol/text.h"

namespace twofold {
namespace {

constexpr std::string_view kBefore = "before:";
constexpr std::string_view kAfter = "after:";

Error invalid(std::string_view text, const std::string& what) {
  return {Fault::invalid, "crash point \"" + shown(text) + "\": " + what};
}

std::string join(const std::vector<std::string_view>& names) {
  std::string all;
  for (std::string_view name : names) all.append(all.empty() ? "" : ", ").append(name);
  return all;
}

// Cuts what follows `mark` off `text`. False: there is a mark, and nothing behind it.
bool cut_off(std::string_view& text, char mark, std::string_view& tail) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return true;
  tail = text.substr(at + 1);
  text = text.substr(0, at);
  return !tail.empty();
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

}  // namespace

Result<CrashPoint> CrashPoint::parse(std::string_view text,
                                     const std::vector<std::string_view>& names) {
  CrashPoint point;
  std::string_view rest = text;
  if (rest.starts_with(kBefore)) {
    rest.remove_prefix(kBefore.size());
  } else if (rest.starts_with(kAfter)) {
    rest.remove_prefix(kAfter.size());
    point.after_ = true;
  } else {
    return invalid(text, "write before|after:<name>[@rm][#n], with a name out of: " + join(names));
  }
  std::string_view count;
  std::string_view rm;
  if (!cut_off(rest, '#', count)) return invalid(text, "give a number after #");
  if (!cut_off(rest, '@', rm)) return invalid(text, "give a resource manager's name after @");
  if (!count.empty()) {
    const char* end = count.data() + count.size();
    const auto [parsed, fault] = std::from_chars(count.data(), end, point.remaining_);
    if (fault != std::errc{} || parsed != end || point.remaining_ == 0) {
      return invalid(text, "after # comes a number from 1 up");
    }
  }
  if (std::find(names.begin(), names.end(), rest) == names.end()) {
    return invalid(
        text, "this program crosses no \"" + shown(rest) + "\"; choose out of: " + join(names));
  }
  point.text_ = text;
  point.name_ = rest;
  point.rm_ = rm;
  point.armed_ = true;
  return point;
}

std::vector<std::string> CrashPoint::all(const std::vector<std::string_view>& names) {
  std::vector<std::string> points;
  points.reserve(2 * names.size());
  for (std::string_view name : names) {
    points.push_back(std::string(kBefore).append(name));
    points.push_back(std::string(kAfter).append(name));
  }
  return points;
}

void CrashPoint::hit(std::string_view name, std::string_view rm,
                     const std::function<void()>* flush) {
  if (name != name_ || (!rm_.empty() && rm != rm_) || --remaining_ != 0) return;
  if (flush != nullptr && *flush) (*flush)();
  std::fprintf(stderr, "crash point %s reached\n", text_.c_str());
  die();
}

}  // namespace twofold
