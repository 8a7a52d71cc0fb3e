// tests/models/real_models_test.cc — real models: token ids, logits, 48 greedy tokens and perplexity as Transformers gives.
//
// The models are found in the folder BERTH_MODELS (scripts/test fetches them), stories260K among the goldens. One that is
// missing is skipped by name; with CI=true that is a failure.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "berth/base/json.h"
#include "berth/engine/evaluate.h"
#include "berth/engine/running.h"
#include "placed_model.h"

namespace berth::testing {
namespace {

struct RealModel {
  std::string name;    // golden folder
  std::string path;    // below BERTH_MODELS, or below the goldens where it begins with '@'
};

std::string model_path(const RealModel& m) {
  if (m.path.front() == '@') return shared_path("golden/real_models/" + m.path.substr(1));
  const char* models = std::getenv("BERTH_MODELS");
  return std::string(models == nullptr ? "" : models) + "/" + m.path;
}

std::vector<int32_t> int_list(JsonView list) {
  std::vector<int32_t> out;
  for (const JsonView v : list.elements()) out.push_back(static_cast<int32_t>(*v.as_int64()));
  return out;
}

class RealModelTest : public ::testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    path_ = model_path(GetParam());
    BERTH_NEEDS(path_);
  }
  std::string path_;
};

TEST_P(RealModelTest, AnswersAsTransformersDoes) {
  auto expected = JsonDocument::parse_file(shared_path("golden/real_models/" + GetParam().name + "/expected.json"));
  ASSERT_TRUE(expected) << expected.error().message;
  auto logits_file = format::Checkpoint::open(shared_path("golden/real_models/" + GetParam().name + "/logits.safetensors"), Log{});
  ASSERT_TRUE(logits_file) << logits_file.error().message;
  RunOptions options;
  options.threads = 2;
  options.shape = {.ctx_size = 640, .batch = 1, .prefill_chunk = 256, .logit_rows = 16, .kv_dtype = DType::kF32};
  auto placed = place_model(path_, all_on_cpu(), options);
  ASSERT_TRUE(placed) << placed.error().message;
  model::Model& model = *(*placed)->model;
  auto tokenizer = engine::make_tokenizer(*(*placed)->checkpoint);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;

  double worst = 0, largest = 0;
  size_t tokens_compared = 0;
  const JsonView root = expected->root();
  for (const JsonView prompt : root["prompts"].elements()) {
    const std::string id(*prompt["id"].as_string());
    const std::vector<int32_t> ids = int_list(prompt["ids"]);
    auto encoded = tokenizer->encode(*prompt["text"].as_string(), *prompt["add_special_tokens"].as_bool());
    ASSERT_TRUE(encoded) << encoded.error().message;
    EXPECT_EQ(*encoded, ids) << id;

    model.kv().set_length(0, 0);
    std::vector<float> row;
    const auto keep = [&](size_t, int64_t, std::span<const float> logits) {
      row.assign(logits.begin(), logits.end());
      return Status();
    };
    ASSERT_TRUE(model.prefill(0, ids, model::LogitRows::kLast, keep));
    for (const float v : row) largest = std::max(largest, std::fabs(static_cast<double>(v)));
    if (const format::TensorEntry* e = logits_file->find(id + ".logits")) {
      const size_t vocab = static_cast<size_t>(e->shape.back());
      std::vector<float> want(e->size_bytes / 4);
      ASSERT_TRUE(logits_file->read(*e, 0, std::as_writable_bytes(std::span(want))));
      const float* last = want.data() + want.size() - vocab;
      ASSERT_EQ(row.size(), vocab);
      for (size_t i = 0; i < vocab; ++i) worst = std::max(worst, std::fabs(static_cast<double>(row[i]) - static_cast<double>(last[i])));
    }
    for (const JsonView top : prompt["top20"].elements()) {
      const auto pair = top.elements();
      worst = std::max(worst, std::fabs(static_cast<double>(row[static_cast<size_t>(*pair[0].as_int64())]) - *pair[1].as_double()));
    }
    const auto greedy = int_list(prompt["greedy48"]);
    const auto steps = prompt["greedy_steps"].elements();
    for (size_t s = 0; s < greedy.size(); ++s) {
      const auto best = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      ASSERT_EQ(best, greedy[s]) << id << " step " << s;
      worst = std::max(worst, std::fabs(static_cast<double>(row[static_cast<size_t>(best)]) - *steps[s].elements()[1].as_double()));
      ++tokens_compared;
      const model::BatchItem item{.sequence = 0, .tokens = std::span(&greedy[s], 1)};
      ASSERT_TRUE(model.forward(std::span(&item, 1), keep));
    }
  }
  EXPECT_LE(worst, 2e-4 * largest);

  const JsonView text = root["perplexity"];
  auto evaluation = engine::evaluate(model, int_list(text["ids"]));
  ASSERT_TRUE(evaluation) << evaluation.error().message;
  ASSERT_TRUE(evaluation->perplexity);
  EXPECT_NEAR(*evaluation->perplexity / *text["perplexity"].as_double(), 1.0, 1e-4);
  std::printf("[ golden   ] %-20s largest |logit| %7.3f  difference %.2e  %zu greedy tokens equal  perplexity %.6f (%.6f)\n",
              GetParam().name.c_str(), largest, worst, tokens_compared, *evaluation->perplexity, *text["perplexity"].as_double());
}

