#include "protocol/text.h"

#include <gtest/gtest.h>

namespace twofold {
namespace {

TEST(Text, what_acts_on_a_terminal_is_found) {
  for (const char* text : {"a\x1b[2J", "\n", "\x7f", "\u0085", "\u009f", "a\u061cb", "\u200e",
                           "\u202e", "\u2028", "\u2066", "\u2069", "\ufeff"}) {
    EXPECT_TRUE(has_controls(text)) << printable(text);
  }
  for (const char* text : {"", "plain text", "Zürich…", "مرحبا", "👩‍🍳", "\u00a0", "\u2027",
                           "\u202f", "\u2065"}) {
    EXPECT_FALSE(has_controls(text)) << text;
  }
}

TEST(Text, what_acts_on_a_terminal_is_escaped) {
  EXPECT_EQ(printable("a\x1b[2J\u0085b\u202ec\n"), "a\\x1b[2J\\u0085b\\u202ec\\x0a");
  EXPECT_EQ(printable("one\n\x07two", true), "one\n\\x07two");
  EXPECT_EQ(printable("Zürich… 👩‍🍳"), "Zürich… 👩‍🍳");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  // C1 as bytes of their own, a character cut short.
  EXPECT_EQ(printable("\x9b"
                      "2J\xe2\x80"),
            "\\x9b2J\\xe2\\x80");
}

TEST(Text, base64_is_written_in_one_way_and_read_in_all) {
  EXPECT_EQ(base64_encode(""), "");
  EXPECT_EQ(base64_encode("f"), "Zg==");
  EXPECT_EQ(base64_encode("fo"), "Zm8=");
  EXPECT_EQ(base64_encode("\xfb\xff\xfe"), "+//+");
  for (const char* text : {"+//+", "-__-"}) EXPECT_EQ(base64_decode(text), "\xfb\xff\xfe") << text;
  for (const char* text : {"Zg==", "Zg"}) EXPECT_EQ(base64_decode(text), "f") << text;
  EXPECT_EQ(base64_decode("Zm8="), "fo");
  EXPECT_EQ(base64_decode(""), "");
  for (const char* text : {"Z", "Zg=", "Z===", "====", "Zh==", "Zm8 ", "Zm9v\n", "Zm=8", "ä"}) {
    EXPECT_FALSE(base64_decode(text)) << text;
  }
}

TEST(Utf8, PrintableKeepsCharactersAndEscapesTheRest) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("plain ü € 😀"), "plain ü € 😀");
  EXPECT_EQ(printable(std::string("a\0\n\x1b[2J\x7f", 8)), "a\\x00\\x0a\\x1b[2J\\x7f");
  EXPECT_EQ(printable("\xc2\x9b and \xc2\xa0"), "\\u009b and \xc2\xa0");  // C1's end is U+009F
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
