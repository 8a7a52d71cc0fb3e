#include "berth/base/utf8.h"

#include <gtest/gtest.h>

#include "berth/base/strings.h"

namespace berth {
namespace {

TEST(Utf8, EveryCodePointSurvivesTheRoundTrip) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(text.size(), utf8_length(text[0]));
    ASSERT_TRUE(is_valid_utf8(text));
    size_t at = 0;
    ASSERT_EQ(decode_utf8(text, at), c);
    ASSERT_EQ(at, text.size());
    ASSERT_EQ(previous_utf8(text, text.size()), 0u);
    ASSERT_EQ(repaired_utf8(text), text);
  }
}

TEST(Utf8, BrokenPartsBecomeOneReplacementEach) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(repaired_utf8("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(repaired_utf8("\xE2\x82"), r);         // cut short
  EXPECT_EQ(repaired_utf8("\xE2\x82x"), r + "x");  // cut short inside
  EXPECT_EQ(repaired_utf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(repaired_utf8("\xC0\x80"), r + r);                  // overlong
  EXPECT_EQ(repaired_utf8("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(repaired_utf8("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(repaired_utf8("\x80\x80"), r + r);
  EXPECT_EQ(repaired_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"), r + r + r + r);  // Unicode 3.9, table 3-8
  EXPECT_TRUE(is_valid_utf8(repaired_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41")));
}

TEST(Utf8, OnlyATailThatCanStillBecomeACharacterIsIncomplete) {
  EXPECT_EQ(incomplete_utf8_tail("a"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("a\xC3"), 1u);
  EXPECT_EQ(incomplete_utf8_tail("a\xE2\x82"), 2u);
  EXPECT_EQ(incomplete_utf8_tail("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_utf8_tail("\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xED\xA0"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xFF"), 0u);
  EXPECT_EQ(incomplete_utf8_tail(""), 0u);
}

TEST(Utf8, CountsCharactersNotBytes) { EXPECT_EQ(count_code_points("aé漢😀"), 4u); }

}  // namespace
}  // namespace berth
