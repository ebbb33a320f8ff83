#include <gtest/gtest.h>

#include "protocol/connection.h"

namespace twofold {
namespace {

TEST(Address, ComesBack) {
  const std::pair<const char*, Address> good[] = {{"127.0.0.1:7400", {"127.0.0.1", 7400}},
                                                  {"localhost:0", {"localhost", 0}},
                                                  {"[::1]:65535", {"::1", 65535}},
                                                  {"payments.example:1", {"payments.example", 1}}};
  for (const auto& [text, address] : good) {
    const auto parsed = parse_address(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, address);
    EXPECT_EQ(to_text(address), text);
  }
}

TEST(Address, RefusesTheRestAndSaysWhatToWrite) {
  for (const char* text :
       {"", ":", "host", "host:", ":7400", "host:65536", "host:-1", "host:+1", "host:7x",
        "::1:7400", "[::1]7400", "[::1:7400", "[]:7400", "a b:1", "host :1", "tcp://host:1"}) {
    const auto parsed = parse_address(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().fault, Fault::invalid);
    EXPECT_NE(parsed.error().message.find("HOST:PORT"), std::string::npos);
  }
}

}  // namespace
}  // namespace twofold
