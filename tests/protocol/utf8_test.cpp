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

TEST(Utf8, PrintableKeepsCharactersAndEscapesTheRest) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("plain ü € 😀"), "plain ü € 😀");
  EXPECT_EQ(printable(std::string("a\0\n\x1b[2J\x7f", 8)), "a\\x00\\x0a\\x1b[2J\\x7f");
  EXPECT_EQ(printable("\xc2\x9b and \xc2\xa0"), "\\xc2\\x9b and \xc2\xa0");  // C1's end is U+009F
  // No UTF-8: overlong, a surrogate, beyond the last character, cut.
  EXPECT_EQ(printable("\xe0\x80\x80"), "\\xe0\\x80\\x80");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xf4\x90\x80\x80x"), "\\xf4\\x90\\x80\\x80x");
  EXPECT_EQ(printable("a\xe2\x82"), "a\\xe2\\x82");
}

TEST(Utf8, ShownIsBoundedAndNotCutInsideACharacter) {
  EXPECT_EQ(shown("what\n"), "what\\x0a");
  EXPECT_EQ(shown(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(shown(std::string(199, 'x') + "€y"), std::string(199, 'x') + "…");
}

}  // namespace
}  // namespace twofold
