// twofold-log: makes decision logs and looks at them offline.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>

#include "log/decision_store.h"
#include "log/inspect.h"

namespace twofold {
namespace {

enum ExitStatus { kDone = 0, kFailed = 1, kUsage = 2, kProblems = 3 };

struct Arguments {
  std::filesystem::path directory;
  std::filesystem::path destination;
  std::string node;
  std::uint64_t map_mib = 256;
  bool json = false;
};

int fail(const Error& error) {
  std::fprintf(stderr, "twofold-log: %s\n", error.message.c_str());
  return error.fault == Fault::damaged ? kProblems : kFailed;
}

int print(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) std::fprintf(stderr, "twofold-log: the output could not be written\n");
  return written ? kDone : kFailed;
}

int init(const Arguments& arguments) {
  const auto made =
      LmdbDecisionStore::init(arguments.directory, arguments.node, arguments.map_mib << 20);
  if (!made) return fail(made.error());
  std::printf("made a log for node %s in %s, %llu MiB, log id %016llx\n", made->node.c_str(),
              arguments.directory.c_str(), static_cast<unsigned long long>(made->map_bytes >> 20),
              static_cast<unsigned long long>(made->log_id.value));
  return kDone;
}

int back_up(const Arguments& arguments) {
  const auto made = LmdbDecisionStore::back_up(arguments.directory, arguments.destination);
  if (!made) return fail(made.error());
  std::printf(
      "copied the log of node %s, up to group %llu, to %s, and marked it as a backup: a "
      "coordinator starts on it with --restored only\n",
      made->node.c_str(), static_cast<unsigned long long>(made->group),
      arguments.destination.c_str());
  return kDone;
}

int dump(const Arguments& arguments) {
  const auto inspection = inspect(arguments.directory);
  if (!inspection) return fail(inspection.error());
  const int printed = print(arguments.json ? dump_json(*inspection) : dump_text(*inspection));
  if (printed != kDone) return printed;
  return verify(*inspection).empty() ? kDone : kProblems;
}

int check(const Arguments& arguments) {
  const auto inspection = inspect(arguments.directory);
  if (!inspection) return fail(inspection.error());
  const auto problems = verify(*inspection);
  if (problems.empty()) {
    std::printf("%s: %zu rows, all good\n", arguments.directory.c_str(), inspection->rows.size());
    if (const auto mark = backup_mark(*inspection)) {
      std::printf("it is marked as a backup, %s\n", describe(*mark).c_str());
    }
    return kDone;
  }
  for (const auto& problem : problems) {
    std::printf("%s: %s\n", problem.where.c_str(), problem.what.c_str());
  }
  std::fprintf(
      stderr,
      "twofold-log: %s: %zu problems in %zu rows. If a row has a version this program does "
      "not know, use the newer Twofold that wrote it; otherwise restore the log from a "
      "copy, and keep this one\n",
      arguments.directory.c_str(), problems.size(), inspection->rows.size());
  return kProblems;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Makes decision logs of twofold-coordinator, copies them and looks at them. backup, dump and "
      "verify change nothing of a log and may run beside its coordinator."};
  app.footer("Exit status: 0 done, 1 could not be done, 2 wrong usage, 3 the log has problems.");
  app.require_subcommand(1);
  Arguments arguments;
  auto directory_of = [&](CLI::App* command) {
    command->add_option("DIR", arguments.directory, "The log's directory")->required();
    return command;
  };
  auto* init_command = directory_of(app.add_subcommand("init", "Make a new, empty log"));
  init_command
      ->add_option("--node", arguments.node,
                   "The coordinator's name, 1 to 32 bytes; no other coordinator may have it")
      ->required();
  init_command
      ->add_option("--map-mib", arguments.map_mib,
                   "The most that the log can hold, in MiB; allocated on the disk at once")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 20));
  auto* backup_command = directory_of(app.add_subcommand(
      "backup", "Copy what the log holds now, and mark the copy as a backup: see docs/backup.md"));
  backup_command->add_option("DEST", arguments.destination, "A directory that is not there yet")
      ->required();
  auto* dump_command = directory_of(app.add_subcommand("dump", "Print what the log remembers"));
  dump_command->add_flag("--json", arguments.json, "As one JSON object");
  auto* verify_command = directory_of(
      app.add_subcommand("verify", "Check every page, row, checksum and reference of the log"));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
  if (init_command->parsed()) return init(arguments);
  if (backup_command->parsed()) return back_up(arguments);
  if (dump_command->parsed()) return dump(arguments);
  return verify_command->parsed() ? check(arguments) : kUsage;
}

}  // namespace
}  // namespace twofold

int main(int argc, char** argv) {
  try {
    return twofold::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "twofold-log: %s\n", error.what());
    return twofold::kFailed;
  }
}
