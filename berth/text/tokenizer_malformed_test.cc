// text/tokenizer_malformed_test.cc — damaged and hostile tokenizer files: refused, or read as the library reads them.
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "berth/text/golden_cases.h"
#include "berth/text/regex.h"

namespace berth::text {
namespace {

Result<Tokenizer> from_json(const std::string& json) { return Tokenizer::create({"test", json, {}, {}, nullptr}); }

// Of the processor, not of the clock on the wall: a busy machine changes nothing. A sanitizer's slowness is taken off.
double seconds_of(const std::function<void()>& f) {
#ifdef BERTH_SANITIZED
  constexpr double kSlowness = 6;
#else
  constexpr double kSlowness = 1;
#endif
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / kSlowness;
}

TEST(MalformedTokenizer, GoldenFilesAreRefusedOrGiveTheLibrarysIds) {
  const std::string path = golden_folder("tokenizers/malformed.jsonl");
  REQUIRE_PATH(path);
  size_t total = 0, refused = 0, stricter = 0, equal = 0;
  for (const JsonDocument& line : read_json_lines(path)) {
    const JsonView golden = line.root();
    ++total;
    const std::string name(*golden["name"].as_string());
    const auto t = from_json(std::string(*golden["json"].as_string()));
    if (!*golden["loads"].as_bool()) {
      EXPECT_FALSE(t) << name << ": the library refuses this";
      refused += !t;
      continue;
    }
    if (!t) {
      ++stricter;
      std::printf("  stricter than the library: %-42s %s\n", name.c_str(), t.error().message.c_str());
      EXPECT_NE(t.error().message, "");
      continue;
    }
    bool same = true;
    for (const JsonView& r : golden["results"].elements()) {
      const auto got = t->encode(*r["text"].as_string(), true);
      const bool ok = r.contains("ids") ? got && *got == ids_of(r["ids"]) : !got;
      EXPECT_TRUE(ok) << name << ": " << r.text() << " got " << (got ? ids_text(*got) : got.error().message);
      same &= ok;
    }
    equal += same;
  }
  std::printf("malformed: %zu, of them refused by both %zu, read alike %zu, refused by us alone %zu\n", total, refused,
              equal, stricter);
  EXPECT_EQ(total, 85u);
  EXPECT_EQ(refused + equal + stricter, total);
}

// A small byte-level tokenizer with `pre` as its pre-tokenizer and `more` in front of "model".
std::string tokenizer_with(const std::string& pre, const std::string& added = "[]",
                           const std::string& normalizer = "null",
                           const std::string& vocab = R"({"a":0,"b":1,"ab":2,"aa":3,"aaaa":4})",
                           const std::string& merges = R"([["a","b"],["a","a"],["aa","aa"]])") {
  return R"({"version":"1.0","added_tokens":)" + added + R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" +
         pre + R"(,"post_processor":null,"decoder":null,"model":{"type":"BPE","vocab":)" + vocab + R"(,"merges":)" +
         merges + "}}";
}

TEST(HostileTokenizer, DuplicateNegativeAndHugeIdsAreRefusedByName) {
  for (const char* vocab : {R"({"a":0,"b":0})", R"({"a":-1})", R"({"a":4294967296})", R"({"a":2000000000})",
                            R"({"a":0,"a":1})", R"({"a":1.5})"}) {
    const auto t = from_json(tokenizer_with("null", "[]", "null", vocab, "[]"));
    ASSERT_FALSE(t) << vocab;
    EXPECT_EQ(t.error().code, ErrorCode::kCorruptData) << t.error().message;
    EXPECT_NE(t.error().message.find("\"a\""), std::string::npos) << t.error().message;
  }
}

TEST(HostileTokenizer, EmptyAddedTokenIsRefusedInsteadOfMatchingForEver) {
  const auto t = from_json(tokenizer_with(
      "null",
      R"([{"id":5,"content":"","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}])"));
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error().code, ErrorCode::kCorruptData);
}

