// Configs as people publish them that leave keys out or set unusual ones: each means what Transformers 5.24.0 makes of
// it. Found by comparing random configs of every family with the library (tests/libraries/random_models.py).
#include <gtest/gtest.h>

#include <cmath>

#include "berth/arch/golden_tree.h"
#include "berth/arch/registry.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/format/hf_config.h"

namespace berth::arch {
namespace {

struct Edit {
  std::string find, replace;
};

// The published config of a golden model with some of its text replaced.
Result<ModelDescription> edited(const std::string& model, const std::vector<Edit>& edits) {
  std::string text = *read_file(shared_folder() + "/golden/models/" + model + "/config.published.json", 1 << 20);
  for (const Edit& e : edits) {
    const size_t at = text.find(e.find);
    EXPECT_NE(at, std::string::npos) << e.find;
    if (at != std::string::npos) text.replace(at, e.find.size(), e.replace);
  }
  TRY(const auto config, format::HfConfig::parse(text, "config.json"));
  return describe_config(config, {});
}

// Gemma 3 as Google publishes it has rope_scaling and neither rope_theta nor rope_local_base_freq.
TEST(OddConfig, ScalingOfGemma3IsOfTheFullLayersAlone) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/gemma3");
  const auto d = edited("gemma3", {{"\"rope_theta\"", "\"x\""}, {"\"rope_local_base_freq\"", "\"y\""}});
  ASSERT_TRUE(d) << d.error().message;
  ASSERT_EQ(d->spec.ropes.size(), 2u);
  EXPECT_EQ(d->spec.ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_EQ(d->spec.ropes[0].theta, 1e6);
  EXPECT_EQ(d->spec.ropes[1].scaling, RopeScaling::kDefault);
  EXPECT_EQ(d->spec.ropes[1].theta, 1e4);

  const auto full = edited("gemma3", {{"\"rope_local_base_freq\"", "\"y\""}});
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_EQ(full->spec.ropes[0].theta, 90000);
  EXPECT_EQ(full->spec.ropes[1].theta, 1e4);

  const auto older = edited("gemma3", {{"\"rope_type\"", "\"type\""}});
  ASSERT_TRUE(older) << older.error().message;
  EXPECT_EQ(older->spec.ropes[0].scaling, RopeScaling::kDefault);
}

TEST(OddConfig, YarnOfOneOfTwoRopesAlwaysRounds) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/gemma3");
  const Edit yarn{"\"rope_type\": \"linear\"",
                  "\"rope_type\": \"yarn\", \"truncate\": false, \"original_max_position_embeddings\": 48"};
  const auto d = edited("gemma3", {yarn});
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ(d->spec.ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_TRUE(d->spec.ropes[0].truncate);
}

TEST(OddConfig, TheGemma3ThatIsPublishedTurnsItsSlidingLayersPlainly) {
  const std::string path = shared_folder() + "/checkpoints/gemma-3-4b-it/config.json";
  BERTH_NEED_SHARED(path);
  const auto config = format::HfConfig::parse(*read_file(path, 1 << 20), "config.json");
  ASSERT_TRUE(config) << config.error().message;
  const auto d = describe_config(*config, {});
  ASSERT_TRUE(d) << d.error().message;
  ASSERT_EQ(d->spec.ropes.size(), 2u);
  EXPECT_EQ(d->spec.ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_EQ(d->spec.ropes[0].factor, 8);
  EXPECT_EQ(d->spec.ropes[1].scaling, RopeScaling::kDefault);
  EXPECT_EQ(d->spec.ropes[1].factor, 1);
  EXPECT_EQ(d->spec.ropes[1].theta, 1e4);
}

TEST(OddConfig, Gemma3sWrapperHasNoCapOnItsLogits) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/gemma3");
  const Edit cap{"\"final_logit_softcapping\": null", "\"final_logit_softcapping\": 30.0"};
  const auto wrapper = edited("gemma3", {cap}), text = edited("gemma3_text", {cap});
  ASSERT_TRUE(wrapper) << wrapper.error().message;
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(wrapper->spec.final_softcap, 0);
  EXPECT_EQ(text->spec.final_softcap, 30);
}

TEST(OddConfig, GemmaHasTheActivationThatItNamesButForGelu) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/gemma");
  const auto activation = [](const std::string& word) {
    const auto d = edited("gemma", {{"\"hidden_act\": \"gelu_pytorch_tanh\"", "\"hidden_act\": \"" + word + "\""}});
    EXPECT_TRUE(d) << d.error().message;
    return d->spec.layers[0].mlp.activation;
  };
  EXPECT_EQ(activation("gelu"), Activation::kGeluTanh);
  EXPECT_EQ(activation("gelu_python"), Activation::kGeluErf);
  EXPECT_EQ(activation("silu"), Activation::kSilu);
  EXPECT_EQ(activation("gelu_accurate"), Activation::kGeluTanh);
}

TEST(OddConfig, ASparsityOfOneHalfCutsAtTheMean) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/gemma3n_text");
  const auto d = edited("gemma3n_text", {{"0.95", "0.5"}});
  ASSERT_TRUE(d) << d.error().message;
  ASSERT_TRUE(d->spec.layers[0].mlp.sparsity_icdf.has_value());
  EXPECT_NEAR(*d->spec.layers[0].mlp.sparsity_icdf, 0, 1e-12);
  EXPECT_FALSE(d->spec.layers[2].mlp.sparsity_icdf.has_value());
}

