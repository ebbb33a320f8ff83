// One logger per process, to stderr, with wall time and the process's name; --log-level chooses.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace twofold {

// Level: trace, debug, info, warn, error, off. Throws std::runtime_error for another word.
void set_up_logging(const std::string& program, const std::string& level);

}  // namespace twofold