TEST(HostileTokenizer, MergesThatGoRoundInCirclesEnd) {
  // a+b=ab, ab+a=aba, ... no merge can be applied for ever, since every one shortens the word.
  const auto t = from_json(tokenizer_with("null", "[]", "null", R"({"a":0,"b":1,"ab":2,"ba":3,"aba":4,"bab":5})",
                                          R"([["a","b"],["b","a"],["ab","a"],["ba","b"],["a","ba"],["b","ab"]])"));
  ASSERT_TRUE(t) << t.error().message;
  std::string text;
  for (int i = 0; i < 100000; ++i) text += i % 3 ? 'a' : 'b';
  EXPECT_LT(seconds_of([&] { EXPECT_TRUE(t->encode(text, false)); }), 5.0);
}

TEST(HostileTokenizer, TenMillionMergesAreRefusedSoon) {
  std::string merges = "[[\"a\",\"b\"]";
  merges.reserve(size_t{100} << 20);
  for (int i = 0; i < 9'999'999; ++i) merges += ",[\"a\",\"b\"]";
  const std::string json = tokenizer_with("null", "[]", "null", R"({"a":0,"b":1,"ab":2})", merges + "]");
  const double s = seconds_of([&] {
    const auto t = from_json(json);
    ASSERT_FALSE(t);
    EXPECT_NE(t.error().message.find("merges"), std::string::npos) << t.error().message;
  });
  EXPECT_LT(s, 20.0);
}

TEST(HostileTokenizer, AMegabyteOfOneLetterIsQuick) {
  const auto t = from_json(tokenizer_with("null"));
  ASSERT_TRUE(t) << t.error().message;
  const std::string text(1 << 20, 'a');
  std::vector<int32_t> ids;
  const double s = seconds_of([&] { ids = t->encode(text, false).value(); });
  EXPECT_EQ(ids.size(), text.size() / 4);
  std::printf("1 MiB of one letter as one word: %.3f s\n", s);
  EXPECT_LT(s, 5.0);
}

TEST(HostileTokenizer, BacktrackingExpressionsEndInAnError) {
  for (const char* expression : {"(a+)+$", "(a|a)*b", "(a*)*b", "(?:a?){40}a{40}b", "(a|aa)+c", "([ab]*)*\\\\d"}) {
    const auto t = from_json(tokenizer_with(R"({"type":"Split","pattern":{"Regex":")" + std::string(expression) +
                                            R"("},"behavior":"Isolated","invert":false})"));
    ASSERT_TRUE(t) << t.error().message;
    const std::string text(size_t{1} << 20, 'a');
    const double s = seconds_of([&] {
      const auto ids = t->encode(text + "!", false);
      if (!ids) {
        EXPECT_EQ(ids.error().code, ErrorCode::kCorruptData);
      }
    });
    EXPECT_LT(s, 30.0) << expression;
  }
}

TEST(HostileTokenizer, ReplacementsThatDoubleTheTextEndInAnError) {
  std::string chain;
  for (int i = 0; i < 40; ++i)
    chain += std::string(i ? "," : "") + R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  const auto t = from_json(tokenizer_with("null", "[]", R"({"type":"Sequence","normalizers":[)" + chain + "]}"));
  ASSERT_TRUE(t) << t.error().message;
  const auto ids = t->encode("aaaa", false);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::kUnsupported);
}

TEST(HostileTokenizer, DeepNestingIsRefused) {
  std::string open, close;
  for (int i = 0; i < 60; ++i) {
    open += R"({"type":"Sequence","pretokenizers":[)";
    close += "]}";
  }
  EXPECT_FALSE(from_json(tokenizer_with(open + close)));
  const std::string brackets = std::string(200, '[') + "a" + std::string(200, ']');
  EXPECT_FALSE(Regex::compile(brackets));
  EXPECT_FALSE(Regex::compile(std::string(1000, '(') + std::string(1000, ')')));
}

