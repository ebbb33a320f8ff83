// Drives a file of transactions through a coordinator: a window of them in flight, each line's
// result told once, and the end only when every transaction has ended everywhere (rule 9).
//
// Threads: everything lives on the thread that runs the io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "client/client.h"
#include "lab/workflows/line_reader.h"

namespace twofold::lab {

// Which requests are the same ones when a killed client is started again. Its text names the newest
// TxnId known when the run began, so that a resubmission can tell "never seen" from "too old" (rule
// 7): "3.17-q1w2e3r4t5y6". Any other text is a run too, with the oldest TxnId there is.
struct Run {
  std::string id;
  TxnId known;

  static Run make(TxnId known);
  static Result<Run> parse(std::string_view text);  // invalid: empty, or too long for a request id
  std::string request_id(std::string_view line) const { return id + ":" + std::string(line); }
};

// What a transaction came to, in the words of a result line: committed, aborted, invalid or
// unknown. Why, as a person reads it; empty for a commit.
std::string_view outcome_word(const Outcome& outcome);
std::string reason_text(const Outcome& outcome);

struct LineResult {
  std::uint64_t line = 0;
  std::string request_id;
  Outcome outcome;  // a line that could not be read: rejected, invalid, and why
  unsigned attempts = 0;
};

struct RunnerOptions {
  std::size_t concurrency = 16;
  bool wait_for_end = true;
};

struct RunnerCounts {
  std::uint64_t told = 0;        // lines whose result was told
  std::uint64_t in_flight = 0;   // not decided
  std::uint64_t ending = 0;      // decided, not ended everywhere
  std::uint64_t unfinished = 0;  // decided, and not waited for or not to be told whether ended
  std::uint64_t heuristic = 0;   // a branch ended otherwise than its transaction, as far as known
  bool whole = false;            // every line was taken
};

class Runner {
 public:
  struct Handlers {
    // A line's transaction. An empty request id is filled in from the run; so is `known`.
    std::function<Result<client::Transaction>(std::string_view line)> parse;
    std::function<void(const LineResult&)> on_result;
    std::function<void()> on_end;
    // Once for a transaction of which a branch ended otherwise than it did. That may come to light
    // only after its result was told: when every branch has ended.
    std::function<void(const LineResult&)> on_heuristic{};
  };

  // `client` and `reader` outlive the runner.
  Runner(boost::asio::io_context& io, client::AsyncClient& client, LineReader& reader, Run run,
         RunnerOptions options, Handlers handlers);
  ~Runner();

  void start();
  // Takes no further lines, and waits for no end: it ends when what is in flight is decided.
  void stop();
  const RunnerCounts& counts() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace twofold::lab
