// twofold-sim: the deterministic simulator. docs/testing.md tells how to read what it prints.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/planted.h"
#include "tests/sim/summary.h"
#include "tests/sim/world.h"

namespace twofold::sim {
namespace {

using Clock = std::chrono::steady_clock;

struct Asked {
  std::optional<std::uint64_t> seed;
  std::string seeds;
  bool trace = false;
  unsigned jobs = 2;
  double seconds = 0;  // 0: until all seeds have been run
  std::uint64_t first = 1, last = UINT64_MAX;
  std::string bug;
  bool bugs = false;
  std::uint64_t bug_seeds = 0;  // 0: the bound of each
};

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// ---- one seed -----------------------------------------------------------------------------------

volatile std::uint64_t seed_under_way = 0;

// A contract of the cores was broken (TWOFOLD_CHECK), or worse: found, with its seed.
void on_end(int) {
  char text[64];
  const int size = std::snprintf(text, sizeof text, "seed %llu ended the process\n",
                                 static_cast<unsigned long long>(seed_under_way));
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text, static_cast<size_t>(size));
  ::_exit(1);
}

void catch_ends() {
  ::signal(SIGABRT, on_end);
  ::signal(SIGSEGV, on_end);
}

bool mentions(const std::string& line, const std::string& id) {
  for (std::size_t at = line.find(id); at != std::string::npos; at = line.find(id, at + 1)) {
    const bool begins = at == 0 || line[at - 1] == ' ' || line[at - 1] == ':';
    const std::size_t end = at + id.size();
    if (begins && (end == line.size() || line[end] == ' ' || line[end] == '/')) return true;
  }
  return false;
}

// What concerns the suspect, what went wrong around it, and the end of everything.
void print_shortened(const Result& result) {
  constexpr std::size_t kEnd = 40;
  const std::string id = result.suspect.substr(result.suspect.find(':') + 1);
  const std::size_t size = result.trace.size();
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::string& line = result.trace[i];
    const bool wanted = i + kEnd >= size || line.find(" ! ") != std::string::npos ||
                        (!id.empty() && mentions(line, id));
    if (!wanted) {
      ++left_out;
      continue;
    }
    if (std::exchange(left_out, 0) > 0) std::puts("...");
    std::puts(line.c_str());
  }
}

void tell(const Result& result) {
  print_shortened(simulate(result.seed, true));
  for (const std::string& fault : result.faults) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(result.seed), fault.c_str());
  }
  std::printf("The whole conversation: --seed %llu --trace\n",
              static_cast<unsigned long long>(result.seed));
}

int run_one(const Asked& asked) {
  seed_under_way = *asked.seed;
  const Result result = simulate(*asked.seed, asked.trace);
  for (const std::string& line : result.trace) std::puts(line.c_str());
  std::printf("digest %016llx\n", static_cast<unsigned long long>(result.digest));
  for (const std::string& fault : result.faults) std::printf("fault: %s\n", fault.c_str());
  return result.faults.empty() ? 0 : 1;
}

// ---- many ---------------------------------------------------------------------------------------

// Every jobs-th seed from first + job on, in a process of its own; sums go through the pipe.
[[noreturn]] void run_share(const Asked& asked, unsigned job, int pipe) {
  catch_ends();
  const auto begin = Clock::now();
  Summary sum;
  const auto report = [&] {
    if (::write(pipe, &sum, sizeof sum) != static_cast<ssize_t>(sizeof sum)) ::_exit(1);
    sum = {};
  };
  auto reported = begin;
  for (std::uint64_t seed = asked.first + job; seed <= asked.last; seed += asked.jobs) {
    seed_under_way = seed;
    const Result result = simulate(seed, false);
    if (!result.faults.empty()) {
      tell(result);
      std::fflush(stdout);
      ::_exit(1);
    }
    sum.add(result);
    const auto now = Clock::now();
    if (asked.seconds > 0 && now - begin > std::chrono::duration<double>(asked.seconds)) break;
    if (now - reported < std::chrono::seconds{1}) continue;
    reported = now;
    report();
  }
  report();
  ::_exit(0);
}

int run_many(const Asked& asked) {
  std::fflush(stdout);
  int pipes[2];
  if (::pipe(pipes) != 0) return std::perror("pipe"), 1;
  std::vector<pid_t> children;
  for (unsigned job = 0; job < asked.jobs; ++job) {
    const pid_t child = ::fork();
    if (child < 0) return std::perror("fork"), 1;
    if (child == 0) {
      ::close(pipes[0]);
      run_share(asked, job, pipes[1]);
    }
    children.push_back(child);
  }
  ::close(pipes[1]);
  const auto begin = Clock::now();
  Summary sum, part;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  auto shown = begin;
  // Writes of this size to a pipe are whole (PIPE_BUF).
  static_assert(sizeof(Summary) <= 4096);
  while (::read(pipes[0], &part, sizeof part) == static_cast<ssize_t>(sizeof part)) {
    sum.add(part);
    const auto now = Clock::now();
    if (now - shown < std::chrono::seconds{terminal ? 1 : 30}) continue;
    shown = now;
    std::fprintf(stderr, "%s%llu seeds, %.0f a second%s", terminal ? "\r" : "",
                 static_cast<unsigned long long>(sum.seeds),
                 static_cast<double>(sum.seeds) / since(begin), terminal ? "  " : "\n");
  }
  if (terminal) std::fputs("\n", stderr);
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed = failed || status != 0;
  }
  ::close(pipes[0]);
  if (!failed) sum.print(since(begin));
  return failed ? 1 : 0;
}

