// up, down, kill, start: a whole system on this machine. The work is lab/cluster's.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/links.h"
#include "cli/output.h"
#include "cli/target.h"
#include "lab/cluster/cluster.h"

namespace twofold::cli {
namespace {

using lab::Cluster;
using lab::ClusterState;
using lab::Member;
using lab::Process;

constexpr std::chrono::seconds kDownMax{30};

struct SystemOptions {
  std::string data;
  std::string configuration;
  std::string name;
  std::string crash_at;
  bool restored = false;
  std::vector<std::string> accept_stores;
  std::int64_t base_port = 0;
  bool json = false;
};

// What only the coordinator takes.
std::vector<std::string> coordinator_arguments(const SystemOptions& options) {
  std::vector<std::string> arguments;
  if (options.restored) arguments.push_back("--restored");
  for (const std::string& name : options.accept_stores) {
    arguments.insert(arguments.end(), {"--accept-store", name});
  }
  return arguments;
}

json::object member_json(const Member& member) {
  return {{"name", member.name},
          {"kind", member.kind},
          {"address", member.address},
          {"pid", member.process.pid}};
}

// Tells of deaths and starts until a signal asks for the end.
class Watcher {
 public:
  explicit Watcher(Cluster& cluster, bool json) : cluster_(cluster), json_(json) {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    signals_ = ::signalfd(-1, &signals, SFD_CLOEXEC);
    changes_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    ::inotify_add_watch(changes_, cluster.directory().c_str(), IN_MOVED_TO);
  }
  ~Watcher() {
    ::close(signals_);
    ::close(changes_);
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  void run() {
    look(false);
    while (!wait_for_something()) look(true);
  }

 private:
  // True: a signal came.
  bool wait_for_something() {
    std::vector<pollfd> waits{{signals_, POLLIN, 0}, {changes_, POLLIN, 0}};
    std::vector<std::string> names;
    for (const auto& [name, process] : watched_) {
      waits.push_back({process.descriptor(), POLLIN, 0});
      names.push_back(name);
    }
    while (::poll(waits.data(), waits.size(), -1) < 0 && errno == EINTR) {
    }
    char buffer[4096];
    while (::read(changes_, buffer, sizeof buffer) > 0) {
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (waits[i + 2].revents != 0) tell_death(names[i]);
    }
    return waits[0].revents != 0;
  }

  // Takes up what cluster.json names and we do not watch yet.
  void look(bool tell) {
    const auto state = cluster_.state();
    if (!state) return;
    for (const auto& member : state->members) {
      const auto at = watched_.find(member.name);
      if (at != watched_.end() && at->second.id() == member.process) continue;
      auto process = Process::open(member.process);
      if (!process) continue;
      watched_.insert_or_assign(member.name, std::move(*process));
      if (tell) tell_start(member);
    }
  }

  void tell_start(const Member& member) {
    if (json_) {
      auto event = member_json(member);
      event["event"] = "started";
      return print_json(event);
    }
    print_line(member.name + " runs again (pid " + std::to_string(member.process.pid) + ")");
  }

  void tell_death(const std::string& name) {
    const auto at = watched_.find(name);
    const auto how = at->second.reap();
    const auto pid = at->second.id().pid;
    watched_.erase(at);
    if (json_) {
      return print_json(
          json::object{{"event", "died"}, {"name", name}, {"pid", pid}, {"how", how}});
    }
    const bool by_itself = how.starts_with("exit") || how == "SIGABRT";
    print_line(name + " died" + (how.empty() ? "" : " (" + how + ")") +
               (by_itself ? "; its last words are in " + cluster_.log_file(name).string() : "") +
               "; start it again with: twofold start " + name + " --data " +
               cluster_.directory().string());
  }

  Cluster& cluster_;
  bool json_;
  int signals_ = -1;
  int changes_ = -1;
  std::map<std::string, Process> watched_;
};

void print_system(const Cluster& cluster, const ClusterState& state, bool as_json) {
  if (as_json) {
    json::array processes;
    for (const auto& member : state.members) processes.push_back(member_json(member));
    return print_json(json::object{{"event", "up"},
                                   {"data", cluster.directory().string()},
                                   {"pid", state.up.pid},
                                   {"processes", std::move(processes)}});
  }
  const auto data = cluster.directory().string();
  print_line("Twofold is up in " + data + "\n");
  Table table({"process", "kind", "address", "pid"}, {false, false, false, true});
  for (const auto& member : state.members) {
    table.add({member.name, member.kind, member.address, std::to_string(member.process.pid)});
  }
  table.print();
  print_line("\nLook at it with:  twofold stats --data " + data +
             "\nStop it with Ctrl-C here, or:  twofold down --data " + data + "\n");
}

void tell_stopped(const std::vector<std::string>& killed, bool as_json) {
  json::array names;
  for (const auto& name : killed) names.emplace_back(name);
  if (as_json) return print_json(json::object{{"event", "down"}, {"killed", std::move(names)}});
  for (const auto& name : killed) print_line(name + " did not stop within 5 s and was killed");
  print_line("all stopped");
}

int up(const SystemOptions& options) {
  lab::ClusterOptions layout;
  layout.directory = options.data;
  layout.configuration = options.configuration;
  layout.base_port = options.base_port;
  layout.coordinator_arguments = coordinator_arguments(options);
  auto cluster = Cluster::create(layout);
  if (!cluster) return fail(cluster.error());
  Watcher watcher(*cluster, options.json);  // from here on signals wait for run()
  if (auto done = cluster->claim(); !done) return fail(done.error());
  if (auto done = cluster->start_all(); !done) return fail(done.error());
  await_links(*cluster, participants_of(*cluster));
  auto state = cluster->state();
  if (!state) return fail(state.error());
  print_system(*cluster, *state, options.json);
  watcher.run();
  tell_stopped(cluster->stop_all(), options.json);
  return 0;
}

// An `up` that lives stops everything itself; of one that was killed the processes are left.
int down(const SystemOptions& options) {
  auto cluster = Cluster::open(options.data);
  if (!cluster) return fail(cluster.error());
  auto state = cluster->state();
  if (!state) return fail(state.error());
  const auto running = state->running();
  if (const auto watching = Process::open(state->up)) {
    watching->signal(SIGTERM);
    if (!watching->wait_for_end(kDownMax)) {
      note("twofold up (pid " + std::to_string(state->up.pid) +
           ") does not stop its processes: stopping them from here");
    }
  } else if (running.empty()) {
    if (options.json) {
      tell_stopped({}, true);
    } else {
      print_line("nothing runs in " + cluster->directory().string());
    }
    return 0;
  }
  tell_stopped(cluster->stop_all(), options.json);
  return 0;
}

int kill_one(const SystemOptions& options) {
  auto cluster = Cluster::open(options.data);
  if (!cluster) return fail(cluster.error());
  auto killed = cluster->kill(options.name);
  if (!killed) return fail(killed.error());
  if (options.json) {
    print_json(json::object{{"event", "killed"}, {"name", options.name}, {"pid", killed->pid}});
  } else {
    print_line(options.name + " (pid " + std::to_string(killed->pid) +
               ") was sent SIGKILL; start it again with: twofold start " + options.name +
               " --data " + cluster->directory().string());
  }
  return 0;
}

int start_one(const SystemOptions& options) {
  auto cluster = Cluster::open(options.data);
  if (!cluster) return fail(cluster.error());
  lab::StartOptions start;
  start.arguments = coordinator_arguments(options);
  const bool coordinator = options.name == lab::kCoordinator;
  if (!coordinator && !start.arguments.empty()) {
    return fail({Fault::invalid, start.arguments.front() +
                                     " is for the coordinator's start: twofold start coordinator"});
  }
  if (!options.crash_at.empty()) {
    start.arguments.insert(start.arguments.end(), {"--crash-at", options.crash_at});
  }
  if (auto done = cluster->start(options.name, start); !done) return fail(done.error());
  await_links(*cluster, coordinator ? participants_of(*cluster) : std::vector{options.name});
  auto state = cluster->state();
  if (!state) return fail(state.error());
  const auto& member = *state->find(options.name);
  if (options.json) {
    auto event = member_json(member);
    event["event"] = "started";
    print_json(event);
  } else {
    print_line(member.name + " runs at " + member.address + " (pid " +
               std::to_string(member.process.pid) + ")");
  }
  return 0;
}

CLI::App* add_command(CLI::App& app, const char* name, const char* description, const char* footer,
                      const std::shared_ptr<SystemOptions>& options, int& status,
                      int (*run)(const SystemOptions&)) {
  auto* command = app.add_subcommand(name, description);
  command->footer(footer);
  auto* data = add_data_option(*command, options->data);
  if (options->data.empty()) data->required();
  command->add_flag("--json", options->json, "Print JSON, one object a line");
  command->callback([options, &status, run] { status = run(*options); });
  return command;
}

void add_coordinator_options(CLI::App& command, SystemOptions& options) {
  command.add_flag("--restored", options.restored,
                   "The coordinator, for once, on a log that is an older copy: see docs/backup.md");
  command
      .add_option("--accept-store", options.accept_stores,
                  "The coordinator, for once: that participant's store is lost for good, and "
                  "another one is taken in its place; may be repeated. See docs/participants.md")
      ->type_name("NAME")
      ->type_size(1)
      ->allow_extra_args(false);
}

}  // namespace

void add_system(CLI::App& app, int& status) {
  const auto options = std::make_shared<SystemOptions>();
  auto* up_command = add_command(
      app, "up",
      "Start a whole system on this machine: a coordinator and its resource managers as real "
      "processes, in the foreground. Tells when one dies; does not start it again by itself",
      "Example:\n  twofold up --data /var/tmp/shop --base-port 7400\n\n"
      "Without --config the resource managers are orders, payments, dispatch and kitchen.\n"
      "DIR/cluster.json has pids and addresses, DIR/logs what each process printed.",
      options, status, up);
  up_command
      ->add_option(
          "--config", options->configuration,
          "A TOML file that describes the system; it is copied to DIR/twofold.toml, and its "
          "relative paths start at DIR")
      ->type_name("FILE");
  up_command
      ->add_option(
          "--base-port", options->base_port,
          "The coordinator's port; the others follow. Without it: the ports of the last time, "
          "or free ones")
      ->type_name("PORT");
  add_coordinator_options(*up_command, *options);
  add_command(app, "down",
              "Stop a system: what `up` started, and what one that was killed has left",
              "Example:\n  twofold down --data /var/tmp/shop", options, status, down);
  auto* kill_command = add_command(
      app, "kill", "Send SIGKILL to one process of a system, as a crash would",
      "Example:\n  twofold kill payments --data /var/tmp/shop", options, status, kill_one);
  kill_command->add_option("NAME", options->name, "coordinator, or a resource manager's name")
      ->required();
  auto* start_command = add_command(app, "start", "Start one process of a system again",
                                    "Example:\n  twofold start payments --data /var/tmp/shop",
                                    options, status, start_one);
  start_command->add_option("NAME", options->name, "coordinator, or a resource manager's name")
      ->required();
  start_command
      ->add_option("--crash-at", options->crash_at,
                   "Let it kill itself at this point: before|after:<Event or Effect>[@rm][#n]")
      ->type_name("POINT");
  add_coordinator_options(*start_command, *options);
}

}  // namespace twofold::cli
