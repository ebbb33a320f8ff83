#include "lab/cluster/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace twofold::lab {
namespace {

using namespace std::chrono_literals;

class ProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "process-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<Process> shell(const std::string& script) {
    return spawn("/bin/sh", {"-c", script}, log());
  }
  std::filesystem::path log() const { return folder_ / "log"; }

  std::filesystem::path folder_;
};

TEST_F(ProcessTest, IsIdentifiedByPidAndStartTime) {
  const auto self = this_process();
  EXPECT_EQ(self.pid, ::getpid());
  EXPECT_GT(self.start_ticks, 0U);
  EXPECT_TRUE(is_alive(self));
  EXPECT_FALSE(is_alive({self.pid, self.start_ticks + 1}));
  EXPECT_FALSE(is_alive({}));
  EXPECT_FALSE(Process::open({self.pid, self.start_ticks + 1}));
}

TEST_F(ProcessTest, TellsHowItEnded) {
  auto killed = shell("exec sleep 1000");
  ASSERT_TRUE(killed) << killed.error().message;
  EXPECT_TRUE(is_alive(killed->id()));
  EXPECT_FALSE(killed->wait_for_end(0ms));
  killed->signal(SIGKILL);
  ASSERT_TRUE(killed->wait_for_end(10s));
  EXPECT_FALSE(is_alive(killed->id()));  // though nobody has reaped it
  EXPECT_EQ(killed->reap(), "SIGKILL");
  killed->signal(SIGKILL);  // reaches nobody

  auto exited = shell("exec sleep 1000");
  ASSERT_TRUE(exited) << exited.error().message;
  exited->signal(SIGTERM);
  ASSERT_TRUE(exited->wait_for_end(10s));
  EXPECT_EQ(exited->reap(), "SIGTERM");
}

// The shorter a program runs the likelier it has ended before anybody looks.
TEST_F(ProcessTest, OneThatEndsAtOnceHasStarted) {
  for (int i = 0; i < 200; ++i) {
    const auto child = spawn("/bin/true", {}, log());
    ASSERT_TRUE(child) << child.error().message;
    ASSERT_TRUE(child->wait_for_end(20s));
    ASSERT_EQ(child->reap(), "exit status 0");
    ASSERT_FALSE(is_alive(child->id()));
  }
}

TEST_F(ProcessTest, HasASessionOfItsOwnAndNothingBlocked) {
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &term, &before);
  auto child = shell("exec sleep 1000");
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(child) << child.error().message;
  EXPECT_EQ(::getsid(child->id().pid), child->id().pid);
  child->signal(SIGTERM);
  ASSERT_TRUE(child->wait_for_end(10s));
  EXPECT_EQ(child->reap(), "SIGTERM");
}

TEST_F(ProcessTest, AMissingProgramIsAnError) {
  const auto child = spawn(folder_ / "none", {}, log());
  ASSERT_FALSE(child);
  EXPECT_NE(child.error().message.find("none"), std::string::npos);
}

TEST_F(ProcessTest, TheFollowerFindsTheLine) {
  std::ofstream(log()) << "listening on the past\n";
  auto follower = LogFollower::open(log());
  ASSERT_TRUE(follower) << follower.error().message;
  auto child = shell("echo first; echo listening on 127.0.0.1:1; exec sleep 1000");
  ASSERT_TRUE(child) << child.error().message;
  EXPECT_EQ(follower->wait_for_line("listening on ", *child, 20s), "127.0.0.1:1");
  child->signal(SIGKILL);
  ASSERT_TRUE(child->wait_for_end(10s));
  child->reap();
}

TEST_F(ProcessTest, TheFollowerEndsWithTheProcess) {
  auto follower = LogFollower::open(log());
  ASSERT_TRUE(follower) << follower.error().message;
  auto child = shell("read line < \"$0\" || true; echo last words >&2; exec false");
  ASSERT_TRUE(child) << child.error().message;
  EXPECT_EQ(follower->wait_for_line("listening on ", *child, 20s), std::nullopt);
  EXPECT_TRUE(child->wait_for_end(0ms));
  EXPECT_EQ(child->reap(), "exit status 1");
  EXPECT_NE(follower->text().find("last words\n"), std::string::npos);
}

}  // namespace
}  // namespace twofold::lab
