// arch/families/siglip.cc — see siglip.h.
#include "berth/arch/families/siglip.h"

#include <algorithm>
#include <string>

#include "berth/arch/families/tower_config.h"
#include "berth/arch/text_config.h"

namespace berth::arch {

SiglipConfig read_siglip(const format::ConfigView& root) {
  const TowerConfig config(root, "vision_config");
  SiglipConfig s;
  s.hidden = config.integer("hidden_size", s.hidden);
  s.intermediate = config.integer("intermediate_size", s.intermediate);
  s.layers = config.layers("num_hidden_layers", s.layers);
  s.heads = config.integer("num_attention_heads", s.heads);
  s.channels = config.integer("num_channels", s.channels);
  s.image_size = config.integer("image_size", s.image_size);
  s.patch_size = std::max<int64_t>(1, config.integer("patch_size", s.patch_size));
  s.has_head = config.boolean("vision_use_head", s.has_head);
  s.activation = config.text("hidden_act", s.activation);
  return s;
}

namespace {

void encoder_layer(Builder& b, const SiglipConfig& s, int64_t index) {
  const auto layer = b.open(std::to_string(index), "SiglipEncoderLayer");
  b.layer_norm("layer_norm1", s.hidden);
  {
    const auto attention = b.open("self_attn", "SiglipAttention");
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) b.linear(name, s.hidden, s.hidden, true);
  }
  b.layer_norm("layer_norm2", s.hidden);
  const auto mlp = b.open("mlp", "SiglipMLP");
  b.leaf("activation_fn", activation_class(s.activation));
  b.linear("fc1", s.intermediate, s.hidden, true);
  b.linear("fc2", s.hidden, s.intermediate, true);
}

// One learned query that attends to all patches.
void pooling_head(Builder& b, const SiglipConfig& s) {
  const auto head = b.open("head", "SiglipMultiheadAttentionPoolingHead");
  b.parameter("probe", {1, 1, s.hidden});
  {
    const auto attention = b.open("attention", "MultiheadAttention");
    b.parameter("in_proj_weight", {3 * s.hidden, s.hidden});
    b.parameter("in_proj_bias", {3 * s.hidden});
    const auto out = b.open("out_proj", "NonDynamicallyQuantizableLinear");
    b.parameter("weight", {s.hidden, s.hidden});
    b.parameter("bias", {s.hidden});
  }
  b.layer_norm("layernorm", s.hidden);
  const auto mlp = b.open("mlp", "SiglipMLP");
  b.leaf("activation_fn", activation_class(s.activation));
  b.linear("fc1", s.intermediate, s.hidden, true);
  b.linear("fc2", s.hidden, s.intermediate, true);
}

}  // namespace

void siglip_tower(Builder& b, const SiglipConfig& s, std::string_view name) {
  const auto tower = b.open(name, "SiglipVisionModel");
  {
    const int64_t side = s.image_size / s.patch_size;
    const auto embeddings = b.open("embeddings", "SiglipVisionEmbeddings");
    b.buffer("position_ids", {1, side * side}, StoredAs::kI64, false);
    {
      const auto patches = b.open("patch_embedding", "Conv2d");
      b.parameter("weight", {s.hidden, s.channels, s.patch_size, s.patch_size});
      b.parameter("bias", {s.hidden});
    }
    const auto positions = b.open("position_embedding", "Embedding");
    b.parameter("weight", {side * side, s.hidden});
  }
  {
    const auto encoder = b.open("encoder", "SiglipEncoder");
    const auto layers = b.open("layers", "ModuleList");
    for (int64_t i = 0; i < s.layers; ++i) encoder_layer(b, s, i);
  }
  b.layer_norm("post_layernorm", s.hidden);
  if (s.has_head) pooling_head(b, s);
}

}  // namespace berth::arch
