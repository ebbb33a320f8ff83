#include "lab/cluster/cluster.h"

#include <signal.h>
#include <sys/wait.h>

#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "lab/cluster/state.h"

namespace twofold::lab {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::size_t kLastWordsBytes = 2'000;
constexpr milliseconds kKillMax{
    10'000};  // SIGKILL takes effect at once, but for a process in the disk

Result<std::string> read_file(const fs::path& path) {
  if (std::error_code ignored; fs::is_directory(path, ignored)) {
    return Error{Fault::not_found, path.string() + " is a directory: name the file in it"};
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return Error{Fault::not_found, "cannot read " + path.string() + ": " + std::strerror(errno)};
  }
  return text.str();
}

Configuration default_configuration() {
  Configuration configuration;
  configuration.coordinator.listen = "127.0.0.1:0";
  for (const char* name : {"orders", "payments", "dispatch", "kitchen"}) {
    ResourceManagerConfiguration rm;
    rm.name = name;
    rm.address = "127.0.0.1:0";
    configuration.resource_managers.push_back(std::move(rm));
  }
  return configuration;
}

// Where the caller has named none, everything lies in the data directory.
void fill_in_paths(Configuration& configuration, const fs::path& directory) {
  auto& log = configuration.coordinator.log;
  if (log.empty()) log = directory / "coordinator" / "log";
  for (auto& rm : configuration.resource_managers) {
    if (rm.data.empty()) rm.data = directory / rm.name;
  }
}

Result<Configuration> choose_configuration(const ClusterOptions& options) {
  const auto own = options.directory / "twofold.toml";
  if (options.configuration.empty()) {
    if (fs::exists(own)) return read_configuration(own);
    return default_configuration();
  }
  auto text = read_file(options.configuration);
  if (!text) return text.error();
  // Relative paths in it start at the data directory, where the copy will be; its faults are where
  // it is now.
  auto parsed = parse_configuration(*text, own);
  if (parsed) return parsed;
  auto message = parsed.error().message;
  if (message.starts_with(own.string())) {
    message.replace(0, own.string().size(), options.configuration.string());
  }
  return Error{parsed.error().fault, std::move(message)};
}

// Puts a real port in the place of each 0, or base_port and those that follow it everywhere.
Result<std::vector<ReservedPort>> settle_ports(Configuration& configuration,
                                               std::int64_t base_port) {
  std::vector<std::string*> addresses{&configuration.coordinator.listen};
  for (auto& rm : configuration.resource_managers) addresses.push_back(&rm.address);
  const auto count = static_cast<std::int64_t>(addresses.size());
  if (base_port < 0 || base_port > 65'536 - count) {
    return Error{Fault::invalid, "--base-port " + std::to_string(base_port) +
                                     ": choose one from 1 to " + std::to_string(65'536 - count) +
                                     ", since this system takes " + std::to_string(count) +
                                     " ports from there on"};
  }
  std::vector<ReservedPort> chosen;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    auto address = parse_address(*addresses[i]);
    if (!address) return address.error();
    if (base_port != 0) {
      address->port = static_cast<std::uint16_t>(base_port + static_cast<std::int64_t>(i));
    } else if (address->port == 0) {
      auto spare = ReservedPort::find(1);
      if (!spare) return spare.error();
      address->port = spare->front().number();
      chosen.push_back(std::move(spare->front()));
    }
    *addresses[i] = to_text(*address);
  }
  return chosen;
}

Result<void> write_configuration(const fs::path& path, Configuration configuration) {
  const fs::path directory = path.parent_path();
  // Relative, so that the directory can be moved.
  const auto shorten = [&](fs::path& of) {
    const auto relative = of.lexically_relative(directory);
    if (!relative.empty() && *relative.begin() != "..") of = relative;
  };
  shorten(configuration.coordinator.log);
  for (auto& rm : configuration.resource_managers) shorten(rm.data);
  std::ofstream file(path, std::ios::trunc);
  file << to_toml(configuration);
  file.close();
  if (!file) return Error{Fault::io, "cannot write " + path.string()};
  return {};
}

std::vector<Member> members_of(const Configuration& configuration) {
  std::vector<Member> members{
      {std::string(kCoordinator), "coordinator", configuration.coordinator.listen, {}}};
  for (const auto& rm : configuration.resource_managers) {
    members.push_back({rm.name, rm.kind, rm.address, {}});
  }
  return members;
}

std::string names_with_pids(const std::vector<Member>& members) {
  std::string text;
  for (const auto& member : members) {
    text += (text.empty() ? "" : ", ") + member.name + " (pid " +
            std::to_string(member.process.pid) + ")";
  }
  return text;
}

// Nothing may be laid out or claimed while processes run.
Result<void> refuse_if_up(const fs::path& directory, const ClusterState& now) {
  const auto running = now.running();
  const auto stop = ". Stop it first with: twofold down --data " + directory.string();
  if (is_alive(now.up)) {
    return Error{Fault::exists, directory.string() + " is already up: twofold up (pid " +
                                    std::to_string(now.up.pid) + ")" +
                                    (running.empty() ? "" : ", " + names_with_pids(running)) +
                                    stop};
  }
  if (running.empty()) return {};
  return Error{Fault::exists, directory.string() + " still has processes of an earlier run: " +
                                  names_with_pids(running) +
                                  "; the twofold up that watched them is gone" + stop};
}

enum class End { willingly, killed, not_yet };

// Waits, and sends SIGKILL when `grace` is over.
End await_end(const Process& process, milliseconds grace) {
  const bool willing = grace.count() > 0 && process.wait_for_end(grace);
  if (!willing) process.signal(SIGKILL);
  if (!process.wait_for_end(kKillMax)) return End::not_yet;
  (void)process.reap();
  return willing ? End::willingly : End::killed;
}

End end_process(const Process& process, milliseconds grace) {
  if (grace.count() > 0) process.signal(SIGTERM);
  return await_end(process, grace);
}

std::string last_words(const std::string& printed) {
  if (printed.size() <= kLastWordsBytes) return printed;
  return "…" + printed.substr(printed.size() - kLastWordsBytes);
}

}  // namespace

Cluster::Cluster(ClusterOptions options, Configuration configuration)
    : options_(std::move(options)), configuration_(std::move(configuration)) {}

Cluster::~Cluster() {
  if (!options_.kill_at_end || options_.directory.empty()) return;
  for (const auto& name : names()) (void)kill(name);
}

Result<Cluster> Cluster::create(ClusterOptions options) {
  std::error_code failed;
  fs::create_directories(options.directory / "logs", failed);
  if (failed) {
    return Error{Fault::io, "cannot make " + options.directory.string() + ": " + failed.message()};
  }
  options.directory = fs::canonical(options.directory);
  if (options.programs.empty()) options.programs = own_program_directory();
  auto lock = ClusterLock::take(options.directory);
  if (!lock) return lock.error();
  auto configuration = choose_configuration(options);
  if (!configuration) return configuration.error();
  fill_in_paths(*configuration, options.directory);
  Cluster cluster(std::move(options), std::move(*configuration));
  if (auto done = cluster.lay_out(); !done) {
    cluster.options_.kill_at_end = false;
    return done.error();
  }
  return cluster;
}

// Under the lock.
Result<void> Cluster::lay_out() {
  auto before = read_cluster_state(directory());
  if (!before && before.error().fault == Fault::damaged) return before.error();
  if (before) {
    if (auto done = refuse_if_up(directory(), *before); !done) return done.error();
  }
  auto ports = settle_ports(configuration_, options_.base_port);
  if (!ports) return ports.error();
  for (ReservedPort& port : *ports) ports_.push_back(std::move(port));
  if (auto done = refuse_another_log(); !done) return done.error();
  if (fs::exists(configuration_.coordinator.log)) {
    if (auto done = check_configuration(); !done) return done.error();
  }
  if (auto done = write_configuration(configuration_file(), configuration_); !done) {
    return done.error();
  }
  const auto log = configuration_.coordinator.log;
  if (!fs::exists(log)) {
    for (const auto& rm : configuration_.resource_managers) {
      if (!before && !fs::exists(rm.data)) continue;
      return Error{
          Fault::not_found,
          "the decision log " + log.string() +
              " is missing, but the system has run before: without it transactions in doubt "
              "cannot be decided. Put the log back; if it is lost for good, empty the data "
              "directory and begin anew"};
    }
    if (auto done = make_log(); !done) return done.error();
  }
  ClusterState state{{}, members_of(configuration_)};
  if (before) {
    for (auto& member : state.members) {
      if (const auto* earlier = before->find(member.name)) member.process = earlier->process;
    }
    state.up = before->up;
  }
  return write_cluster_state(directory(), state);
}

Result<void> Cluster::make_log() {
  std::error_code failed;
  fs::create_directories(configuration_.coordinator.log.parent_path(), failed);
  return run(
      "init", "twofold-log",
      {"init", configuration_.coordinator.log.string(), "--node", configuration_.coordinator.node,
       "--map-mib", std::to_string(configuration_.coordinator.log_map_bytes >> 20)});
}

// What is in doubt at the participants only the log tells that the system has run with.
Result<void> Cluster::refuse_another_log() const {
  if (!fs::exists(configuration_file())) return {};
  auto former = read_configuration(configuration_file());
  if (!former) return former.error();
  fill_in_paths(*former, directory());
  const fs::path& log = former->coordinator.log;
  std::error_code ignored;
  if (!fs::exists(log) || fs::equivalent(log, configuration_.coordinator.log, ignored)) return {};
  return Error{Fault::invalid,
               "the configuration names the decision log " +
                   configuration_.coordinator.log.string() + ", and this system has run with " +
                   log.string() +
                   ", which is still there and alone can end what the participants hold in doubt. "
                   "Name that one. To begin with another, drain every participant first (twofold "
                   "drain), stop the system, and move the former log out of its place"};
}

// The log knows which participants may hold branches, and only the coordinator reads it; the former
// configuration stays what it is until this one may take its place.
Result<void> Cluster::check_configuration() {
  const auto path = directory() / "twofold.toml.new";
  auto done = write_configuration(path, configuration_);
  if (done) {
    std::vector<std::string> arguments{"--config", path.string(), "--check"};
    const auto& more = options_.coordinator_arguments;
    arguments.insert(arguments.end(), more.begin(), more.end());
    done = run("check", "twofold-coordinator", arguments);
  }
  std::error_code ignored;
  fs::remove(path, ignored);
  return done;
}

Result<void> Cluster::run(std::string_view name, const char* program,
                          const std::vector<std::string>& arguments) {
  auto follower = LogFollower::open(log_file(name));
  if (!follower) return follower.error();
  auto process = spawn(options_.programs / program, arguments, log_file(name));
  if (!process) return process.error();
  process->wait_for_end(std::chrono::minutes{1});
  const auto how = process->reap();
  if (how == "exit status 0") return {};
  return Error{Fault::io,
               std::string(program) + " failed (" + how + "): " + last_words(follower->text())};
}

Result<Cluster> Cluster::open(const fs::path& directory, const fs::path& programs) {
  if (auto state = read_cluster_state(directory); !state) return state.error();
  auto configuration = read_configuration(directory / "twofold.toml");
  if (!configuration) return configuration.error();
  ClusterOptions options;
  options.directory = fs::canonical(directory);
  options.programs = programs.empty() ? own_program_directory() : programs;
  return Cluster(std::move(options), std::move(*configuration));
}

fs::path Cluster::log_file(std::string_view name) const {
  return directory() / "logs" / (std::string(name) + ".log");
}

std::vector<std::string> Cluster::names() const {
  std::vector<std::string> found;
  for (auto& member : members_of(configuration_)) found.push_back(std::move(member.name));
  return found;
}

Error Cluster::no_such_name(std::string_view name) const {
  std::string choices;
  for (const auto& known : names()) choices += (choices.empty() ? "" : ", ") + known;
  return {Fault::not_found, "there is no process named " + std::string(name) + " in " +
                                directory().string() + ": choose one of " + choices};
}

Result<Address> Cluster::address(std::string_view name) const {
  auto now = state();
  if (!now) return now.error();
  const auto* member = now->find(name);
  if (!member) return no_such_name(name);
  return parse_address(member->address);
}

Result<void> Cluster::claim() {
  auto lock = ClusterLock::take(directory());
  if (!lock) return lock.error();
  auto now = state();
  if (!now) return now.error();
  if (auto done = refuse_if_up(directory(), *now); !done) return done.error();
  now->up = this_process();
  return write_cluster_state(directory(), *now);
}

std::vector<std::string> Cluster::command_line(std::string_view name) const {
  std::vector<std::string> arguments{"--config", configuration_file().string()};
  if (name != kCoordinator) {
    arguments.push_back("--name");
    arguments.push_back(std::string(name));
  }
  return arguments;
}

Error Cluster::ended_early(std::string_view name, const std::string& printed) const {
  return {Fault::closed, std::string(name) + " did not start. Its last words (" +
                             log_file(name).string() + "):\n" + last_words(printed)};
}

Result<void> Cluster::start(std::string_view name, const StartOptions& options) {
  auto lock = ClusterLock::take(directory());
  if (!lock) return lock.error();
  auto now = state();
  if (!now) return now.error();
  auto* member = const_cast<Member*>(now->find(name));
  if (!member) return no_such_name(name);
  if (is_alive(member->process)) {
    return Error{Fault::exists, std::string(name) + " is already running (pid " +
                                    std::to_string(member->process.pid) +
                                    "). Kill it first with: twofold kill " + std::string(name) +
                                    " --data " + directory().string()};
  }
  auto follower = LogFollower::open(log_file(name));
  if (!follower) return follower.error();
  auto arguments = command_line(name);
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  const char* program = name == kCoordinator ? "twofold-coordinator" : "twofold-rm";
  auto process = spawn(options_.programs / program, arguments, log_file(name));
  if (!process) return process.error();
  member->process = process->id();
  if (auto done = write_cluster_state(directory(), *now); !done) {
    process->signal(SIGKILL);
    return done.error();
  }
  if (!options.wait_until_ready) return {};
  if (follower->wait_for_line("listening on ", *process, options.ready_max)) return {};
  if (process->wait_for_end(milliseconds{0})) {
    (void)process->reap();
    return ended_early(name, follower->text());
  }
  return Error{Fault::timeout, std::string(name) + " runs but is not ready after " +
                                   std::to_string(options.ready_max.count() / 1000) + " s: see " +
                                   log_file(name).string()};
}

Result<void> Cluster::start_all() {
  auto order = names();
  std::rotate(order.begin(), order.begin() + 1, order.end());
  for (const auto& name : order) {
    StartOptions options;
    if (name == kCoordinator) options.arguments = options_.coordinator_arguments;
    if (auto done = start(name, options); !done) {
      stop_all();
      return done.error();
    }
  }
  return {};
}

std::optional<Process> Cluster::open_process(std::string_view name) const {
  const auto now = state();
  if (!now) return std::nullopt;
  const auto* member = now->find(name);
  return member ? Process::open(member->process) : std::nullopt;
}

bool Cluster::is_running(std::string_view name) const {
  return open_process(name).has_value();
}

bool Cluster::wait_for_end(std::string_view name, milliseconds timeout) {
  const auto process = open_process(name);
  if (!process) return true;
  if (!process->wait_for_end(timeout)) return false;
  (void)process->reap();
  return true;
}

Result<ProcessId> Cluster::kill(std::string_view name) {
  return stop(name, milliseconds{0});
}

Result<ProcessId> Cluster::stop(std::string_view name, milliseconds grace) {
  auto now = state();
  if (!now) return now.error();
  if (!now->find(name)) return no_such_name(name);
  const auto process = open_process(name);
  if (!process) {
    return Error{Fault::not_found, std::string(name) +
                                       " does not run. Start it with: twofold start " +
                                       std::string(name) + " --data " + directory().string()};
  }
  if (end_process(*process, grace) == End::not_yet) {
    return Error{Fault::timeout, std::string(name) + " (pid " + std::to_string(process->id().pid) +
                                     ") was sent SIGKILL but has not ended: the kernel holds it"};
  }
  return process->id();
}

std::vector<std::string> Cluster::stop_all(milliseconds grace) {
  std::vector<std::string> killed;
  const auto order = names();
  if (const auto coordinator = open_process(kCoordinator)) {
    if (end_process(*coordinator, grace) != End::willingly) killed.emplace_back(kCoordinator);
  }
  std::vector<std::pair<std::string, Process>> others;
  for (const auto& name : order) {
    auto process = open_process(name);
    if (!process) continue;
    process->signal(SIGTERM);  // to all of them before waiting for the first
    others.emplace_back(name, std::move(*process));
  }
  for (const auto& [name, process] : others) {
    if (await_end(process, grace) != End::willingly) killed.push_back(name);
  }
  return killed;
}

}  // namespace twofold::lab
