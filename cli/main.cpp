// `twofold`: the command. This file only wires the subcommands together.
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "cli/commands.h"
#include "cli/output.h"

namespace {

// CLI11 says of a misspelt command only that it was not expected.
const char* unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return nullptr;
  for (const auto* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == argv[1]) return nullptr;
  }
  return argv[1];
}

int tell_commands(const CLI::App& app, const char* unknown) {
  std::string names;
  for (const auto* command : app.get_subcommands(nullptr)) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return twofold::cli::wrong_usage("", std::string("there is no command ") +
                                           (*unknown ? unknown : "''") + ": choose one of " +
                                           names);
}

int wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  const auto parsed = app.get_subcommands();
  std::string text = error.what();
  // All that are converted are whole numbers.
  const std::string_view unreadable = "Could not convert: ";
  if (text.starts_with(unreadable)) {
    text = text.substr(unreadable.size()) + " is no whole number that is taken here";
  }
  return twofold::cli::wrong_usage(parsed.empty() ? "" : parsed.front()->get_name(), text);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app{
      "Twofold commits one piece of work across several resource managers, or none of it, and "
      "shows "
      "what is in doubt and why.\n\nBegin with:  twofold demo"};
  app.name("twofold");
  app.require_subcommand(1);
  app.footer("Each command explains itself: twofold COMMAND --help");
  int status = 0;
  twofold::cli::add_demo(app, status);
  twofold::cli::add_system(app, status);
  twofold::cli::add_submit(app, status);
  twofold::cli::add_order(app, status);
  twofold::cli::add_interactive(app, status);
  twofold::cli::add_transactions(app, status);
  twofold::cli::add_inspect(app, status);
  twofold::cli::add_drain(app, status);
  if (argc < 2) {
    std::fputs(app.help().c_str(), stderr);
    return 2;
  }
  if (const char* unknown = unknown_command(app, argc, argv)) return tell_commands(app, unknown);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    return wrong_usage(app, error);
  } catch (const std::exception& error) {
    return twofold::cli::fail({twofold::Fault::io, error.what()});
  }
  return status;
}
