// describe_model() on the real GGUF files of golden/real_models (BERTH_MODELS, a folder), and on stories260K.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "berth/arch/golden_tree.h"
#include "berth/arch/registry.h"
#include "berth/arch/sources.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/format/checkpoint.h"

namespace berth::arch {
namespace {

std::string models() {
  const char* folder = std::getenv("BERTH_MODELS");
  return folder == nullptr ? "" : folder;
}

Result<ModelDescription> describe(const std::string& path) {
  TRY(const format::Checkpoint checkpoint, format::Checkpoint::open(path));
  TRY(ModelDescription description, describe_model(checkpoint, {}));
  const auto unread = unread_tensors(checkpoint, description.spec);
  if (!unread.empty()) return Error(ErrorCode::kInternal, "unread: " + join(unread, " "));
  return description;
}

#define NEED_MODEL(path)                                                                      \
  const std::string path_text = (path);                                                       \
  if (models().empty() || !path_exists(path_text)) {                                          \
    const char* ci = std::getenv("CI");                                                       \
    if (ci != nullptr && std::string(ci) == "true") FAIL() << "no real model: " << path_text; \
    GTEST_SKIP() << "no real model (BERTH_MODELS): " << path_text;                            \
  }

TEST(RealGguf, SmolLM2IsALlamaWithPermutedHeads) {
  NEED_MODEL(models() + "/SmolLM2-135M-Instruct.Q4_1.gguf");
  const auto d = describe(path_text);
  ASSERT_TRUE(d) << d.error().message;
  const ModelSpec& s = d->spec;
  EXPECT_EQ(s.unsupported, "");
  EXPECT_EQ(s.family, "llama");
  ASSERT_EQ(s.layers.size(), 30u);
  EXPECT_EQ(s.hidden, 576);
  EXPECT_EQ(s.vocab_rows, 49152);
  EXPECT_TRUE(s.tied_head);
  EXPECT_EQ(s.ropes[0].theta, 100000);
  EXPECT_FLOAT_EQ(static_cast<float>(s.layers[0].input_norm.eps), 1e-5f);
  const TensorSpec* q = s.find(Role::kQ, 29);
  ASSERT_NE(q, nullptr);
  ASSERT_EQ(q->recipe.segments.size(), 18u);  // two halves of nine heads
  EXPECT_EQ(q->recipe.segments[1], (Segment{0, 1, 32, 2}));
  EXPECT_EQ(q->recipe.segments[2], (Segment{0, 64, 32, 2}));
  EXPECT_TRUE(s.find(Role::kV, 0)->recipe.segments.empty());
}

TEST(RealGguf, QwenHasBiasesAndAHeadOfItsOwn) {
  NEED_MODEL(models() + "/qwen2.5-coder-0.5b.gguf");
  const auto d = describe(path_text);
  ASSERT_TRUE(d) << d.error().message;
  const ModelSpec& s = d->spec;
  EXPECT_EQ(s.unsupported, "");
  EXPECT_EQ(s.family, "qwen2");
  EXPECT_EQ(s.layers.size(), 24u);
  EXPECT_FALSE(s.tied_head);
  EXPECT_TRUE(s.layers[0].attention.qkv_bias);
  EXPECT_FALSE(s.layers[0].attention.output_bias);
  EXPECT_TRUE(s.find(Role::kQ, 0)->recipe.segments.empty());
  EXPECT_EQ(s.find(Role::kHead, -1)->recipe.sources[0].name, "output.weight");
}

TEST(RealGguf, GemmaHasWindowsTwoRopesAndPlainNorms) {
  NEED_MODEL(models() + "/gemma-3-270m-q4_k_m.gguf");
  const auto d = describe(path_text);
  ASSERT_TRUE(d) << d.error().message;
  const ModelSpec& s = d->spec;
  EXPECT_EQ(s.unsupported, "");
  ASSERT_EQ(s.layers.size(), 18u);
  EXPECT_EQ(s.layers[4].attention.window, 512);
  EXPECT_EQ(s.layers[5].attention.kind, AttentionKind::kFull);
  EXPECT_EQ(s.layers[5].attention.rope, 0);
  EXPECT_EQ(s.ropes[0].theta, 1e6);
  EXPECT_EQ(s.ropes[1].theta, 1e4);
  EXPECT_EQ(s.embedding_scale, std::sqrt(640.0));
  EXPECT_EQ(s.layers[0].attention.scale, 1 / 16.0);
  EXPECT_FALSE(s.find(Role::kInputNorm, 0)->recipe.add_one);
}

// The same model from safetensors and from GGUF.
TEST(RealGguf, StoriesAreTheSameFromSafetensorsAndGguf) {
  const std::string folder = shared_folder() + "/golden/real_models/stories260k";
  BERTH_NEED_SHARED(folder);
  const auto hf = describe(folder + "/checkpoint");
  const auto gguf = describe(folder + "/stories260K-f32.gguf");
  ASSERT_TRUE(hf) << hf.error().message;
  ASSERT_TRUE(gguf) << gguf.error().message;
  ModelSpec a = hf->spec, b = gguf->spec;
  EXPECT_EQ(a.tensors.size(), b.tensors.size());
  a.tensors.clear();
  b.tensors.clear();
  for (ModelSpec* s : {&a, &b}) {  // the file has eps as a float, and no dtype of the whole
    s->dtype = DType::kF32;
    s->final_norm.eps = static_cast<double>(static_cast<float>(s->final_norm.eps));
    for (LayerSpec& l : s->layers) {
      l.input_norm.eps = static_cast<double>(static_cast<float>(l.input_norm.eps));
      l.mlp_norm.eps = static_cast<double>(static_cast<float>(l.mlp_norm.eps));
    }
  }
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.ropes, b.ropes);
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace berth::arch
