#include "runtime/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace twofold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Logging, WritesToStderrWithTheProgramsName) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  set_up_logging("twofold-test", "warn");
  spdlog::info("quiet");
  spdlog::warn("the disk is nearly full");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_THAT(log, AllOf(HasSubstr("twofold-test["), HasSubstr("the disk is nearly full"),
                         Not(HasSubstr("quiet"))));
}

TEST(Logging, OffIsSilent) {
  testing::internal::CaptureStderr();
  set_up_logging("twofold-test", "off");
  spdlog::error("nobody hears this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Logging, AnUnknownLevelNamesTheChoices) {
  try {
    set_up_logging("twofold-test", "loud");
    FAIL() << "accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"loud\""), HasSubstr("trace, debug, info, warn")));
  }
}

}  // namespace
}  // namespace twofold
