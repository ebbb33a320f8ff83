#include "cli/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "lab/cluster/state.h"

namespace twofold::cli {
namespace {

using testing::HasSubstr;

class TargetTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "target-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    target_.data = name;
    lab::ClusterState state;
    state.members = {{"coordinator", "coordinator", "127.0.0.1:7400", {}},
                     {"orders", "store", "127.0.0.1:7401", {}},
                     {"payments", "store", "127.0.0.1:7402", {}}};
    ASSERT_TRUE(lab::write_cluster_state(name, state));
  }
  void TearDown() override { std::filesystem::remove_all(target_.data); }
  Target target_;
};

TEST_F(TargetTest, TheDirectoryHasAllAddresses) {
  EXPECT_EQ(coordinator_address(target_)->port, 7400);
  EXPECT_EQ(rm_address(target_, "payments")->port, 7402);
  const auto rms = rm_addresses(target_);
  ASSERT_TRUE(rms) << rms.error().message;
  ASSERT_EQ(rms->size(), 2U);
  EXPECT_EQ((*rms)[0].name, "orders");
  EXPECT_THAT(rm_address(target_, "kitchen").error().message, HasSubstr("orders, payments"));
}

TEST_F(TargetTest, AddressesWinOverTheDirectory) {
  target_.coordinator = "127.0.0.1:9000";
  target_.rms = {"payments=127.0.0.1:9002"};
  EXPECT_EQ(coordinator_address(target_)->port, 9000);
  EXPECT_EQ(rm_address(target_, "payments")->port, 9002);
  EXPECT_FALSE(rm_address(target_, "orders"));
}

TEST(Target, AnOptionWinsOverTheEnvironment) {
  ASSERT_EQ(::setenv("TWOFOLD_DATA", "/from/environment", 1), 0);
  for (const bool given : {true, false}) {
    CLI::App app;
    Target target;
    add_target(*app.add_subcommand("list"), target, Finds::both);
    app.parse(given ? "list --data /from/option" : "list");
    EXPECT_EQ(target.data, given ? "/from/option" : "/from/environment");
  }
  ::unsetenv("TWOFOLD_DATA");
}

TEST(Target, SaysWhatIsMissingOrWrong) {
  Target target;
  EXPECT_THAT(coordinator_address(target).error().message, HasSubstr("--data DIR"));
  EXPECT_THAT(rm_addresses(target).error().message, HasSubstr("--rm NAME=HOST:PORT"));
  for (const char* wrong : {"payments", "=127.0.0.1:1", "payments=", "payments=127.0.0.1"}) {
    target.rms = {wrong};
    EXPECT_FALSE(rm_addresses(target)) << wrong;
  }
  target.data = "/no/such/directory";
  EXPECT_THAT(coordinator_address(target).error().message,
              HasSubstr("twofold up --data /no/such/directory"));
}

}  // namespace
}  // namespace twofold::cli
