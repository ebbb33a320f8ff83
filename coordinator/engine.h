// The coordinator's driver: it owns the event loop, the core, the log's writer, the links to
// resource managers and the server for clients, and carries messages between them. It decides
// nothing.
//
// How it runs: whatever arrives (frames, finished groups of log records, timers) is posted as an
// event. One wake-up steps all events that have gathered, in order; each step's effects are carried
// out at once, in order. What the whole batch wants written goes to the log in one submission, and
// what it sent to one peer leaves in one write. The queue is never re-entered: an effect that fails
// on the spot posts an event of its own.
//
// Threads: one engine thread, the one that calls run(); the log's writer thread only posts to it.
// Nothing of it may be touched by another thread while run() runs, except stop().
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "log/decision_store.h"
#include "protocol/connection.h"
#include "runtime/configuration.h"
#include "runtime/crash_point.h"

namespace twofold::coordinator {

struct EngineOptions {
  Configuration configuration;  // the coordinator's part, and the names and addresses of the rest
  CrashPoint crash_point;
  bool rebuild = false;   // the operator confirmed a new log for a known node (rule 2)
  bool restored = false;  // the operator says that the log is an older copy of itself (rule 2)
  std::vector<std::string> accept_stores{};  // as in the core's Options
};

// Replays the log, if a coordinator may start on it with these options. invalid: it is another
// node's, marked as a backup (unless `restored`), or it knows a participant that the configuration
// leaves out and that was not drained. Changes nothing.
Result<Recovered> replay_for(const EngineOptions& options, DecisionStore& store);

class Engine {
 public:
  // Opens a new epoch (rule 1), replays the log and listens; links connect once run() is called.
  // Throws std::runtime_error, whose text says what to do, when the log belongs to another node,
  // does not replay, knows a participant that is left out and not drained, or is marked as a backup
  // (unless `restored`), or an address cannot be used.
  Engine(EngineOptions options, std::unique_ptr<DecisionStore> store);
  ~Engine();  // what has been handed to the log is written first

  boost::asio::io_context& io();  // for signals; everything on it runs on the engine's thread
  Address address() const;        // where clients connect, with the real port

  // Serves until a shutdown is complete or stop() is called. An exception that reaches the event
  // loop is logged and ends the process: a coordinator that has lost an event must not go on
  // deciding.
  //
  // outdated: a resource manager knows an epoch that this log did not record (rule 2). The log is
  // marked as an older copy, nothing more was decided, nobody has been told anything. The message
  // says what to do.
  Result<void> run();

  // Rule 25: aborts what can still be aborted, serves answers until all that is under way has ended
  // and the log is drained, for shutdown_grace_ms at most, then tells the rest unknown; run()
  // returns. On the engine's thread.
  void shutdown();

  // run() returns and nobody is told anything, as if the process had ended. From any thread.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace twofold::coordinator
