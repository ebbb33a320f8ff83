// The command line of twofold-coordinator: a configuration file, options that win over it,
// switches.
#pragma once

#include <string>
#include <vector>

#include "protocol/result.h"
#include "runtime/configuration.h"

namespace twofold::coordinator {

struct CommandLine {
  Configuration configuration;  // checked, whether it came from a file or from options
  std::string crash_at;         // empty: none
  std::string log_level = "info";
  bool rebuild = false;
  bool restored = false;
  bool check = false;
  std::vector<std::string> accept_stores;
  bool list_crash_points = false;
};

// Where parsing ends the program (--help, a wrong option), `exit_code` is set and what there is to
// say has been printed.
struct ParsedCommandLine {
  CommandLine command_line;
  int exit_code = -1;
};
ParsedCommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace twofold::coordinator
