// arch/families/gemma4_towers.cc — see gemma4_towers.h.
#include "berth/arch/families/gemma4_towers.h"

#include <algorithm>
#include <array>
#include <string>

#include "berth/arch/families/tower_config.h"

namespace berth::arch {
namespace {

constexpr std::string_view kNorm = "Gemma4RMSNorm";

// A linear layer that may clip what enters and leaves it, by four learned bounds.
void clippable(Builder& b, std::string_view name, int64_t rows, int64_t cols, bool clips) {
  const auto scope = b.open(name, "Gemma4ClippableLinear");
  if (clips)
    for (const char* bound : {"input_min", "input_max", "output_min", "output_max"})
      b.buffer(bound, {}, StoredAs::kModelDtype, true);
  b.linear("linear", rows, cols, false);
}

void vision_layer(Builder& b, const TowerConfig& c, int64_t index) {
  const int64_t hidden = c.integer("hidden_size", 768), inner = c.integer("intermediate_size", 3072);
  const int64_t dim = c.integer("head_dim", 64), heads = c.integer("num_attention_heads", 12);
  const int64_t kv_heads = c.integer("num_key_value_heads", heads);
  const bool clips = c.boolean("use_clipped_linears", false);
  const auto layer = b.open(std::to_string(index), "Gemma4VisionEncoderLayer");
  {
    const auto self = b.open("self_attn", "Gemma4VisionAttention");
    clippable(b, "q_proj", heads * dim, hidden, clips);
    clippable(b, "k_proj", kv_heads * dim, hidden, clips);
    clippable(b, "v_proj", kv_heads * dim, hidden, clips);
    clippable(b, "o_proj", hidden, heads * dim, clips);
    b.rms_norm("q_norm", kNorm, dim);
    b.rms_norm("k_norm", kNorm, dim);
    b.leaf("v_norm", kNorm);
  }
  {
    const auto mlp = b.open("mlp", "Gemma4VisionMLP");
    clippable(b, "gate_proj", inner, hidden, clips);
    clippable(b, "up_proj", inner, hidden, clips);
    clippable(b, "down_proj", hidden, inner, clips);
    b.leaf("act_fn", activation_class(c.text("hidden_activation", "gelu_pytorch_tanh")));
  }
  for (const char* name :
       {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"})
    b.rms_norm(name, kNorm, hidden);
}

struct AudioWidths {
  int64_t hidden, heads, kernel;
  bool clips;
  std::string activation;
};

void audio_feed_forward(Builder& b, const AudioWidths& a, std::string_view name) {
  const auto scope = b.open(name, "Gemma4AudioFeedForward");
  clippable(b, "ffw_layer_1", 4 * a.hidden, a.hidden, a.clips);
  clippable(b, "ffw_layer_2", a.hidden, 4 * a.hidden, a.clips);
  b.rms_norm("pre_layer_norm", kNorm, a.hidden);
  b.rms_norm("post_layer_norm", kNorm, a.hidden);
  b.leaf("act_fn", activation_class(a.activation));
}

void audio_layer(Builder& b, const AudioWidths& a, int64_t index) {
  const auto layer = b.open(std::to_string(index), "Gemma4AudioLayer");
  audio_feed_forward(b, a, "feed_forward1");
  audio_feed_forward(b, a, "feed_forward2");
  {
    const auto self = b.open("self_attn", "Gemma4AudioAttention");
    b.parameter("per_dim_scale", {a.hidden / a.heads});
    b.buffer("softcap", {}, StoredAs::kModelDtype, false);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "post"}) clippable(b, name, a.hidden, a.hidden, a.clips);
    b.linear("relative_k_proj", a.hidden, a.hidden, false);
  }
  {
    const auto conv = b.open("lconv1d", "Gemma4AudioLightConv1d");
    clippable(b, "linear_start", 2 * a.hidden, a.hidden, a.clips);
    clippable(b, "linear_end", a.hidden, a.hidden, a.clips);
    {
      const auto depthwise = b.open("depthwise_conv1d", "Gemma4AudioCausalConv1d");
      b.parameter("weight", {a.hidden, 1, a.kernel});
    }
    b.rms_norm("pre_layer_norm", kNorm, a.hidden);
    b.rms_norm("conv_norm", kNorm, a.hidden);
    b.leaf("act_fn", activation_class(a.activation));
  }
  for (const char* name : {"norm_pre_attn", "norm_post_attn", "norm_out"}) b.rms_norm(name, kNorm, a.hidden);
}

// Two convolutions that halve time and frequency each; the class takes the first one's channels for the number of
// bands.
void audio_subsampling(Builder& b, const TowerConfig& c, int64_t hidden) {
  std::array<int64_t, 2> channels{128, 32};
  if (const auto listed = c.view().find_ints("subsampling_conv_channels", {1, 1 << 16});
      listed && *listed && (*listed)->size() == channels.size())
    std::copy((*listed)->begin(), (*listed)->end(), channels.begin());
  const auto scope = b.open("subsample_conv_projection", "Gemma4AudioSubSampleConvProjection");
  int64_t in = 1;
  for (size_t i = 0; i < channels.size(); ++i) {
    const auto layer = b.open("layer" + std::to_string(i), "Gemma4AudioSubSampleConvProjectionLayer");
    {
      const auto conv = b.open("conv", "Conv2d");
      b.parameter("weight", {channels[i], in, 3, 3});
    }
    {
      const auto norm = b.open("norm", "LayerNorm");
      b.parameter("weight", {channels[i]});
    }
    b.leaf("act", "ReLU");
    in = channels[i];
  }
  b.linear("input_proj_linear", hidden, channels[0] / 4 * channels[1], false);
}

void audio_tower(Builder& b, const TowerConfig& c) {
  const AudioWidths a{c.integer("hidden_size", 1024), std::max<int64_t>(1, c.integer("num_attention_heads", 8)),
                      c.integer("conv_kernel_size", 5), c.boolean("use_clipped_linears", true),
                      c.text("hidden_act", "silu")};
  const auto tower = b.open("audio_tower", "Gemma4AudioModel");
  audio_subsampling(b, c, a.hidden);
  {
    const auto positions = b.open("rel_pos_enc", "Gemma4AudioRelPositionalEncoding");
    b.buffer("inv_timescales", {1, 1, a.hidden / 2}, StoredAs::kModelDtype, false);
  }
  {
    const auto layers = b.open("layers", "ModuleList");
    for (int64_t i = 0; i < c.layers("num_hidden_layers", 12); ++i) audio_layer(b, a, i);
  }
  b.linear("output_proj", c.integer("output_proj_dims", 1536), a.hidden, true);
}

void embedder(Builder& b, std::string_view name, int64_t text, int64_t width) {
  const auto scope = b.open(name, "Gemma4MultimodalEmbedder");
  b.linear("embedding_projection", text, width, false);
  b.leaf("embedding_pre_projection_norm", kNorm);
}

}  // namespace

void gemma4_vision_tower(Builder& b, const Decoder& d) {
  const TowerConfig c(d.config, "vision_config");
  if (!c.present()) return;
  const int64_t hidden = c.integer("hidden_size", 768), patch = c.integer("patch_size", 16);
  const auto tower = b.open("vision_tower", "Gemma4VisionModel");
  if (c.boolean("standardize", false))
    for (const char* name : {"std_bias", "std_scale"}) b.buffer(name, {hidden}, StoredAs::kModelDtype, true);
  {
    const auto patches = b.open("patch_embedder", "Gemma4VisionPatchEmbedder");
    b.parameter("position_embedding_table", {2, c.integer("position_embedding_size", 10240), hidden});
    b.linear("input_proj", hidden, 3 * patch * patch, false);
  }
  {
    const auto encoder = b.open("encoder", "Gemma4VisionEncoder");
    {
      const auto rotary = b.open("rotary_emb", "Gemma4VisionRotaryEmbedding");
      for (const char* name : {"inv_freq", "original_inv_freq"})
        b.buffer(name, {c.integer("head_dim", 64) / 4}, StoredAs::kF32, false);
    }
    const auto layers = b.open("layers", "ModuleList");
    for (int64_t i = 0; i < c.layers("num_hidden_layers", 16); ++i) vision_layer(b, c, i);
  }
  b.leaf("pooler", "Gemma4VisionPooler");
}

void gemma4_audio_and_embedders(Builder& b, const Decoder& d) {
  const TowerConfig vision(d.config, "vision_config"), audio(d.config, "audio_config");
  if (audio.present()) audio_tower(b, audio);
  if (vision.present()) embedder(b, "embed_vision", d.spec.hidden, vision.integer("hidden_size", 768));
  if (audio.present()) embedder(b, "embed_audio", d.spec.hidden, audio.integer("output_proj_dims", 1536));
}

}  // namespace berth::arch
