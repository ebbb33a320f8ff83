// demo: where it runs, and that it leaves nothing behind. The story is demo_story.h's.
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/demo_story.h"
#include "cli/output.h"
#include "lab/cluster/cluster.h"

namespace twofold::cli {
namespace {

using lab::Cluster;

// The processes have sessions of their own: Ctrl-C must end them too.
void clean_up_on_signals(const std::filesystem::path& directory, bool remove) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, directory, remove] {
    int number = 0;
    ::sigwait(&signals, &number);
    for (const auto& place : {directory / "audit", directory}) {
      if (auto cluster = Cluster::open(place)) {
        for (const auto& name : cluster->names()) (void)cluster->kill(name);
      }
    }
    std::error_code ignored;
    if (remove) std::filesystem::remove_all(directory, ignored);
    std::_Exit(130);
  }).detach();
}

int demo(const DemoOptions& options) {
  std::filesystem::path directory = options.data;
  const bool temporary = directory.empty();
  if (temporary) {
    auto name = (std::filesystem::temp_directory_path() / "twofold-demo-XXXXXX").string();
    if (!::mkdtemp(name.data())) {
      return fail(
          {Fault::io, "cannot make a folder like " + name + ": choose one with --data DIR"});
    }
    directory = name;
  } else if (std::filesystem::exists(directory / "cluster.json")) {
    return fail({Fault::exists, directory.string() +
                                    " holds a system already: the demo wants an empty directory"});
  }
  clean_up_on_signals(directory, temporary);
  const int status = tell_story(options, directory);
  std::error_code ignored;
  if (temporary && status == 0) std::filesystem::remove_all(directory, ignored);
  if (!temporary && status == 0 && !options.json) {
    print_line("Go on with it:  twofold up --data " + directory.string());
  }
  return status;
}

}  // namespace

void add_demo(CLI::App& app, int& status) {
  const auto options = std::make_shared<DemoOptions>();
  auto* command = app.add_subcommand(
      "demo",
      "Run orders over four stores while the coordinator and a participant are killed, and check "
      "that everything adds up. Takes some seconds; leaves nothing behind");
  command->footer("Example:\n  twofold demo");
  command
      ->add_option("--data", options->data,
                   "Keep everything in this empty directory, to look at afterwards")
      ->type_name("DIR");
  command->add_option("--orders", options->orders, "How many orders")
      ->capture_default_str()
      ->check(CLI::Range(200, 1'000'000));
  command->add_flag("--json", options->json, "Print the result as JSON instead of the story");
  command->callback([options, &status] { status = demo(*options); });
}

}  // namespace twofold::cli
