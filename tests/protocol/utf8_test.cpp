#include "protocol/utf8.h"

#include <gtest/gtest.h>

namespace twofold {
namespace {

TEST(Utf8, AgreesWithTheStandard) {  // Unicode, table 3-7
  for (const char* good : {"", "plain", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc0\xaf", "\xc1\x81", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc2",
                          "\xe2\x82", "\xf0\x9f\x98", "\xe2\x28\xa1", "a\xff"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

TEST(Utf8, IsNotCutInsideACharacter) {
  EXPECT_EQ(utf8_prefix("plain", 9), "plain");
  EXPECT_EQ(utf8_prefix("plain", 2), "pl");
  EXPECT_EQ(utf8_prefix("a\xe2\x82\xac", 4), "a\xe2\x82\xac");
  EXPECT_EQ(utf8_prefix("a\xe2\x82\xac", 3), "a");
  EXPECT_EQ(utf8_prefix("a\xe2\x82\xac", 1), "a");
  EXPECT_EQ(utf8_prefix("\xe2\x82\xac", 2), "");
}

}  // namespace
}  // namespace twofold
