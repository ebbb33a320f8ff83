#include "lab/cluster/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/process/v2/process.hpp>
#include <boost/process/v2/stdio.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "protocol/check.h"

namespace twofold::lab {
namespace {

namespace process = boost::process::v2;
using Clock = std::chrono::steady_clock;

// Runs in the child between fork and exec.
struct OwnSession {
  template <class Launcher>
  boost::system::error_code on_exec_setup(Launcher&, const boost::filesystem::path&,
                                          const char* const*&) const {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (::setsid() < 0) return {errno, boost::system::system_category()};
    return {};
  }
};

int milliseconds_left(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  return left.count() < 0 ? 0 : static_cast<int>(std::min<std::int64_t>(left.count(), 1 << 30));
}

Error system_error(const std::string& what) {
  return {Fault::io, what + ": " + std::strerror(errno)};
}

struct ProcessStat {
  ProcessId id;
  char state = 0;
};

std::optional<ProcessStat> read_stat(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // "PID (name) S …": the name may hold anything, so count from its closing parenthesis.
  const auto close = text.rfind(')');
  if (close == std::string::npos || close + 2 >= text.size()) return std::nullopt;
  std::size_t at = close + 2;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) {
    at = text.find(' ', at);
    if (at != std::string::npos) ++at;
  }
  if (at == std::string::npos) return std::nullopt;
  return ProcessStat{{pid, std::strtoull(text.c_str() + at, nullptr, 10)}, text[close + 2]};
}

int open_pidfd(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

}  // namespace

std::optional<ProcessId> identify(pid_t pid) {
  const auto found = read_stat(pid);
  if (!found || found->state == 'Z' || found->state == 'X') return std::nullopt;
  return found->id;
}

bool is_alive(const ProcessId& id) {
  return id.pid > 0 && identify(id.pid) == id;
}

ProcessId this_process() {
  const auto id = identify(::getpid());
  TWOFOLD_CHECK(id.has_value());
  return *id;
}

std::optional<Process> Process::open(const ProcessId& id) {
  if (id.pid <= 0) return std::nullopt;
  const int descriptor = open_pidfd(id.pid);
  if (descriptor < 0) return std::nullopt;
  Process opened(id, descriptor);
  // The descriptor now names one process for good; is it the one that was meant?
  if (!is_alive(id)) return std::nullopt;
  return opened;
}

std::optional<Process> Process::of_child(pid_t pid) {
  const auto found = read_stat(pid);
  const int descriptor = open_pidfd(pid);
  if (found && descriptor >= 0) return Process(found->id, descriptor);
  if (descriptor >= 0) ::close(descriptor);
  return std::nullopt;
}

Process::Process(Process&& other) noexcept
    : id_(other.id_), descriptor_(std::exchange(other.descriptor_, -1)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Process::~Process() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Process::signal(int number) const {
  ::syscall(SYS_pidfd_send_signal, descriptor_, number, nullptr, 0);
}

bool Process::wait_for_end(std::chrono::milliseconds timeout) const {
  const auto end = Clock::now() + timeout;
  pollfd wait{descriptor_, POLLIN, 0};
  int found = 0;
  do {
    found = ::poll(&wait, 1, milliseconds_left(end));
  } while (found < 0 && errno == EINTR);
  return found > 0;
}

std::string Process::reap() const {
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(descriptor_), &info, WEXITED | WNOHANG) != 0) return {};
  if (info.si_pid == 0) return {};
  if (info.si_code == CLD_EXITED) return "exit status " + std::to_string(info.si_status);
  const char* name = ::sigabbrev_np(info.si_status);
  return name ? std::string("SIG") + name : "signal " + std::to_string(info.si_status);
}

Result<Process> spawn(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments, const std::filesystem::path& log) {
  if (::access(program.c_str(), X_OK) != 0) {
    return system_error("cannot run " + program.string() +
                        " (it belongs beside the twofold program; build it with ./dev build)");
  }
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (out < 0) return system_error("cannot write " + log.string());
  boost::asio::io_context io;  // only lends its executor: nothing is waited for here
  boost::system::error_code failed;
  process::default_process_launcher launch;
  auto child = launch(io.get_executor(), failed, boost::filesystem::path(program.string()),
                      arguments, process::process_stdio{nullptr, out, out}, OwnSession{});
  ::close(out);
  if (failed) return Error{Fault::io, "cannot start " + program.string() + ": " + failed.message()};
  const pid_t pid = child.id();
  child.detach();
  if (auto started = Process::of_child(pid)) return std::move(*started);
  const Error error = system_error("cannot watch " + program.string() + ", which was started");
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return error;
}

Result<LogFollower> LogFollower::open(const std::filesystem::path& log) {
  const int file = ::open(log.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return system_error("cannot open " + log.string());
  ::lseek(file, 0, SEEK_END);
  const int notify = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (notify < 0 || ::inotify_add_watch(notify, log.c_str(), IN_MODIFY) < 0) {
    const Error error = system_error("cannot watch " + log.string());
    ::close(file);
    if (notify >= 0) ::close(notify);
    return error;
  }
  return LogFollower(file, notify);
}

LogFollower::LogFollower(LogFollower&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      notify_(std::exchange(other.notify_, -1)),
      text_(std::move(other.text_)) {}

LogFollower::~LogFollower() {
  if (file_ >= 0) ::close(file_);
  if (notify_ >= 0) ::close(notify_);
}

const std::string& LogFollower::text() {
  char buffer[4096];
  while (::read(notify_, buffer, sizeof buffer) > 0) {
  }
  for (ssize_t count = 0; (count = ::read(file_, buffer, sizeof buffer)) > 0;) {
    text_.append(buffer, static_cast<std::size_t>(count));
  }
  return text_;
}

std::optional<std::string> LogFollower::wait_for_line(std::string_view start,
                                                      const Process& process,
                                                      std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  std::size_t line = 0;
  for (;;) {
    pollfd waits[] = {{notify_, POLLIN, 0}, {process.descriptor(), POLLIN, 0}};
    const bool ended = ::poll(waits, 2, 0) > 0 && waits[1].revents != 0;
    text();
    for (std::size_t stop; (stop = text_.find('\n', line)) != std::string::npos; line = stop + 1) {
      const auto whole = std::string_view(text_).substr(line, stop - line);
      if (whole.starts_with(start)) return std::string(whole.substr(start.size()));
    }
    if (ended || Clock::now() >= end) return std::nullopt;
    ::poll(waits, 2, milliseconds_left(end));
  }
}

std::filesystem::path own_program_directory() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

}  // namespace twofold::lab
