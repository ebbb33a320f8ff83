// The client library from outside: other projects build client/example with it, the ways that the
// README names, and run it against a system that `twofold up` has started.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"

namespace twofold {
namespace {

class InstallTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    // Away from our sources, so that nothing beside it can be found by chance.
    std::filesystem::copy(TWOFOLD_SOURCE_DIR "/client/example", folder_ / "example");
  }

  // CMake's output is shown if it fails. The compiler cache knows files by names without folder_.
  void cmake(const std::string& arguments) {
    const Ran ran = run_line("CCACHE_BASEDIR=" + folder_.string() + " CCACHE_NOHASHDIR=1 " +
                             TWOFOLD_CMAKE " " + arguments);
    EXPECT_EQ(ran.status, 0) << "cmake " << arguments << '\n' << ran.out << ran.err;
  }
  void configure(const std::filesystem::path& source, const std::string& options) {
    cmake("-S " + source.string() + " -B " + (folder_ / "build").string() + " " +
          TWOFOLD_CONFIGURE_OPTIONS " -DCMAKE_BUILD_TYPE=Debug " + options);
  }
  void build_example(const std::string& options) {
    configure(folder_ / "example", options);
    if (!HasFailure()) cmake("--build " + (folder_ / "build").string() + " --target pay");
    ASSERT_FALSE(HasFailure());
  }

  std::string coordinator() const {
    const auto cluster = lab::Cluster::open(data_, programs_);
    return to_text(*cluster->address(lab::kCoordinator));
  }
  Ran pay(const std::string& order_and_amount) {
    return run_line((folder_ / "build/pay").string() + " " + coordinator() + " " +
                    order_and_amount);
  }
};

TEST_F(InstallTest, AnotherProjectFindsThePackageAndHandlesEveryOutcome) {
  const auto prefix = folder_ / "prefix";
  cmake("--install " TWOFOLD_BUILD_DIR " --prefix " + prefix.string());
  ASSERT_NO_FATAL_FAILURE(build_example("-DCMAKE_PREFIX_PATH=" + prefix.string()));

  programs_ = prefix / "bin";
  ASSERT_NO_FATAL_FAILURE(start_up());
  Ran ran = pay("o-1 2350");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_EQ(ran.out, "open: committed\nbalance: 10000\npay: committed\n");
  EXPECT_NE(run("scan payments --json --prefix account/o-1 @").out.find("7650"), std::string::npos);

  ran = pay("o-2 10001");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("pay: aborted (refused)"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("payments: add account/o-2"), std::string::npos) << ran.out;

  ran = pay(std::string(200, 'o') + " 1");
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.out.find("open: rejected (invalid)"), std::string::npos) << ran.out;

  // Decided, and nobody is told: neither in time, nor when it is asked for.
  ASSERT_EQ(run("kill coordinator @").status, 0);
  ASSERT_EQ(run("start coordinator @ --crash-at before:Reply").status, 0);
  ran = pay("o-3 1");
  EXPECT_EQ(ran.status, 3) << ran.out;
  EXPECT_NE(ran.out.find("open: unknown"), std::string::npos) << ran.out;
  ASSERT_EQ(run("start coordinator @").status, 0);
  ran = pay("o-3 1");  // under its request id it is told what it has become
  EXPECT_EQ(ran.out, "open: committed\nbalance: 10000\npay: committed\n");
}

TEST_F(InstallTest, AnotherProjectAddsTheSources) {
  ASSERT_NO_FATAL_FAILURE(
      build_example("-DCMAKE_UNITY_BUILD=ON -DTWOFOLD_SOURCE=" TWOFOLD_SOURCE_DIR));
  ASSERT_NO_FATAL_FAILURE(start_up());
  const Ran ran = pay("o-1 2350");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_EQ(ran.out, "open: committed\nbalance: 10000\npay: committed\n");
}

TEST_F(InstallTest, FetchedItLeavesTheProjectAroundItAlone) {
  configure(TWOFOLD_SOURCE_DIR "/tests/install/parent", "-DTWOFOLD_SOURCE=" TWOFOLD_SOURCE_DIR);
}

std::vector<std::string> trimmed_lines(const std::string& text, const std::string& start) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, start.size(), start) != 0) continue;
    const auto begin = line.find_first_not_of(' ', start.size());
    if (begin != std::string::npos) lines.push_back(line.substr(begin));
  }
  return lines;
}

TEST(InteractiveHeader, ShowsWhatTheExampleIsBuiltFrom) {
  const auto shown = trimmed_lines(read_file(TWOFOLD_SOURCE_DIR "/client/interactive.h"), "//   ");
  const auto built = trimmed_lines(read_file(TWOFOLD_SOURCE_DIR "/client/example/main.cpp"), "");
  ASSERT_GT(shown.size(), 5u);
  auto at = built.begin();
  for (const auto& line : shown) {
    at = std::find(at, built.end(), line);
    ASSERT_NE(at, built.end()) << "client/example/main.cpp does not have, in its place: " << line;
  }
}

}  // namespace
}  // namespace twofold
