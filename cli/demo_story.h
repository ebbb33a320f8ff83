// The demo's story: a commit that survives its coordinator, told on real processes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace twofold::cli {

struct DemoOptions {
  std::string data;
  std::size_t orders = 1'200;
  bool json = false;
};

// Everything is made in `directory` and left there. The exit status: 0 if it all adds up.
int tell_story(const DemoOptions& options, const std::filesystem::path& directory);

}  // namespace twofold::cli
