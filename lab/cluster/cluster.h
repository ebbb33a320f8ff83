// A whole system on this machine: one coordinator and its resource managers as real processes on
// loopback, laid out in one data directory:
//
//   twofold.toml        the configuration that the programs read, real ports included
//   cluster.json        who runs: names, addresses, pids with start times (docs: README)
//   cluster.lock        held while cluster.json changes or a process is being started
//   coordinator/log     the decision log;  NAME/  the data of each resource manager
//   logs/NAME.log       what each process printed
//
// Used by `twofold up` and its companions, the demo, the tests and the lab. Any number of processes
// may have the same directory open: cluster.json is replaced atomically, and whether a process runs
// is asked of the kernel, never read from the file. Not thread-safe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/cluster/process.h"
#include "protocol/connection.h"
#include "protocol/result.h"
#include "runtime/configuration.h"

namespace twofold::lab {

inline constexpr std::string_view kCoordinator = "coordinator";  // the coordinator's process name

struct Member {
  std::string name;
  std::string kind;     // "coordinator", "store"
  std::string address;  // HOST:PORT
  ProcessId process;    // of its last start; pid 0: never started
  bool operator==(const Member&) const = default;
};

struct ClusterState {
  ProcessId up;                 // the `twofold up` that watches it; it may have ended
  std::vector<Member> members;  // the coordinator first
  const Member* find(std::string_view name) const;
  std::vector<Member> running() const;
};
// not_found: no cluster.json; damaged: it is not one. The message says what to do.
Result<ClusterState> read_cluster_state(const std::filesystem::path& directory);

struct ClusterOptions {
  std::filesystem::path directory;
  std::filesystem::path
      configuration;  // empty: the one in the directory, or orders, payments, dispatch, kitchen
  std::int64_t base_port = 0;      // the coordinator's, the others follow; 0: free ports
  std::filesystem::path programs;  // empty: beside the running program
  std::vector<std::string> coordinator_arguments{};  // at its start by start_all(): "--restored"
  bool kill_at_end = false;                          // the destructor kills what runs
};

struct StartOptions {
  std::vector<std::string> arguments;  // e.g. {"--crash-at", "after:Persist"}
  bool wait_until_ready = true;
  std::chrono::milliseconds ready_max{30'000};
};

// A port on loopback that nobody else is given for as long as this object lives, also while its
// server is down. A server can take it if it allows address reuse, as ours do.
class ReservedPort {
 public:
  // Free ones, outside the range that the kernel gives to outgoing connections: there a restarted
  // server might find its port taken, or a client connect to itself.
  static Result<std::vector<ReservedPort>> find(std::size_t count);
  ReservedPort(ReservedPort&& other) noexcept
      : number_(other.number_), socket_(std::exchange(other.socket_, -1)) {}
  ReservedPort& operator=(ReservedPort&&) = delete;
  ~ReservedPort();

  std::uint16_t number() const { return number_; }

 private:
  ReservedPort(std::uint16_t number, int socket) : number_(number), socket_(socket) {}

  std::uint16_t number_;
  int socket_;  // bound, not listening
};

class Cluster {
 public:
  // Lays the directory out, or opens one that is; nothing is started. The decision log is made only
  // together with everything else (rule 1): one that went missing later is an error. exists:
  // processes run there, or their `twofold up` does; the message names pids and what to do.
  static Result<Cluster> create(ClusterOptions options);
  // not_found: nothing was ever laid out there.
  static Result<Cluster> open(const std::filesystem::path& directory,
                              const std::filesystem::path& programs = {});
  Cluster(Cluster&&) = default;
  Cluster& operator=(Cluster&&) = delete;
  ~Cluster();

  const std::filesystem::path& directory() const { return options_.directory; }
  std::filesystem::path configuration_file() const { return directory() / "twofold.toml"; }
  std::filesystem::path log_file(std::string_view name) const;
  const Configuration& configuration() const { return configuration_; }
  std::vector<std::string> names() const;  // the coordinator first
  Result<ClusterState> state() const { return read_cluster_state(directory()); }
  Result<Address> address(std::string_view name) const;

  // Marks this process as the `twofold up` that watches. exists: as for create().
  Result<void> claim();
  // exists: it runs already; closed: it ended before it was ready, the message has its last words.
  Result<void> start(std::string_view name, const StartOptions& options = {});
  Result<void> start_all();  // resource managers first; after a fault nothing is left running
  // SIGKILL, and waits for the end. not_found: it does not run.
  Result<ProcessId> kill(std::string_view name);
  // SIGTERM, and SIGKILL when `grace` is over.
  Result<ProcessId> stop(std::string_view name,
                         std::chrono::milliseconds grace = std::chrono::seconds{5});
  // The coordinator first, so that nothing new begins while the others end. Says who had to be
  // killed.
  std::vector<std::string> stop_all(std::chrono::milliseconds grace = std::chrono::seconds{5});
  bool is_running(std::string_view name) const;
  // False: it still runs. At once true if it does not run.
  bool wait_for_end(std::string_view name, std::chrono::milliseconds timeout);
  std::optional<Process> open_process(std::string_view name) const;  // none: it does not run

 private:
  Cluster(ClusterOptions options, Configuration configuration);
  Result<void> lay_out();
  Result<void> make_log();
  Result<void> refuse_another_log() const;
  Result<void> check_configuration();
  // A program that ends by itself; what it says goes into the log file of that name.
  Result<void> run(std::string_view name, const char* program,
                   const std::vector<std::string>& arguments);
  Error no_such_name(std::string_view name) const;
  Error ended_early(std::string_view name, const std::string& printed) const;
  std::vector<std::string> command_line(std::string_view name) const;

  ClusterOptions options_;
  Configuration configuration_;
  std::vector<ReservedPort> ports_;  // those that lay_out() chose
};

}  // namespace twofold::lab
