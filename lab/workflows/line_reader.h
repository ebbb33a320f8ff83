// Lines of a file, or of standard input, read by a thread of their own: a slow pipe must not stop
// the event loop that holds the connection to the coordinator. Blank lines are skipped but keep
// their number.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "protocol/result.h"

namespace twofold::lab {

class LineReader {
 public:
  enum class Got : std::uint8_t { line, nothing_yet, end };

  // "-" is standard input. Calls of next() and `on_ready` belong to the thread that runs `io`.
  static Result<std::unique_ptr<LineReader>> open(boost::asio::io_context& io,
                                                  const std::filesystem::path& path);
  ~LineReader();  // does not wait for a read that blocks

  // After nothing_yet, `on_ready` is called once when there is a line or the end.
  Got next(std::uint64_t& number, std::string& line);
  void on_ready(std::function<void()> handler);
  void stop();  // no further lines: next() says end

  // Of a regular file: how many lines that are not blank it has; 0 for a pipe. Reads the file once.
  static std::uint64_t count_lines(const std::filesystem::path& path);

 private:
  struct State;
  explicit LineReader(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace twofold::lab
