#include "berth/base/bytes.h"

#include <gtest/gtest.h>

#include "berth/base/strings.h"

namespace berth {
namespace {

TEST(ParseSize, ReadsBinaryAndDecimalUnitsApart) {
  EXPECT_EQ(parse_size("18GiB")->bytes, 18ull << 30);
  EXPECT_EQ(parse_size("18GB")->bytes, 18000000000ull);
  EXPECT_EQ(parse_size("512 MiB")->bytes, 512ull << 20);
  EXPECT_EQ(parse_size("1.5GiB")->bytes, 3ull << 29);
  EXPECT_EQ(parse_size("4096")->bytes, 4096u);
  EXPECT_TRUE(parse_size("18gb")->lower_case_b);
  EXPECT_FALSE(parse_size("18GB")->lower_case_b);
}

TEST(ParseSize, RefusesNonsense) {
  for (const char* bad :
       {"", "GiB", "-1", "1.2.3GiB", "1XB", "99999999999999999999", "9999999TiB", "1i", "1iB", "1GiBs"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(FormatBytes, KeepsThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(16ull << 30), "16.0 GiB");
  EXPECT_EQ(format_bytes(1234567890123ull), "1.12 TiB");
  EXPECT_EQ(group_digits(1234567), "1,234,567");
}

TEST(Escaped, MakesOneHarmlessLine) {
  EXPECT_EQ(escaped("a\x1b[31mb\n\xff"), "a\\x1b[31mb\\n\\xff");
  EXPECT_EQ(escaped("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
}

TEST(NearestMatch, FindsATypoOnly) {
  const std::vector<std::string> names = {"model.layers.0", "lm_head", "model.norm"};
  EXPECT_EQ(nearest_match("lm_haed", names), "lm_head");
  EXPECT_EQ(nearest_match("xyzzy", names), std::nullopt);
}

TEST(GlobMatch, KnowsStarAndQuestionMark) {
  EXPECT_TRUE(glob_match("model.layers.*.mlp", "model.layers.12.mlp"));
  EXPECT_FALSE(glob_match("model.layers.?.mlp", "model.layers.12.mlp"));
  EXPECT_TRUE(glob_match("*", ""));
}

TEST(GlobMatch, KnowsClassesOfCharacters) {
  EXPECT_TRUE(glob_match("*layers.[0-5].*", "model.layers.5.mlp"));
  EXPECT_FALSE(glob_match("*layers.[0-5].*", "model.layers.6.mlp"));
  EXPECT_FALSE(glob_match("*layers.[0-5].*", "model.layers.15.mlp"));
  EXPECT_TRUE(glob_match("*layers.1[02].*", "model.layers.12.mlp"));
  EXPECT_TRUE(glob_match("layers.[!0-5]", "layers.6"));
  EXPECT_FALSE(glob_match("layers.[!0-5]", "layers.5"));
  EXPECT_TRUE(glob_match("[]]", "]"));
  for (const char* literal : {"a[", "a[]", "a[!", "a[!]", "a[b"}) EXPECT_TRUE(glob_match(literal, literal)) << literal;
}

}  // namespace
}  // namespace berth
