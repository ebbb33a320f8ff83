// Runs a fuzz target over files, or over all files below directories: the corpus as a test, with
// any compiler, and one input again.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;

void add_files(const fs::path& path, std::vector<fs::path>& files) {
  if (!fs::is_directory(path)) {
    files.push_back(path);
    return;
  }
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
}

bool replay(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  if (in.bad() || !in.is_open()) {
    std::fprintf(stderr, "cannot read %s\n", file.c_str());
    return false;
  }
  // Said before it runs: if it ends the process, this is the last line.
  std::fprintf(stderr, "%s (%zu bytes)\n", file.c_str(), bytes.size());
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    std::vector<fs::path> files;
    for (int i = 1; i < count; ++i) add_files(arguments[i], files);
    std::sort(files.begin(), files.end());
    if (files.empty()) {
      std::fprintf(stderr, "usage: %s FILE|DIRECTORY..., with at least one file\n", arguments[0]);
      return 2;
    }
    if (!std::all_of(files.begin(), files.end(), replay)) return 1;
    std::printf("%zu inputs, every property holds\n", files.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
