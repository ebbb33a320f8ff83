#include "lab/workflows/line_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lab/workflows/transaction_line.h"

namespace twofold::lab {
namespace {

constexpr std::size_t kLinesAhead = 1'000;

}  // namespace

// Shared by the reading thread and the event loop. The thread may outlive the reader, blocked in a
// read of standard input: it holds its own reference and touches `io` only while not stopped.
struct LineReader::State {
  struct Line {
    std::uint64_t number = 0;
    std::string text;
  };

  explicit State(boost::asio::io_context& context) : io(context) {}

  boost::asio::io_context& io;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work;
  std::function<void()> handler;  // event loop only

  std::mutex mutex;
  std::condition_variable room;
  std::deque<Line> lines;
  bool ended = false;
  bool stopped = false;
  bool awaited = false;  // next() said nothing_yet

  // False: nobody wants more.
  bool put(const std::shared_ptr<State>& self, Line line) {
    std::unique_lock lock(mutex);
    room.wait(lock, [&] { return stopped || lines.size() < kLinesAhead; });
    if (stopped) return false;
    lines.push_back(std::move(line));
    tell(self);
    return true;
  }
  void end(const std::shared_ptr<State>& self) {
    const std::lock_guard lock(mutex);
    ended = true;
    if (!stopped) tell(self);
  }
  // Under the mutex.
  void tell(const std::shared_ptr<State>& self) {
    if (!std::exchange(awaited, false)) return;
    boost::asio::post(io, [self] {
      if (self->handler) self->handler();
    });
  }
  static void run(const std::shared_ptr<State>& self, int file);
};

void LineReader::State::run(const std::shared_ptr<State>& self, int file) {
  std::uint64_t number = 0;
  std::string line;
  const auto finish_line = [&] {
    ++number;
    const bool wanted = is_blank(line) || self->put(self, {number, std::move(line)});
    line.clear();
    return wanted;
  };
  char buffer[64 * 1024];
  for (bool wanted = true; wanted;) {
    const ssize_t count = ::read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    std::string_view rest(buffer, static_cast<std::size_t>(count));
    for (std::size_t stop; wanted && (stop = rest.find('\n')) != std::string_view::npos;) {
      line.append(rest.substr(0, stop));
      rest.remove_prefix(stop + 1);
      wanted = finish_line();
    }
    // What is beyond the limit is dropped: one byte too many is enough to be told as too long.
    line.append(rest.substr(0, kLineBytesMax + 1 - std::min(line.size(), kLineBytesMax + 1)));
  }
  if (!line.empty()) finish_line();
  if (file != STDIN_FILENO) ::close(file);
  self->end(self);
}

Result<std::unique_ptr<LineReader>> LineReader::open(boost::asio::io_context& io,
                                                     const std::filesystem::path& path) {
  const int file = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || std::filesystem::is_directory(path)) {
    return Error{Fault::not_found,
                 "cannot read " + path.string() + ": " + std::strerror(file < 0 ? errno : EISDIR) +
                     ". Give a file with one JSON object a line, or - for standard "
                     "input"};
  }
  auto state = std::make_shared<State>(io);
  std::thread([state, file] { State::run(state, file); }).detach();
  return std::unique_ptr<LineReader>(new LineReader(std::move(state)));
}

LineReader::~LineReader() {
  stop();
  state_->handler = nullptr;
}

LineReader::Got LineReader::next(std::uint64_t& number, std::string& line) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopped || (state_->lines.empty() && state_->ended)) {
    state_->work.reset();
    return Got::end;
  }
  if (state_->lines.empty()) {
    state_->awaited = true;
    if (!state_->work) state_->work.emplace(state_->io.get_executor());
    return Got::nothing_yet;
  }
  number = state_->lines.front().number;
  line = std::move(state_->lines.front().text);
  state_->lines.pop_front();
  if (state_->lines.size() == kLinesAhead / 2) state_->room.notify_one();
  return Got::line;
}

void LineReader::on_ready(std::function<void()> handler) {
  state_->handler = std::move(handler);
}

void LineReader::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->work.reset();
  state_->room.notify_one();
}

std::uint64_t LineReader::count_lines(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return 0;
  std::ifstream file(path, std::ios::binary);
  std::uint64_t count = 0;
  for (std::string line; std::getline(file, line);) count += is_blank(line) ? 0 : 1;
  return count;
}

}  // namespace twofold::lab
