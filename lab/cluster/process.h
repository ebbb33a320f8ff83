// One process of a local system: started in a session of its own, watched and ended by pidfd.
//
// A pid alone names nothing: the kernel uses it again. A ProcessId holds the start time as well,
// and a Process is opened only if both fit, so no signal ever reaches a stranger.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "protocol/result.h"

namespace twofold::lab {

struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  // since boot: field 22 of /proc/PID/stat
  auto operator<=>(const ProcessId&) const = default;
};

// None: no such process, or it has ended and only waits to be reaped.
std::optional<ProcessId> identify(pid_t pid);
bool is_alive(const ProcessId& id);
ProcessId this_process();

// An open pidfd. Movable; closes the descriptor and leaves the process alone when destroyed.
class Process {
 public:
  // None if that very process runs no more.
  static std::optional<Process> open(const ProcessId& id);
  // A child of ours that nobody has waited for: its number is its own, also if it has ended.
  static std::optional<Process> of_child(pid_t pid);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  const ProcessId& id() const { return id_; }
  int descriptor() const { return descriptor_; }  // readable once the process has ended
  void signal(int number) const;                  // does nothing once it has ended
  // False: it still runs when the time is over.
  bool wait_for_end(std::chrono::milliseconds timeout) const;
  // How it ended, "SIGKILL" or "exit status 1"; reaps it. Empty where it was not our child or still
  // runs.
  std::string reap() const;

 private:
  Process(ProcessId id, int descriptor) : id_(id), descriptor_(descriptor) {}
  ProcessId id_;
  int descriptor_ = -1;
};

// Starts `program` in a session of its own, so that Ctrl-C at our terminal does not reach it;
// standard output and error are appended to `log`. It lives on when we end.
Result<Process> spawn(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments, const std::filesystem::path& log);

// Follows a growing log file: event-driven (inotify), so readiness costs no polling.
class LogFollower {
 public:
  // From the file's present end; the file is made if it is missing.
  static Result<LogFollower> open(const std::filesystem::path& log);
  LogFollower(LogFollower&& other) noexcept;
  LogFollower& operator=(LogFollower&&) = delete;
  ~LogFollower();

  // The rest of the first line that starts with `start`, as soon as it is whole. None: `process`
  // ended first, or the time was over.
  std::optional<std::string> wait_for_line(std::string_view start, const Process& process,
                                           std::chrono::milliseconds timeout);
  const std::string& text();  // all that was written since open()

 private:
  LogFollower(int file, int notify) : file_(file), notify_(notify) {}
  int file_ = -1;
  int notify_ = -1;
  std::string text_;
};

// The folder of the running program: its siblings are there.
std::filesystem::path own_program_directory();

}  // namespace twofold::lab
