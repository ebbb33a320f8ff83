// `twofold`: the command. This file only wires the subcommands together.
#include <csignal>
#include <cstdio>
#include <exception>

#include "cli/commands.h"

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
  twofold::cli::add_transactions(app, status);
  twofold::cli::add_inspect(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "twofold: %s\n", error.what());
    return 1;
  }
  return status;
}
