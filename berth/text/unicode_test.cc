// The library's character tables are older than utf8proc's in places: what it answers, character by character
// (tokenizers 0.23.3 asked for all of Unicode).
#include "berth/text/unicode.h"

#include <gtest/gtest.h>

namespace berth::text {
namespace {

TEST(UnicodeTables, PunctuationIsThatOfUnicode8) {
  for (const char32_t c : {U'!', U'$', U'\u00A1', U'\u166D', U'\U000111C9', U'\u2E42', U'\u3001'})
    EXPECT_TRUE(is_punctuation(c)) << +c;
  for (const char32_t c : {U'a', U'\u00A9', U'\u061D', U'\u2E43', U'\u2E5D', U'\U00010EAD', U'\U0001E95F'})
    EXPECT_FALSE(is_punctuation(c)) << +c;
}

TEST(UnicodeTables, MarksAndControlsAreThoseTheLibraryKnows) {
  EXPECT_TRUE(is_mark(U'\u0301'));
  EXPECT_TRUE(is_mark(U'\u1CF2'));  // became a letter
  EXPECT_TRUE(is_mark(U'\u08D4'));  // of Unicode 9: an accent, but no nonspacing mark to BERT's normalizer
  EXPECT_FALSE(is_nonspacing_mark(U'\u08D4'));
  EXPECT_TRUE(is_nonspacing_mark(U'\u0301'));
  EXPECT_TRUE(is_nonspacing_mark(U'\u1734'));  // became a spacing one
  for (const char32_t c : {U'\u0898', U'\u1ABF', U'\U0001E4EF'}) {
    EXPECT_FALSE(is_mark(c)) << +c;
    EXPECT_FALSE(is_nonspacing_mark(c)) << +c;
  }
  EXPECT_TRUE(is_control_like(U'\u200B'));
  EXPECT_FALSE(is_control_like(U'\u0890'));
}

TEST(UnicodeTables, NumbersAndLowerCaseAreThoseOfUnicode17) {
  for (const char32_t c : {U'7', U'\u00B2', U'\u2167', U'\U00010D40', U'\U00016FF6'}) EXPECT_TRUE(is_numeric(c)) << +c;
  for (const char32_t c : {U'a', U'\U00010D4A', U'\U00016FF7'}) EXPECT_FALSE(is_numeric(c)) << +c;
  EXPECT_EQ(to_lower("\u1C89\uA7CB\uA7DC\U00010D50\U00016EB8\u0130"), "\u1C8A\u0264\u019B\U00010D70\U00016ED3i\u0307");
}

TEST(UnicodeTables, MarksNewerThanUnicode9AreNotReordered) {
  for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
    EXPECT_EQ(*to_normal_form("a\u0303\u0C3C", form),
              form == NormalForm::kNfc || form == NormalForm::kNfkc ? "\u00E3\u0C3C" : "a\u0303\u0C3C");
    EXPECT_EQ(*to_normal_form("\u1FA2\u0C3C\u0303", NormalForm::kNfc), "\u1FA2\u0C3C\u0303");
    EXPECT_EQ(*to_normal_form("\U00011938", form), "\U00011938");
  }
}

TEST(UnicodeTables, CompatibleFormsNewerThanUnicode9Stay) {
  const auto nfkc = [](std::string_view text) { return *to_normal_form(text, NormalForm::kNfkc); };
  EXPECT_EQ(nfkc("\u337F\u32FE"), "\u682A\u5F0F\u4F1A\u793E\u30F2");
  EXPECT_EQ(nfkc("\u32FF"), "\u32FF");  // the era Reiwa
  EXPECT_EQ(nfkc("\uFB01e\u0301\u32FF\uFF21\U0001FBF0o\u0308"), "fi\u00E9\u32FFA\U0001FBF0\u00F6");
  EXPECT_EQ(*to_normal_form("\u00E9\uA7F2\u212B", NormalForm::kNfkd), "e\u0301\uA7F2A\u030A");
  EXPECT_EQ(*to_normal_form("e\u0301\u32FF", NormalForm::kNfc), "\u00E9\u32FF");
}

}  // namespace
}  // namespace berth::text
