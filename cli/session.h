// What `submit` and `order` share: a client with its event loop, a file of lines going through it,
// a progress bar on a terminal, result lines, Ctrl-C.
#pragma once

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/target.h"
#include "client/client.h"
#include "lab/workflows/runner.h"

namespace twofold::cli {

struct SessionOptions {
  Target target;
  std::string file;    // "-": standard input
  std::string output;  // result lines; empty: none, "-": standard output
  std::string run;     // of the earlier command that is resumed
  std::size_t concurrency = 16;
  unsigned retries = 20;
  unsigned give_up_s = 60;
  bool no_wait = false;
  bool json = false;
};
void add_session_options(CLI::App& command, SessionOptions& options);

// One line's result as its result line needs it: the class is the command's.
struct Told {
  std::string_view outcome;  // committed, aborted, invalid, unknown
  std::string_view result_class;
};

struct SessionResult {
  lab::RunnerCounts counts;
  double seconds = 0;
  bool interrupted = false;
};

class Session {
 public:
  explicit Session(SessionOptions options);
  ~Session();

  // Waits until the coordinator has greeted us; then run() is known: a new one, or the one given.
  Result<void> connect();
  const lab::Run& run() const;

  // Submits all of them, waits, and gives back their outcomes in order.
  std::vector<client::Answered> submit_all(std::vector<client::Transaction> transactions);

  Outcome ask(std::string request_id);  // what has become of a request of this run

  using Parse = std::function<Result<client::Transaction>(std::string_view line)>;
  using Tell = std::function<Told(const lab::LineResult&)>;
  Result<SessionResult> run_file(Parse parse, Tell tell);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// What is to be said at the end besides the counts; the exit status: 0, 1 or, after Ctrl-C or
// SIGTERM, 130.
int finish(const SessionOptions& options, const lab::Run& run, const SessionResult& result,
           std::uint64_t unknown);

}  // namespace twofold::cli
