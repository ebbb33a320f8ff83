// Every script in tests/scripts is a golden conversation: what is written there is what happens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/coordinator/core_script.h"

namespace twofold::coordinator::test {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

std::vector<std::filesystem::path> scripts() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(TWOFOLD_SOURCE_DIR "/tests/scripts")) {
    if (entry.path().extension() == ".txt") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

class Script : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Script, happens_as_written) {
  const std::string expected = read(GetParam());
  const std::string actual = play(expected);
  if (std::getenv("TWOFOLD_REWRITE")) {
    std::ofstream(GetParam()) << actual;
  } else {
    EXPECT_EQ(expected, actual)
        << "the conversation in " << GetParam() << " went differently:\n"
        << actual << "(TWOFOLD_REWRITE=1 writes it into the file: read the difference)";
  }
  EXPECT_EQ(actual.find("\n! "), std::string::npos) << actual;
  EXPECT_NE(actual.find("\n< "), std::string::npos) << "nothing happened";
}

INSTANTIATE_TEST_SUITE_P(scripts, Script, testing::ValuesIn(scripts()),
                         [](const auto& file) { return file.param.stem().string(); });

TEST(Scripts, are_there) {
  EXPECT_GE(scripts().size(), 12u);
}

TEST(Scripts, a_line_that_is_not_understood_is_named) {
  EXPECT_NE(play("> Votes orders 1.1/0 ok\n").find("! unknown event: Votes"), std::string::npos);
  EXPECT_NE(play("> Voted orders 1.1/0 maybe\n").find("! unknown code: maybe"), std::string::npos);
}

}  // namespace
}  // namespace twofold::coordinator::test
