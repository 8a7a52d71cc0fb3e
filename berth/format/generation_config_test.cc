// format/generation_config_test.cc
#include "berth/format/generation_config.h"

#include <fmt/format.h>

#include "berth/format/gguf.h"
#include "berth/format/hf_config.h"
#include "berth/format/test_files.h"

namespace berth::format {
namespace {

Result<GenerationConfig> parse(std::string_view json) {
  return parse_generation_config(json, "generation_config.json");
}

TEST(GenerationConfig, ReadsIdsAsNumberOrList) {
  const auto one = parse(R"({"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0})");
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->eos_token_id, (std::vector<int64_t>{2}));
  EXPECT_EQ(one->bos_token_id, 1);
  EXPECT_EQ(one->pad_token_id, 0);
  EXPECT_EQ(parse(R"({"eos_token_id": [1, 106, 1]})")->eos_token_id, (std::vector<int64_t>{1, 106}));
  EXPECT_EQ(parse(R"({"eos_token_id": null, "pad_token_id": -1})")->pad_token_id, std::nullopt);
}

TEST(GenerationConfig, LeavesWhatIsNotStatedToTheDefaults) {
  const auto g = parse("{}");
  ASSERT_TRUE(g);
  EXPECT_FALSE(g->samples());
  EXPECT_EQ(g->top_k.value_or(GenerationConfig::kDefaultTopK), 50);
  EXPECT_TRUE(parse(R"({"do_sample": true})")->samples());
  EXPECT_FALSE(parse(R"({"do_sample": true, "temperature": 0})")->samples());  // 0 is greedy
  EXPECT_EQ(parse(R"({"top_k": 0})")->top_k, 0);
}

TEST(GenerationConfig, ReadsStopStringsAndBadWords) {
  EXPECT_EQ(parse(R"({"stop_strings": "END"})")->stop_strings, (std::vector<std::string>{"END"}));
  EXPECT_EQ(parse(R"({"stop_strings": ["a", "b"]})")->stop_strings.size(), 2u);
  EXPECT_EQ(parse(R"({"bad_words_ids": [[1], [2, 3]]})")->bad_words_ids[1], (std::vector<int64_t>{2, 3}));
  for (const char* bad : {R"({"stop_strings": [""]})", R"({"stop_strings": 7})", R"({"stop_strings": [7]})",
                          R"({"bad_words_ids": [1]})", R"({"bad_words_ids": "x"})", R"({"bad_words_ids": [["x"]]})"})
    expect_refused("stop", parse(bad), {"generation_config.json", "was expected"});
}

TEST(GenerationConfig, JS26_RefusesNumbersOutOfRange) {
  for (const char* bad : {R"("temperature": -1)", R"("temperature": "NaN")", R"("temperature": true)", R"("top_p": 2)",
                          R"("top_p": -0.1)", R"("top_p": "0.9")", R"("min_p": 1.5)", R"("repetition_penalty": 0)",
                          R"("top_k": -1)", R"("top_k": 2.5)", R"("max_new_tokens": -1)", R"("max_new_tokens": 1e12)",
                          R"("do_sample": 1)", R"("eos_token_id": "2")", R"("eos_token_id": ["2"])",
                          R"("eos_token_id": [2.5])", R"("eos_token_id": {})", R"("eos_token_id": 4294967296)"}) {
    const std::string key = std::string(bad).substr(0, std::string(bad).find(':'));
    expect_refused("JS-26", parse(fmt::format("{{{}}}", bad)), {"generation_config.json", key, "was expected"});
  }
  expect_refused("JS-26", parse(R"({"temperature": NaN})"), {"not valid JSON"});
  expect_refused("JS-26", parse("[]"), {"a JSON object was expected"});
  // Large limits are as written; the context cuts them.
  EXPECT_EQ(parse(R"({"max_new_tokens": 1000000000000})")->max_new_tokens, 1000000000000);
}

TEST(GenerationConfig, BR162_WarnsWherePadIsAnEnd) {
  const auto g = parse(R"({"pad_token_id": 12, "eos_token_id": [2, 11, 12]})");
  ASSERT_TRUE(g);
  ASSERT_EQ(g->warnings.size(), 1u);
  EXPECT_NE(g->warnings[0].find("12"), std::string::npos);
  EXPECT_TRUE(parse(R"({"pad_token_id": 2, "eos_token_id": 2})")->warnings.empty());
}

TEST(GenerationConfig, SaysWhichSettingsAreNotHonoured) {
  EXPECT_EQ(parse(R"({"num_beams": 4, "guidance_scale": 1.5})")->warnings.size(), 2u);
  EXPECT_TRUE(parse(R"({"num_beams": 1, "guidance_scale": 1.0, "epsilon_cutoff": 0.0})")->warnings.empty());
}

TEST(GenerationConfig, ComesFromConfigJsonAndGgufToo) {
  const auto config = HfConfig::parse(
      R"({"eos_token_id": [2, 3], "text_config": {"bos_token_id": 1, "eos_token_id": 9}})", "config.json");
  ASSERT_TRUE(config);
  const GenerationConfig from_config = generation_config_from(*config);
  EXPECT_EQ(from_config.eos_token_id, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(from_config.bos_token_id, 1);
  GgufBytes g;
  g.string("general.architecture", "llama").u32("tokenizer.ggml.eos_token_id", 2).u32("tokenizer.ggml.eot_token_id", 7);
  g.u32("tokenizer.ggml.padding_token_id", ~0u);
  const std::string bytes = g.bytes(0);
  const auto file = read_gguf(MemorySource("x.gguf", bytes));
  ASSERT_TRUE(file) << file.error().message;
  const auto from_gguf = generation_config_from(file->metadata);
  ASSERT_TRUE(from_gguf);
  EXPECT_EQ(from_gguf->eos_token_id, (std::vector<int64_t>{2, 7}));
  EXPECT_EQ(from_gguf->pad_token_id, std::nullopt);
}

TEST(GenerationConfig, ReadsThePublishedOnes) {
  SKIP_WITHOUT_SHARED(folder, "checkpoints");
  const auto text = read_file(path_join(folder, "gpt-oss-20b/generation_config.json"));
  ASSERT_TRUE(text);
  const auto g = parse(*text);
  ASSERT_TRUE(g) << g.error().message;
  EXPECT_EQ(g->eos_token_id, (std::vector<int64_t>{200002, 199999, 200012}));
  EXPECT_TRUE(g->samples());
}

}  // namespace
}  // namespace berth::format
