// text/regex_test.cc — Oniguruma's syntax as tokenizer files use it, and the search that the library does with it.
#include "berth/text/regex.h"

#include <gtest/gtest.h>

#include "berth/text/regex_syntax.h"

namespace berth::text {
namespace {

std::vector<std::string> found(std::string_view pattern, const std::string& text) {
  const auto regex = Regex::compile(pattern);
  if (!regex) return {"error: " + regex.error().message};
  std::vector<Span> matches;
  if (const auto status = regex->find_all(text, matches); !status) return {"error: " + status.error().message};
  std::vector<std::string> out;
  for (const Span& m : matches) out.push_back(text.substr(m.begin, m.end - m.begin));
  return out;
}
using Found = std::vector<std::string>;

TEST(RegexSyntax, ClassesNestAsInRuby) {
  EXPECT_EQ(found("[^(\\s|[.,!?\\u2026])]+", "a.b (c)…"), (Found{"a", "b", "c"}));
  EXPECT_EQ(found("[a-c[x-z]]+", "abz-q"), (Found{"abz"}));
  EXPECT_EQ(found("[a-z&&[^aeiou]]+", "stream"), (Found{"str", "m"}));
  EXPECT_EQ(found("[^a-z&&[^aeiou]]+", "stream 1"), (Found{"ea", " 1"}));
  EXPECT_EQ(found("[a[^a-y]]+", "zbab"), (Found{"z", "a"}));
  EXPECT_EQ(found("[]a]+", "a]b"), (Found{"a]"}));
  EXPECT_EQ(found("[a\\-z]+", "a-mz"), (Found{"a-", "z"}));
  EXPECT_EQ(found("[[:alpha:]]+", "ab1é"), (Found{"ab", "é"}));
}

TEST(RegexSyntax, ShorthandsAreUnicode) {
  EXPECT_EQ(found("\\s+", "a\u00a0\u3000b\u180e"), (Found{"\u00a0\u3000"}));
  EXPECT_EQ(found("\\S+", "a\u00a0b"), (Found{"a", "b"}));
  EXPECT_EQ(found("[\\S]+", "a\u2003b"), (Found{"a", "b"}));
  EXPECT_EQ(found("\\d+", "1\u0663x"), (Found{"1\u0663"}));
  EXPECT_EQ(found("\\w+", "a\u0301_\u0915\u093f-"), (Found{"a\u0301_\u0915\u093f"}));
  EXPECT_EQ(found("\\h+", "xBEEFy"), (Found{"BEEF"}));
  EXPECT_EQ(found("\\p{Han}+", "漢字かな"), (Found{"漢字"}));
  EXPECT_EQ(found("\\p{^L}+", "a1!b"), (Found{"1!"}));
  EXPECT_EQ(found("\\p{Lowercase_Letter}+", "aBc"), (Found{"a", "c"}));
}

// As `tokenizers` 0.23.3 answers, character by character.
TEST(RegexSyntax, CharactersNewerThanPcre2sTables) {
  EXPECT_EQ(found("\\p{S}+", "a\U0001FAE8\U0001F6DCb"), (Found{"\U0001FAE8\U0001F6DC"}));
  EXPECT_EQ(found("\\p{L}+", "a\U00031350\u1C89."), (Found{"a\U00031350\u1C89"}));
  EXPECT_EQ(found("\\P{L}+", "a\u1C89.\u0301"), (Found{".\u0301"}));
  EXPECT_EQ(found("[^\\s\\p{L}\\p{N}]+", "\u1C89\U00010D40\U0001FAE8!"), (Found{"\U0001FAE8!"}));
  EXPECT_EQ(found("[\\P{Lu}]+", "\u1C89a\u1C8A"), (Found{"a\u1C8A"}));
  EXPECT_EQ(found("[\\D]+", "\U00010D40a1"), (Found{"a"}));
  EXPECT_EQ(found("\\p{Han}+", "\U0002EBF0\u6F22a"), (Found{"\U0002EBF0\u6F22"}));
}

TEST(RegexSyntax, WordsAndPosixBracketsAreOnigurumas) {
  EXPECT_EQ(found("\\w+", "x\u00b2 \u00bd\u00bc \u2460"), (Found{"x\u00b2", "\u00bd\u00bc"}));  // Latin-1's only
  EXPECT_EQ(found("[^\\w]+", "x\u00b2 \u2460"), (Found{" \u2460"}));
  EXPECT_EQ(found("[[:word:]]+", "x\u00b2_"), (Found{"x", "_"}));
  EXPECT_EQ(found("[[:punct:]]+", "a+\u20ac\u00a9,"), (Found{"+\u20ac\u00a9,"}));
  EXPECT_EQ(found("[[:^alpha:]]+", "a\u0345 b"), (Found{" "}));
  EXPECT_EQ(found("[[:upper:]]+", "A\u2160a"), (Found{"A\u2160"}));
  EXPECT_EQ(found("[[:space:]]+", " \u180e"), (Found{" "}));
  EXPECT_EQ(found("[[:xdigit:]]+", "fg"), (Found{"f"}));
}

TEST(RegexSyntax, RubysOptionsAnchorsAndIntervals) {
  EXPECT_EQ(found("(?m:a.b)", "a\nb"), (Found{"a\nb"}));
  EXPECT_EQ(found("a.b", "a\nb"), (Found{}));
  EXPECT_EQ(found("^b$", "a\nb\nc"), (Found{"b"}));
  EXPECT_EQ(found("a{,2}b", "aaab"), (Found{"aab"}));
  EXPECT_EQ(found("a{x}", "a{x}"), (Found{"a{x}"}));
  EXPECT_EQ(found("(?i:'S|'t)", "'s'T'\u017f"), (Found{"'s", "'T", "'\u017f"}));
  EXPECT_EQ(found("a++b", "aab"), (Found{"aab"}));
  EXPECT_EQ(found("(?<=a)b", "abb"), (Found{"b"}));
}

TEST(RegexSyntax, WhatPcre2ReadsOtherwiseIsRefusedByName) {
  for (const char* pattern : {"a{2}+", "a{2}?", "(?~ab)", "(*FAIL)", "\\K", "\\x80", "\\Qa\\E", "[\\B]", "\\07"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::kUnsupported) << pattern << ": " << regex.error().message;
  }
  for (const char* pattern :
       {"(", "[a", "a)", "\\", "\\p{Foo}", "[", "[^]", "*", "\\u12", "\\p", "\\p{}", "[a&&]", "\\x"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::kCorruptData) << pattern << ": " << regex.error().message;
  }
}

TEST(Regex, EmptyMatchesAreFoundBetweenButNotBehindOthers) {
  const auto regex = Regex::compile("a*");
  ASSERT_TRUE(regex);
  std::vector<Span> matches;
  ASSERT_TRUE(regex->find_all("baac", matches));
  EXPECT_EQ(matches, (std::vector<Span>{{0, 0}, {1, 3}, {4, 4}}));
}

TEST(Regex, LiteralsMatchThemselves) {
  const auto regex = Regex::literal("a.b");
  ASSERT_TRUE(regex);
  std::vector<Span> matches;
  ASSERT_TRUE(regex->find_all("axba.ba.b", matches));
  EXPECT_EQ(matches, (std::vector<Span>{{3, 6}, {6, 9}}));
  EXPECT_FALSE(Regex::literal(""));
}

}  // namespace
}  // namespace berth::text