TEST(HostileTokenizer, BrokenUtf8IsRefusedNotEncoded) {
  const auto t = from_json(tokenizer_with("null"));
  ASSERT_TRUE(t);
  for (const char* text : {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80"}) {
    const auto ids = t->encode(text, false);
    ASSERT_FALSE(ids);
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(HostileTokenizer, IdsThatDoNotExistArePassedOver) {
  const auto t = from_json(tokenizer_with("null"));
  ASSERT_TRUE(t);
  const std::vector<int32_t> ids{-1, INT32_MIN, INT32_MAX, 99, 2};
  EXPECT_EQ(t->decode(ids, false).value(), "ab");
  EXPECT_FALSE(t->piece(-5));
  EXPECT_FALSE(t->is_special(12345));
}

TEST(HostileGguf, ArraysOfOtherLengthsAndTypesAreRefusedByKey) {
  GgufTokenizer good;
  good.model = "llama";
  good.tokens = {"<unk>", "<s>", "a", "b", "ab"};
  good.token_types = {2, 3, 1, 1, 1};
  good.scores = {0, 0, -1, -2, -3};
  good.bos_id = 1;
  const auto made = [](const GgufTokenizer& g) { return Tokenizer::create({"test", {}, {}, {}, &g}); };
  const auto t = made(good);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->bos_id(), 1);
  EXPECT_TRUE(t->adds_bos());
  const auto refuses = [&](const char* key, const std::function<void(GgufTokenizer&)>& damage) {
    GgufTokenizer g = good;
    damage(g);
    const auto bad = made(g);
    ASSERT_FALSE(bad) << key;
    EXPECT_NE(bad.error().message.find(key), std::string::npos) << bad.error().message;
  };
  refuses("scores", [](auto& g) { g.scores.pop_back(); });
  refuses("scores", [](auto& g) { g.scores[0] = std::numeric_limits<float>::quiet_NaN(); });
  refuses("token_type", [](auto& g) { g.token_types.pop_back(); });
  refuses("token_type", [](auto& g) { g.token_types[0] = 17; });
  refuses("tokens", [](auto& g) { g.tokens.clear(); });
  refuses("tokens", [](auto& g) { g.tokens[3] = "\xff"; });
  refuses("\"a\"", [](auto& g) { g.tokens[3] = "a"; });
  refuses("bos", [](auto& g) { g.bos_id = 5; });
  refuses("bos", [](auto& g) { g.bos_id = -1; });
  refuses("wavelet", [](auto& g) { g.model = "wavelet"; });
  refuses("merges", [](auto& g) { g.merges = {"ab"}; });
  refuses("secret-pre", [](auto& g) {
    g.model = "gpt2";
    g.pre = "secret-pre";
  });
}

TEST(StreamDecoder, HoldsBackHalfACharacterAndGivesItWhole) {
  const auto t = from_json(R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,)"
                           R"("post_processor":null,"decoder":{"type":"ByteLevel"},)"
                           R"("model":{"type":"BPE","vocab":{"Ã":0,"©":1,"x":2},"merges":[]}})");
  ASSERT_TRUE(t) << t.error().message;
  StreamDecoder stream(*t, false);
  EXPECT_EQ(stream.step(2).value(), "x");
  EXPECT_EQ(stream.step(0).value(), "");
  EXPECT_EQ(stream.step(1).value(), "é");
  EXPECT_EQ(stream.step(0).value(), "");
  EXPECT_EQ(stream.finish().value(), "\xEF\xBF\xBD");
}

TEST(StreamDecoder, NeverWaitsForEver) {
  const auto t = from_json(R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,)"
                           R"("post_processor":null,"decoder":{"type":"ByteLevel"},)"
                           R"("model":{"type":"BPE","vocab":{"Ã":0,"x":1},"merges":[]}})");
  ASSERT_TRUE(t) << t.error().message;
  StreamDecoder stream(*t, false);
  size_t bytes = 0;
  const double s = seconds_of([&] {
    for (int i = 0; i < 20000; ++i) bytes += stream.step(0).value().size();
  });
  EXPECT_GT(bytes, 50000u);
  EXPECT_LT(s, 10.0);
}

}  // namespace
}  // namespace berth::text
