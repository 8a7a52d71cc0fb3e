#include "berth/base/json.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

std::string why(std::string_view text) {
  auto d = JsonDocument::parse(text);
  return d ? "" : d.error().message;
}

TEST(JsonDocument, KeepsLargeIntegersAsTextWhereAsked) {
  const std::string text = R"({"model_max_length": 1000000000000000019884624838656, "a": [-99999999999999999999,7]})";
  EXPECT_FALSE(JsonDocument::parse(text));
  const auto document = JsonDocument::parse(text, {.large_integers_as_text = true});
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(document->root()["model_max_length"].as_string(), "1000000000000000019884624838656");
  EXPECT_FALSE(document->root()["model_max_length"].as_int64());
  std::vector<std::string> kept;
  document->root()["a"].for_each_element([&](const JsonView& v) {
    kept.push_back(v.as_string() ? std::string(*v.as_string()) : std::to_string(v.as_int64().value_or(0)));
    return true;
  });
  EXPECT_EQ(kept, (std::vector<std::string>{"-99999999999999999999", "7"}));
  const auto broken = JsonDocument::parse(R"({"a": 1000000000000000019884624838656, "b": })", {.large_integers_as_text = true});
  EXPECT_FALSE(broken);
}

TEST(JsonDocument, WalksEveryNodeType) {
  auto d = JsonDocument::parse(R"({"a":[1,-2,18446744073709551615,1.5,true,false,null,"x\u0041"],"b":{"c":{}},"d":[]})");
  ASSERT_TRUE(d) << d.error().message;
  const JsonView r = d->root();
  ASSERT_TRUE(r.is_object());
  EXPECT_EQ(r.size(), 3u);
  const auto a = r["a"].elements();
  ASSERT_EQ(a.size(), 8u);
  EXPECT_EQ(a[0].as_int64(), 1);
  EXPECT_EQ(a[1].as_int64(), -2);
  EXPECT_EQ(a[1].as_uint64(), std::nullopt);
  EXPECT_EQ(a[2].as_uint64(), 18446744073709551615ull);
  EXPECT_EQ(a[2].as_int64(), std::nullopt);
  EXPECT_EQ(a[3].as_double(), 1.5);
  EXPECT_EQ(a[4].as_bool(), true);
  EXPECT_EQ(a[5].as_bool(), false);
  EXPECT_TRUE(a[6].is_null());
  EXPECT_TRUE(a[6].valid());
  EXPECT_EQ(a[7].as_string(), "xA");
  EXPECT_TRUE(r["b"]["c"].is_object());
  EXPECT_EQ(r["d"].size(), 0u);
  EXPECT_FALSE(r["nope"].valid());
  EXPECT_EQ(r.text(), R"({"a":[1,-2,18446744073709551615,1.5,true,false,null,"xA"],"b":{"c":{}},"d":[]})");
}

TEST(JsonDocument, RefusesEveryDialectAndSaysWhere) {
  EXPECT_NE(why("{\"a\":1,}").find("line 1, column 8"), std::string::npos) << why("{\"a\":1,}");
  EXPECT_NE(why("[1,\n 01]").find("line 2"), std::string::npos) << why("[1,\n 01]");
  for (const char* bad : {"", "{", "{'a':1}", "[NaN]", "[Infinity]", "[+1]", "[0x10]", "// c\n1", "[1]x", "\"\\ud800\"", "\"\xC3\x28\"",
                          "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}", "[18446744073709551616]", "[1e400]", "\"\x01\""})
    EXPECT_NE(why(bad), "") << bad;
}

TEST(JsonDocument, RefusesDepthWithoutOverflow) {
  EXPECT_NE(why(std::string(100000, '[')), "");
  EXPECT_EQ(why(std::string(200, '[') + std::string(200, ']')), "");
  EXPECT_NE(why(std::string(1000, '[') + std::string(1000, ']')), "");
}

TEST(JsonWriter, WritesCompactAndPretty) {
  JsonWriter w;
  w.begin_object().member("a", 1).key("b").begin_array().value(1.5).value("x\"\n").value(true).null().end_array().end_object();
  EXPECT_EQ(w.str(), R"({"a":1,"b":[1.5,"x\"\n",true,null]})");
  JsonWriter p(2);
  p.begin_object().member("a", 1).key("e").begin_array().end_array().end_object();
  EXPECT_EQ(p.str(), "{\n  \"a\": 1,\n  \"e\": []\n}");
}

TEST(JsonNumber, IsShortestAndReadsBack) {
  EXPECT_EQ(json_number(1.0), "1.0");
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(0.04993503540754318), "0.04993503540754318");
  EXPECT_EQ(json_number(1e-5), "1e-05");
  EXPECT_EQ(json_number(1e16), "1e+16");
  EXPECT_EQ(json_number(123456789.0), "123456789.0");
}

}  // namespace
}  // namespace berth
