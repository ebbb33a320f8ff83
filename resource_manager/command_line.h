// The command line of twofold-rm: a configuration file, options that win over it, switches.
#pragma once

#include <optional>
#include <string>

#include "runtime/configuration.h"
#include "runtime/crash_point.h"

namespace twofold::resource_manager {

struct CommandLine {
  ResourceManagerConfiguration configuration;  // checked, whether from a file or from options
  CrashPoint crash_point;
  std::string log_level = "info";
  std::string ready_file;  // empty: none
};

// Fills in `out`. A value: the program ends here with that status (--help, --list-crash-points, a
// wrong option), and what there is to say has been printed.
std::optional<int> parse_command_line(int argc, const char* const* argv, CommandLine& out);

}  // namespace twofold::resource_manager
