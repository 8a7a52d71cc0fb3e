// text/tokenizer_gguf_test.cc — tokenizers from the metadata of real GGUF files: the published tokenizers' ids, n/n.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "berth/text/golden_cases.h"
#include "berth/text/test_gguf.h"

namespace berth::text {
namespace {

void check_gguf(const std::string& path, const std::string& golden) {
  REQUIRE_PATH(path);
  const std::string folder = golden_folder("tokenizers/" + golden);
  REQUIRE_PATH(folder);
  const TestGguf file(path);
  const GgufTokenizer metadata = file.tokenizer();
  const auto start = std::chrono::steady_clock::now();
  const auto t = Tokenizer::create({path, {}, {}, {}, &metadata});
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(t) << t.error().message;
  const GoldenTallies tallies = check_goldens(*t, folder);
  std::printf("%-28s %6.1f ms  %s\n", path_name(path).c_str(), ms, tallies.text().c_str());
  EXPECT_TRUE(tallies.all_right());
}

std::string model_path(const std::string& name) {
  const char* models = std::getenv("BERTH_MODELS");
  return path_join(models && *models ? models : std::string(BERTH_SOURCE_DIR) + "/../models", name);
}

TEST(GgufTokenizer, SmolLm2GivesThePublishedIds) {
  check_gguf(model_path("SmolLM2-135M-Instruct.Q4_1.gguf"), "smollm2");
}

TEST(GgufTokenizer, Qwen25GivesThePublishedIds) { check_gguf(model_path("qwen2.5-coder-0.5b.gguf"), "qwen2.5"); }

TEST(GgufTokenizer, Gemma3GivesThePublishedIds) { check_gguf(model_path("gemma-3-270m-q4_k_m.gguf"), "gemma3"); }

TEST(GgufTokenizer, Stories260kGivesThePublishedIds) {
  check_gguf(golden_folder("real_models/stories260k/stories260K-f32.gguf"), "stories260k");
}

// The metadata that a converter would write for a byte-level tokenizer.json, with `pre` as its pre-tokenizer's name.
class ConvertedGguf {
 public:
  ConvertedGguf(const JsonView& json, std::string pre) {
    metadata_.model = "gpt2";
    metadata_.pre = std::move(pre);
    const auto put = [&](std::string_view token, int64_t id, int32_t type) {
      const auto at = static_cast<size_t>(id);
      if (at >= metadata_.tokens.size()) {
        metadata_.tokens.resize(at + 1);
        metadata_.token_types.resize(at + 1, 5);
      }
      metadata_.tokens[at] = token;
      metadata_.token_types[at] = type;
    };
    for (const auto& [token, id] : json["model"]["vocab"].members()) put(token, *id.as_int64(), 1);
    for (const JsonView& t : json["added_tokens"].elements())
      put(*t["content"].as_string(), *t["id"].as_int64(), *t["special"].as_bool() ? 3 : 4);
    for (const JsonView& m : json["model"]["merges"].elements()) {
      const auto sides = m.elements();
      merges_.push_back(std::string(*sides[0].as_string()) + " " + std::string(*sides[1].as_string()));
    }
    for (const std::string& m : merges_) metadata_.merges.push_back(m);
  }
  GgufTokenizer& metadata() { return metadata_; }

 private:
  GgufTokenizer metadata_;
  std::vector<std::string> merges_;
};

TEST(GgufTokenizer, EveryPreTokenizersNameMeansItsExpression) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"gpt-2", "bl_gpt2"},           {"smollm", "digits_single"}, {"qwen2", "qwen2"},  {"qwen35", "qwen35"},
      {"llama-bpe", "llama3"},        {"dbrx", "llama3_merges"},   {"gpt-4o", "o200k"}, {"tekken", "tekken"},
      {"deepseek-v3", "deepseek_v3"}, {"falcon", "falcon"},        {"bloom", "bloom"}};
  for (const auto& [pre, golden] : kNames) {
    const std::string folder = golden_folder(std::string("tokenizers/tiny/") + golden);
    REQUIRE_PATH(folder);
    const auto json = JsonDocument::parse_file(folder + "/tokenizer.json").value();
    ConvertedGguf gguf(json.root(), pre);
    gguf.metadata().add_bos = false;
    // The golden's template, where it has one, in GGUF's words.
    const auto t0 = Tokenizer::create({folder, read_maybe_gzip(folder + "/tokenizer.json"), {}, {}, nullptr});
    ASSERT_TRUE(t0);
    if (const auto with = t0->encode("", true).value(); !with.empty()) {
      gguf.metadata().add_bos = true;
      gguf.metadata().bos_id = with[0];
    }
    const auto t = Tokenizer::create({pre, {}, {}, {}, &gguf.metadata()});
    ASSERT_TRUE(t) << pre << ": " << t.error().message;
    const GoldenTallies tallies = check_goldens(*t, folder);
    std::printf("pre %-12s %s\n", pre, tallies.text().c_str());
    EXPECT_TRUE(tallies.all_right()) << pre << " over " << golden;
  }
}

}  // namespace
}  // namespace berth::text