TEST(OddConfig, GptOssWithoutRopeScalingHasTheYarnOfItsClass) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/gpt_oss");
  const auto d = edited("gpt_oss", {{"\"rope_scaling\"", "\"x\""}});
  ASSERT_TRUE(d) << d.error().message;
  const RopeSpec& rope = d->spec.ropes[0];
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.theta, 150000);
  EXPECT_EQ(rope.factor, 32);
  EXPECT_EQ(rope.original_max_position, 4096);
  EXPECT_FALSE(rope.truncate);
  EXPECT_NEAR(rope.attention_scaling, 0.1 * std::log(32.0) + 1, 1e-15);
}

TEST(OddConfig, OnlyPhi3ComputesAPrefixAnewAtLongRopesBorder) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/phi3_longrope");
  const auto phi = edited("phi3_longrope", {});
  ASSERT_TRUE(phi) << phi.error().message;
  EXPECT_TRUE(phi->spec.ropes[0].renews);
  EXPECT_EQ(phi->spec.ropes[0].original_max_position, 48);
  const auto silent = edited("phi3_longrope", {{"\"original_max_position_embeddings\"", "\"x\""}});
  ASSERT_TRUE(silent) << silent.error().message;
  EXPECT_EQ(silent->spec.ropes[0].original_max_position, 4096);
  std::string factors = "[1.5";
  for (int i = 1; i < 12; ++i) factors += ", 1.5";
  const auto llama =
      edited("llama", {{"\"rope_scaling\": null",
                        "\"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": " + factors +
                            "], \"long_factor\": " + factors + "], \"original_max_position_embeddings\": 48}"}});
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_EQ(llama->spec.ropes[0].scaling, RopeScaling::kLongRope);
  EXPECT_FALSE(llama->spec.ropes[0].renews);
}

TEST(OddConfig, IndexersWithoutLocalBlocksRunAndNarrowOnesAreRefused) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/minimax_m3");
  const auto none = edited("minimax_m3", {{"\"sparse_local_block\": 1", "\"sparse_local_block\": 0"}});
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_TRUE(none->spec.unsupported.empty()) << none->spec.unsupported;
  EXPECT_EQ(none->spec.layers[1].attention.index_local_blocks, 0);
  const auto narrow = edited("minimax_m3", {{"\"sparse_index_dim\": 16", "\"sparse_index_dim\": 4"}});
  ASSERT_TRUE(narrow) << narrow.error().message;
  EXPECT_NE(narrow->spec.unsupported.find("indexer heads"), std::string::npos) << narrow->spec.unsupported;
}

TEST(OddConfig, ADeltaNetNeedsSilu) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/qwen3_next");
  const auto d = edited("qwen3_next", {{"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\""}});
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_NE(d->spec.unsupported.find("\"gelu\""), std::string::npos) << d->spec.unsupported;
}

}  // namespace
}  // namespace berth::arch
