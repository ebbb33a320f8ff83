#include "cli/progress.h"

#include <spdlog/fmt/fmt.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/output.h"

namespace twofold::cli {
namespace {

constexpr std::size_t kBarColumns = 24;

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::uint64_t total)
    : total_(total),
      begin_(std::chrono::steady_clock::now()),
      terminal_(is_terminal(STDERR_FILENO)) {}

Progress::~Progress() {
  erase();
}

std::string Progress::bar(std::uint64_t told) const {
  if (total_ == 0) return grouped(static_cast<std::int64_t>(told));
  const auto full = std::min<std::uint64_t>(kBarColumns, kBarColumns * told / total_);
  return "[" + std::string(full, '#') + std::string(kBarColumns - full, '.') + "] " +
         grouped(static_cast<std::int64_t>(told)) + "/" +
         grouped(static_cast<std::int64_t>(total_));
}

void Progress::draw(const Now& now) {
  if (!terminal_) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
  auto text =
      bar(now.told) + fmt::format("  {:.0f}/s", static_cast<double>(now.told) / took.count());
  if (!now.connected) text += "  coordinator away";
  if (now.ending > 0) text += fmt::format("  ending {}", now.ending);
  if (!now.words.empty()) text += "  " + now.words;
  text.resize(std::min(text.size(), terminal_columns() - 1));
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  drawn_ = true;
}

void Progress::notice(const std::string& text) {
  erase();
  note(text);
}

void Progress::erase() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace twofold::cli
