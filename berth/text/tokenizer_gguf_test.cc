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

}  // namespace
}  // namespace berth::text
