// twofold-rm: hosts one resource manager behind the wire protocol.
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <utility>

#include "resource_manager/adapters/files.h"
#include "resource_manager/adapters/store.h"
#include "resource_manager/command_line.h"
#include "resource_manager/engine.h"
#include "resource_manager/server.h"
#include "runtime/logging.h"

namespace twofold::resource_manager {
namespace {

using std::chrono::milliseconds;

std::uint64_t random_number() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

// One branch per kind: the only place that knows them all.
Result<std::unique_ptr<Adapter>> open_adapter(const ResourceManagerConfiguration& configuration) {
  if (configuration.kind == "store") {
    StoreOptions options;
    options.directory = configuration.data;
    options.map_bytes = configuration.map_bytes;
    options.results_bytes_max = configuration.frame_bytes_max / 2;
    options.lazy_flush = milliseconds(configuration.lazy_flush_ms);
    return open_store(options);
  }
  if (configuration.kind == "files") {
    FilesOptions options;
    options.directory = configuration.data;
    options.results_bytes_max = configuration.frame_bytes_max / 2;
    return open_files(options);
  }
  return Error{Fault::unsupported, "kind '" + configuration.kind +
                                       "' is not known: this build hosts --kind store and --kind "
                                       "files"};
}

Options core_options(const ResourceManagerConfiguration& configuration) {
  Options options;
  options.name = configuration.name;
  options.incarnation = random_number();
  options.branches_max = configuration.branches_max;
  options.locks_max = configuration.locks_max;
  options.lock_timeout = milliseconds(configuration.lock_timeout_ms);
  options.fence = milliseconds(configuration.fence_ms);
  options.early_release = configuration.early_release;
  return options;
}

ServerOptions server_options(const ResourceManagerConfiguration& configuration,
                             const Address& address, std::uint64_t incarnation) {
  ServerOptions options;
  options.name = configuration.name;
  options.kind = configuration.kind;
  options.listen = address;
  options.incarnation = incarnation;
  options.connections_max = configuration.connections_max;
  options.scan_bytes_max = configuration.scan_bytes_max;
  options.connection.frame_bytes_max = configuration.frame_bytes_max;
  options.connection.heartbeat = milliseconds(configuration.heartbeat_ms);
  options.connection.silence_max = milliseconds(configuration.silence_max_ms);
  return options;
}

// Whoever started this process waits for one of the two.
void tell_ready(const std::string& address, const std::string& ready_file) {
  std::cout << "listening on " << address << std::endl;
  if (ready_file.empty()) return;
  const std::string unfinished = ready_file + ".new";
  std::ofstream file(unfinished, std::ios::trunc);
  file << address << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, ready_file, error);
  if (!file || error) throw std::runtime_error("cannot write the ready file " + ready_file);
}

// Rule 25: what was asked for is written and told; then everyone is told of the end.
class Shutdown {
 public:
  Shutdown(boost::asio::io_context& io, Engine& engine, Server& server)
      : io_(io), engine_(engine), server_(server), signals_(io, SIGTERM, SIGINT), grace_(io) {
    signals_.async_wait([this](const boost::system::error_code& error, int) {
      if (!error) begin();
    });
  }

 private:
  void begin() {
    spdlog::info("shutting down");
    signals_.async_wait([this](const boost::system::error_code& error, int) {
      if (!error) io_.stop();  // a second one: at once
    });
    server_.stop_accepting();
    if (!engine_.stop()) {
      spdlog::warn(
          "the store had no room to end some decided branches: they stay in doubt, and end after "
          "the next start, when there is room");
    }
    server_.close_all([this] { io_.stop(); });
    grace_.expires_after(std::chrono::seconds(2));
    grace_.async_wait([this](const boost::system::error_code&) { io_.stop(); });
  }

  boost::asio::io_context& io_;
  Engine& engine_;
  Server& server_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer grace_;
};

int serve(const CommandLine& line) {
  const ResourceManagerConfiguration& configuration = line.configuration;
  const Result<Address> address = parse_address(configuration.address);
  if (!address) throw std::runtime_error(address.error().message);
  std::unique_ptr<Adapter> adapter = open_adapter(configuration).value();
  boost::asio::io_context io(1);
  Options options = core_options(configuration);
  const std::uint64_t incarnation = options.incarnation;
  Engine engine(io, std::move(options), line.crash_point, *adapter);
  Server server(io, server_options(configuration, *address, incarnation), engine);
  Shutdown shutdown(io, engine, server);
  spdlog::info("{} ({}) serves {} at {}; {} prepared branches", configuration.name,
               configuration.kind, configuration.data.string(), to_text(server.address()),
               engine.branches().counts().prepared);
  tell_ready(to_text(server.address()), line.ready_file);
  io.run();
  return 0;
}

int run(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    CommandLine line;
    if (std::optional<int> status = parse_command_line(argc, argv, line)) return *status;
    set_up_logging("twofold-rm " + line.configuration.name, line.log_level);
    return serve(line);
  } catch (const std::exception& error) {
    std::cerr << "twofold-rm: " << error.what() << '\n';
    return 1;
  }
}

}  // namespace
}  // namespace twofold::resource_manager

int main(int argc, char** argv) {
  return twofold::resource_manager::run(argc, argv);
}
