// twofold-coordinator: decides; keeps decisions in LMDB; drives resource managers over TCP.

#include <sys/resource.h>

#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <utility>

#include "coordinator/command_line.h"
#include "coordinator/core/events.h"
#include "coordinator/engine.h"
#include "runtime/logging.h"

namespace twofold::coordinator {
namespace {

std::vector<std::string_view> crossings() {
  std::vector<std::string_view> names = event_names();
  for (std::string_view effect : effect_names()) names.push_back(effect);
  return names;
}

// SIGTERM or SIGINT ends the engine in order, a second one at once.
class Signals {
 public:
  explicit Signals(Engine& engine) : engine_(engine), set_(engine.io(), SIGTERM, SIGINT) { wait(); }

 private:
  void wait() {
    set_.async_wait([this](const boost::system::error_code& cancelled, int number) {
      if (cancelled) return;
      if (std::exchange(ending_, true)) std::_Exit(128 + number);
      engine_.shutdown();
      wait();
    });
  }
  Engine& engine_;
  boost::asio::signal_set set_;
  bool ending_ = false;
};

// connections_max promises more than the usual soft limit of open files.
void allow_many_connections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == files.rlim_max) return;
  files.rlim_cur = files.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) spdlog::warn("cannot raise the limit of open files");
}

EngineOptions options_of(CommandLine command_line) {
  EngineOptions options;
  options.rebuild = command_line.rebuild;
  options.restored = command_line.restored;
  options.accept_stores = std::move(command_line.accept_stores);
  if (!command_line.crash_at.empty()) {
    options.crash_point = CrashPoint::parse(command_line.crash_at, crossings()).value();
  }
  options.configuration = std::move(command_line.configuration);
  return options;
}

// Beside a coordinator that runs, too.
void check(CommandLine command_line) {
  const EngineOptions options = options_of(std::move(command_line));
  auto store = LmdbDecisionStore::open_read_only(options.configuration.coordinator.log);
  if (!store && store.error().fault == Fault::not_found) {
    throw std::runtime_error("there is no log in " +
                             options.configuration.coordinator.log.string() +
                             ", so nothing can be said: name the system's log with --log DIR (a "
                             "relative one in a configuration starts at the file's own folder)");
  }
  replay_for(options, *store.value()).value();
  std::cout << "the log allows to start with this configuration" << std::endl;
}

void serve(CommandLine command_line) {
  set_up_logging("twofold-coordinator", command_line.log_level);
  allow_many_connections();
  EngineOptions options = options_of(std::move(command_line));
  std::unique_ptr<DecisionStore> store =
      LmdbDecisionStore::open(options.configuration.coordinator.log).value();
  Engine engine(std::move(options), std::move(store));
  Signals signals(engine);
  std::cout << "listening on " << to_text(engine.address()) << std::endl;
  engine.run().value();
}

int run(int argc, const char* const* argv) {
  ParsedCommandLine parsed = parse_command_line(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  if (parsed.command_line.list_crash_points) {
    for (const std::string& point : CrashPoint::all(crossings())) std::cout << point << '\n';
    return EXIT_SUCCESS;
  }
  try {
    (parsed.command_line.check ? check : serve)(std::move(parsed.command_line));
  } catch (const std::exception& fault) {
    std::cerr << "twofold-coordinator: " << fault.what() << '\n';
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace twofold::coordinator

int main(int argc, char** argv) {
  return twofold::coordinator::run(argc, argv);
}