// ---- planted bugs -------------------------------------------------------------------------------

#ifdef TWOFOLD_PLANTED_BUGS
// The first seed that shows it, and what is said of it; 0: none of them does.
std::pair<std::uint64_t, std::string> find_bug(std::string_view name, std::uint64_t seeds) {
  int pipes[2];
  if (::pipe(pipes) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipes[0]);
    ::dup2(pipes[1], STDOUT_FILENO);
    ::dup2(pipes[1], STDERR_FILENO);
    catch_ends();
    plant(name);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      seed_under_way = seed;
      const Result result = simulate(seed, false);
      if (result.faults.empty()) continue;
      std::printf("seed %llu %s\n", static_cast<unsigned long long>(seed),
                  result.faults.front().c_str());
      std::fflush(stdout);
      ::_exit(1);
    }
    ::_exit(0);
  }
  ::close(pipes[1]);
  std::string text;
  std::array<char, 512> buffer;
  for (ssize_t size = 0; (size = ::read(pipes[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  ::close(pipes[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  const auto at = text.find("seed ");
  if (status == 0 || at == std::string::npos) return {};
  const std::uint64_t seed = std::strtoull(text.c_str() + at + 5, nullptr, 10);
  std::string why = at > 0 ? text.substr(0, text.find('\n')) : text.substr(at + 5);
  if (at == 0) why = why.substr(std::min(why.find(' ') + 1, why.size()));
  while (!why.empty() && why.back() == '\n') why.pop_back();
  return {seed,
          why.substr(why.rfind('/') == std::string::npos || at == 0 ? 0 : why.rfind('/') + 1)};
}

int find_bugs(const Asked& asked) {
  int missed = 0;
  for (const PlantedBug& bug : planted_bugs()) {
    if (!asked.bug.empty() && bug.name != asked.bug) continue;
    const auto [seed, why] = find_bug(bug.name, asked.bug_seeds > 0 ? asked.bug_seeds : bug.seeds);
    missed += seed == 0;
    std::printf("%-30s rule %2d  seed %6llu  %s\n", std::string(bug.name).c_str(), bug.rule,
                static_cast<unsigned long long>(seed), seed == 0 ? "NOT FOUND" : why.c_str());
    std::fflush(stdout);
  }
  return missed == 0 ? 0 : 1;
}
#endif

// ---- the command line ---------------------------------------------------------------------------

bool parse_range(Asked& asked) {
  const auto dots = asked.seeds.find("..");
  if (dots == std::string::npos) return false;
  const auto number = [](const std::string& text, std::uint64_t& value) {
    char* end = nullptr;
    value = std::strtoull(text.c_str(), &end, 10);
    return !text.empty() && text.front() != '-' && *end == '\0';
  };
  return number(asked.seeds.substr(0, dots), asked.first) &&
         number(asked.seeds.substr(dots + 2), asked.last) && asked.first <= asked.last;
}

int run(const Asked& asked) {
#ifdef TWOFOLD_PLANTED_BUGS
  if (asked.bugs) return find_bugs(asked);
  if (!asked.bug.empty() && !plant(asked.bug)) {
    std::fprintf(stderr, "there is no planted bug %s: --bugs lists them\n", asked.bug.c_str());
    return 2;
  }
#endif
  if (asked.seed) {
    catch_ends();
    return run_one(asked);
  }
  return run_many(asked);
}

}  // namespace
}  // namespace twofold::sim

int main(int argc, char** argv) {
  twofold::sim::Asked asked;
  CLI::App app{
      "Runs the deciding cores of coordinators and participants in worlds that go wrong, each made "
      "from its seed.\nWithout --seed, all seeds of --seeds, or as many as fit into --for."};
  auto* seed = app.add_option("--seed", asked.seed, "One seed; prints its digest");
  app.add_flag("--trace", asked.trace, "Prints the conversation")->needs(seed);
  app.add_option("--seeds", asked.seeds, "A..B: all of them; prints what they held")
      ->excludes(seed);
  app.add_option("--from", asked.first, "With --for: the first seed")
      ->excludes(seed)
      ->capture_default_str();
  app.add_option("--for", asked.seconds, "Ends after so many seconds")
      ->check(CLI::PositiveNumber)
      ->excludes(seed);
  app.add_option("--jobs", asked.jobs, "Processes side by side")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
#ifdef TWOFOLD_PLANTED_BUGS
  app.add_option("--bug", asked.bug, "Plants this bug");
  app.add_flag("--bugs", asked.bugs, "Looks for each planted bug (or for --bug) in turn");
  app.add_option("--bug-seeds", asked.bug_seeds,
                 "Gives up after so many seeds; without, after those that it is known to need");
#endif
  CLI11_PARSE(app, argc, argv);
  if (!asked.seeds.empty() && !twofold::sim::parse_range(asked)) {
    std::fprintf(stderr, "--seeds %s: give a range, as in 1..1000\n", asked.seeds.c_str());
    return 2;
  }
  const bool endless = !asked.seed && asked.seeds.empty() && asked.seconds == 0 && !asked.bugs;
  if (endless) asked.last = 1'000;
  return twofold::sim::run(asked);
}
