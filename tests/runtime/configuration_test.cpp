#include "runtime/configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace twofold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::filesystem::path kFile = "/srv/shop/twofold.toml";

constexpr std::string_view kExample = R"(
[coordinator]
node = "main"
listen = "127.0.0.1:7400"
log = "coordinator/log"
transactions_max = 500
early_prepare = false

[[resource_manager]]
name = "payments"
address = "127.0.0.1:7402"
kind = "store"
data = "payments"
lock_timeout_ms = 10_000

[[resource_manager]]
name = "kitchen"
address = "127.0.0.1:7404"
data = "/var/kitchen"
early_release = false
)";

std::string error_of(std::string_view text) {
  const auto result = parse_configuration(text, kFile);
  EXPECT_FALSE(result) << text;
  return result ? "" : result.error().message;
}

TEST(Configuration, ReadsBothParts) {
  const auto configuration = parse_configuration(kExample, kFile).value();
  EXPECT_EQ(configuration.coordinator.log, "/srv/shop/coordinator/log");
  EXPECT_EQ(configuration.coordinator.transactions_max, 500u);
  EXPECT_FALSE(configuration.coordinator.early_prepare);
  EXPECT_TRUE(configuration.coordinator.one_phase);
  ASSERT_EQ(configuration.resource_managers.size(), 2u);
  EXPECT_EQ(configuration.resource_managers[0].name, "payments");
  EXPECT_EQ(configuration.resource_managers[0].data, "/srv/shop/payments");
  EXPECT_EQ(configuration.resource_managers[0].lock_timeout_ms, 10'000u);
  EXPECT_EQ(configuration.resource_managers[1].data, "/var/kitchen");
  EXPECT_FALSE(configuration.resource_managers[1].early_release);
}

TEST(Configuration, AnEmptyFileIsAllDefaults) {
  const auto configuration = parse_configuration("", kFile).value();
  EXPECT_EQ(configuration.coordinator.node, "main");
  EXPECT_EQ(configuration.coordinator.log, "");
  EXPECT_TRUE(configuration.resource_managers.empty());
}

TEST(Configuration, WrittenOnceItReadsBackTheSame) {
  auto configuration = parse_configuration(kExample, kFile).value();
  configuration.coordinator.node = "a \"quoted\"\tname";
  configuration.coordinator.frame_bytes_max = 70'000;
  configuration.resource_managers[0].data.clear();
  const std::string text = to_toml(configuration);
  const auto again = parse_configuration(text, "/elsewhere/other.toml");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->coordinator.node, configuration.coordinator.node);
  EXPECT_EQ(again->coordinator.log, configuration.coordinator.log);
  EXPECT_EQ(again->coordinator.frame_bytes_max, 70'000u);
  EXPECT_EQ(again->resource_managers.at(0).data, "");
  EXPECT_EQ(again->resource_managers.at(1).data, "/var/kitchen");
  EXPECT_EQ(to_toml(*again), text);
}

TEST(Configuration, EveryTextIsWrittenSoThatItReadsBackTheSame) {
  for (const std::string text : {"\nlines\n", "'single'", "\"double\"", "'''", "\"\"\"", "\\",
                                 "a\\'", "\t", "\x1b\x7f", "ü", "\r\n"}) {
    Configuration configuration;
    configuration.coordinator.node = text;
    configuration.coordinator.log = "/srv/" + text;
    const auto again = parse_configuration(to_toml(configuration), kFile);
    ASSERT_TRUE(again) << again.error().message << to_toml(configuration);
    EXPECT_EQ(*again, configuration) << to_toml(configuration);
  }
}

TEST(Configuration, RefusesUnknownKeysWithTheirLine) {
  EXPECT_THAT(error_of("[coordinator]\nnode = \"x\"\ntransaction_max = 3\n"),
              AllOf(StartsWith("/srv/shop/twofold.toml:3: unknown option \"transaction_max\""),
                    HasSubstr("transactions_max")));
  EXPECT_THAT(error_of("[coordinator]\n\n[[resource_managers]]\nname = \"x\"\n"),
              AllOf(StartsWith("/srv/shop/twofold.toml:3: unknown table \"resource_managers\""),
                    HasSubstr("[[resource_manager]]")));
  EXPECT_THAT(
      error_of("[[resource_manager]]\nname = \"x\"\naddress = \"h:1\"\nkinds = \"store\"\n"),
      AllOf(HasSubstr(":4: unknown option \"kinds\""), HasSubstr("kind,")));
}

TEST(Configuration, RefusesWrongTypesAndRanges) {
  EXPECT_THAT(error_of("[coordinator]\ntransactions_max = \"many\"\n"),
              HasSubstr(":2: transactions_max must be a whole number, 1 to 1000000000"));
  EXPECT_THAT(error_of("[coordinator]\ntransactions_max = 2.5\n"), HasSubstr("a whole number"));
  EXPECT_THAT(error_of("[coordinator]\ntransactions_max = 0\n"),
              HasSubstr("transactions_max must be 1 to 1000000000, and is 0"));
  EXPECT_THAT(error_of("[coordinator]\nlog_map_bytes = -1\n"), HasSubstr("and is -1"));
  EXPECT_THAT(error_of("[coordinator]\none_phase = 1\n"),
              HasSubstr("one_phase must be true or false"));
  EXPECT_THAT(error_of("[coordinator]\nnode = 7\n"), HasSubstr("a text of 1 to 32 bytes"));
  EXPECT_THAT(error_of("[coordinator]\nnode = \"" + std::string(33, 'n') + "\"\n"),
              HasSubstr("a text of 1 to 32 bytes"));
  EXPECT_THAT(error_of("[coordinator]\nlog = \"\"\n"), HasSubstr("log must be a text"));
  EXPECT_THAT(error_of("coordinator = 3\n"), HasSubstr("[coordinator] as one table"));
  EXPECT_THAT(error_of("[resource_manager]\nname = \"x\"\n"), HasSubstr("[[resource_manager]]"));
  EXPECT_THAT(error_of("resource_manager = [1]\n"), HasSubstr("[[resource_manager]]"));
}

TEST(Configuration, RefusesWhatDoesNotFitTogether) {
  EXPECT_THAT(error_of("[coordinator]\ntimeout_default_ms = 700000\n"),
              HasSubstr("timeout_default_ms (700000) must not be above timeout_max_ms (600000)"));
  EXPECT_THAT(error_of("[[resource_manager]]\nname = \"x\"\n"),
              HasSubstr(":1: [[resource_manager]] needs address"));
  EXPECT_THAT(error_of("[[resource_manager]]\nname = \"x\"\naddress = \"h:1\"\n"
                       "[[resource_manager]]\nname = \"x\"\naddress = \"h:2\"\n"),
              HasSubstr(":4: there are two resource managers named \"x\""));
  EXPECT_THAT(error_of("[[resource_manager]]\nname = \"x\"\naddress = \"h:1\"\n"
                       "[[resource_manager]]\nname = \"y\"\naddress = \"h:1\"\n"),
              HasSubstr("the same address h:1"));
  EXPECT_TRUE(
      parse_configuration("[[resource_manager]]\nname = \"x\"\naddress = \"h:0\"\n"
                          "[[resource_manager]]\nname = \"y\"\naddress = \"h:0\"\n",
                          kFile));
}

// The operating system would open what stands before the NUL.
TEST(Configuration, RefusesATextWithANul) {
  EXPECT_THAT(error_of("[coordinator]\nlog = \"a\\u0000b\"\n"),
              HasSubstr(":2: log must be a text of 1 to 4096 bytes without NUL"));
  EXPECT_THAT(error_of("[coordinator]\nnode = \"\\u0000\"\n"), HasSubstr("without NUL"));
}

// Else to_toml() would write what is not read again.
TEST(Configuration, BoundsAPathAsItLies) {
  const std::string folder = "/srv/shop/";
  const auto with_log = [](std::size_t bytes) {
    return "[coordinator]\nlog = \"" + std::string(bytes, 'l') + "\"\n";
  };
  const auto longest = parse_configuration(with_log(4'096 - folder.size()), kFile);
  ASSERT_TRUE(longest) << longest.error().message;
  EXPECT_EQ(parse_configuration(to_toml(*longest), "/elsewhere/other.toml").value(), *longest);
  EXPECT_THAT(
      error_of(with_log(4'097 - folder.size())),
      HasSubstr("log must be a text of 1 to 4096 bytes without NUL, counted from the root"));
}

TEST(Configuration, QuotesNothingThatSpoilsATerminal) {
  EXPECT_THAT(error_of("\"a\\u001b[2J\\nb\" = 1\n"),
              HasSubstr("unknown table \"a\\x1b[2J\\x0ab\""));
  EXPECT_THAT(error_of("[coordinator]\n\"\\u0007\" = 1\n"), HasSubstr("unknown option \"\\x07\""));
  EXPECT_THAT(error_of("[coordinator]\none_phase = tru\x08\n"),
              AllOf(StartsWith("/srv/shop/twofold.toml:2: "), HasSubstr("\\x08")));
}

TEST(Configuration, SaysWhereTheSyntaxIsWrong) {
  EXPECT_THAT(error_of("[coordinator]\nnode = main\n"), StartsWith("/srv/shop/twofold.toml:2: "));
}

TEST(Configuration, ReadsAFileRelativeToItsFolder) {
  const std::filesystem::path folder = testing::TempDir();
  const std::filesystem::path file = folder / "twofold_configuration_test.toml";
  std::ofstream(file) << kExample;
  const auto configuration = read_configuration(file);
  std::filesystem::remove(file);
  ASSERT_TRUE(configuration) << configuration.error().message;
  EXPECT_EQ(configuration->coordinator.log, (folder / "coordinator/log").lexically_normal());
}

TEST(Configuration, NamesAFileThatIsNotThere) {
  const auto missing = read_configuration("/nowhere/twofold.toml");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().fault, Fault::not_found);
  EXPECT_THAT(missing.error().message,
              AllOf(HasSubstr("/nowhere/twofold.toml"), HasSubstr("No such file")));
  const auto folder = read_configuration(testing::TempDir());
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error().message, HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace twofold