// numerics.md 5: the fast mode stays near the exact one.
TEST_P(RealModelTest, StaysNearExactInInt8) {
  auto expected = JsonDocument::parse_file(shared_path("golden/real_models/" + GetParam().name + "/expected.json"));
  ASSERT_TRUE(expected);
  const std::vector<int32_t> ids = int_list(expected->root()["perplexity"]["ids"]);
  std::vector<float> rows[2];
  double perplexity[2] = {};
  for (const int mode : {0, 1}) {
    RunOptions options;
    options.threads = 2;
    options.numerics = mode == 0 ? kernel::Numerics::kExact : kernel::Numerics::kInt8;
    options.shape = {.ctx_size = 640, .batch = 1, .prefill_chunk = 256, .logit_rows = 16, .kv_dtype = DType::kF16};
    auto placed = place_model(path_, all_on_cpu(), options);
    ASSERT_TRUE(placed) << placed.error().message;
    auto evaluation = engine::evaluate(*(*placed)->model, ids, [&](int64_t position, std::span<const float> row) {
      if (position % 16 == 0) rows[mode].insert(rows[mode].end(), row.begin(), row.end());
      return Status();
    });
    ASSERT_TRUE(evaluation) << evaluation.error().message;
    ASSERT_TRUE(evaluation->perplexity);
    perplexity[mode] = *evaluation->perplexity;
  }
  double dot = 0, a = 0, b = 0;
  for (size_t i = 0; i < rows[0].size(); ++i) {
    dot += static_cast<double>(rows[0][i]) * static_cast<double>(rows[1][i]);
    a += static_cast<double>(rows[0][i]) * static_cast<double>(rows[0][i]);
    b += static_cast<double>(rows[1][i]) * static_cast<double>(rows[1][i]);
  }
  const double cosine = dot / std::sqrt(a * b);
  EXPECT_GT(cosine, 0.999);
  EXPECT_NEAR(perplexity[1] / perplexity[0], 1.0, 0.01);
  std::printf("[ golden   ] %-20s int8 against exact: cosine %.6f, perplexity %.4f against %.4f\n", GetParam().name.c_str(), cosine,
              perplexity[1], perplexity[0]);
}

INSTANTIATE_TEST_SUITE_P(All, RealModelTest,
                         ::testing::Values(RealModel{"stories260k", "@stories260k/checkpoint"},
                                           RealModel{"stories260k", "@stories260k/stories260K-f32.gguf"},
                                           RealModel{"stories260k-q8_0", "@stories260k/stories260K-q8_0.gguf"},
                                           RealModel{"smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"},
                                           RealModel{"qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b.gguf"},
                                           RealModel{"gemma3-270m", "gemma-3-270m-q4_k_m.gguf"}),
                         [](const auto& i) {
                           std::string n = i.param.path;
                           for (char& c : n)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return n;
                         });

}  // namespace
}  // namespace berth::testing
