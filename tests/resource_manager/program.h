// A program under test: started, listened to, killed if it is still there at the end.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

extern char** environ;

namespace twofold::test {

// One run of the program; killed if it is still there at the end.
class Program {
 public:
  // `path` is looked for in PATH if it has no slash.
  Program(std::string path, const std::vector<std::string>& arguments) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    std::vector<std::string> owned = arguments;
    std::vector<char*> argv{path.data()};
    for (std::string& argument : owned) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int code = ::posix_spawnp(&pid_, path.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    output_ = ends[0];
    if (code != 0) throw std::runtime_error("cannot start " + path);
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(output_);
  }
  Program(const Program&) = delete;

  // The address in its line "listening on …"; empty if it ended before.
  std::string address() {
    constexpr std::string_view kLine = "listening on ";
    std::size_t at = std::string::npos, end = std::string::npos;
    while (at == std::string::npos || (end = text_.find('\n', at)) == std::string::npos) {
      if (!read_more()) return "";
      at = text_.find(kLine);
    }
    return text_.substr(at + kLine.size(), end - at - kLine.size());
  }
  void signal(int number) const { ::kill(pid_, number); }
  // All it has said, and how it ended: an exit status, or minus the signal.
  std::pair<std::string, int> end() {
    while (read_more()) {
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return {text_, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)};
  }

 private:
  bool read_more() {
    std::array<char, 4096> chunk{};
    const ssize_t bytes = ::read(output_, chunk.data(), chunk.size());
    if (bytes <= 0) return false;
    text_.append(chunk.data(), static_cast<std::size_t>(bytes));
    return true;
  }

  pid_t pid_ = 0;
  int output_ = -1;
  std::string text_;
};

}  // namespace twofold::test
