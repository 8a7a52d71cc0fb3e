// arch/families/qwen_next.cc — Qwen3-Next and Qwen3.5-MoE: three gated delta nets to one gated attention, every layer
// with experts and a shared one. Norms are stored as offset from one, but the delta net's own. 3.5 comes in a wrapper
// with a vision tower, its experts fused on disk and its delta net's projections apart.
#include <algorithm>
#include <array>

#include "berth/arch/families/moe.h"
#include "berth/arch/families/qwen_sparse.h"
#include "berth/arch/families/tower_config.h"
#include "berth/arch/rope.h"
#include "berth/base/strings.h"

namespace berth::arch {
namespace {

void read_delta_net(ConfigReader& config, Decoder& d, double eps, bool fused) {
  const int64_t every = config.integer("full_attention_interval", 4, {1, INT32_MAX});
  const auto kinds = read_layer_kinds(config, static_cast<int64_t>(d.spec.layers.size()), [every](int64_t i) {
    return (i + 1) % every == 0 ? AttentionKind::kFull : AttentionKind::kDeltaNet;
  });
  const int64_t key_heads = config.integer("linear_num_key_heads", 16, kHeadRange);
  const int64_t value_heads = config.integer("linear_num_value_heads", 32, kHeadRange);
  if (value_heads % key_heads != 0) config.fail("linear_num_value_heads", "a multiple of linear_num_key_heads");
  const int64_t key_dim = config.integer("linear_key_head_dim", 128, kHeadRange);
  const int64_t value_dim = config.integer("linear_value_head_dim", 128, kHeadRange);
  const int64_t kernel = config.integer("linear_conv_kernel_dim", 4, {1, 1024});
  // Its convolution is followed by the MLP's activation.
  if (d.spec.layers[0].mlp.activation != Activation::kSilu &&
      std::find(kinds.begin(), kinds.end(), AttentionKind::kDeltaNet) != kinds.end())
    d.spec.unsupported = "a delta net with the activation " + quoted(d.activation);
  for (size_t i = 0; i < kinds.size(); ++i) {
    AttentionSpec& a = d.spec.layers[i].attention;
    a.kind = kinds[i];
    if (a.kind != AttentionKind::kDeltaNet) {
      a.kind = AttentionKind::kFull;
      a.output_gate = true;
      a.qk_norm = QkNorm::kPerHead;
      a.q_norm = a.k_norm = rms_norm(eps);
      continue;
    }
    a.rope = -1;
    a.scale = 1;
    a.linear_key_heads = static_cast<int32_t>(key_heads);
    a.linear_value_heads = static_cast<int32_t>(value_heads);
    a.linear_key_dim = static_cast<int32_t>(key_dim);
    a.linear_value_dim = static_cast<int32_t>(value_dim);
    a.conv_kernel = static_cast<int32_t>(kernel);
    a.linear_fused = fused;
    a.linear_norm_eps = eps;
  }
}

void read_common(ConfigReader& config, Decoder& d, const TextDefaults& defaults, bool fused) {
  const TextConfig text = read_decoder(config, d, defaults);
  d.spec.ropes = {read_rope(config, {.part = 0.25}, text.head_dim, text.max_position)};
  const bool bias = config.boolean("attention_bias", false);
  read_delta_net(config, d, text.eps, fused);
  for (LayerSpec& layer : d.spec.layers)
    if (layer.attention.kind == AttentionKind::kFull) layer.attention.qkv_bias = layer.attention.output_bias = bias;
}

void read_next(ConfigReader& config, Decoder& d) {
  read_common(config, d,
              {.vocab = 151936,
               .hidden = 2048,
               .intermediate = 5632,
               .layers = 48,
               .heads = 16,
               .kv_heads = 2,
               .head_dim = 256,
               .max_position = 32768},
              true);
  read_qwen_experts(config, d,
                    {.experts = 512, .chosen = 10, .intermediate = 512, .shared = 512, .renormalizes = true});
}

void read_qwen35(ConfigReader& config, Decoder& d) {
  read_common(config, d,
              {.vocab = 248320,
               .hidden = 2048,
               .intermediate = 5632,
               .layers = 40,
               .heads = 16,
               .kv_heads = 2,
               .head_dim = 256,
               .max_position = 32768},
              false);
  read_qwen_experts(config, d,
                    {.experts = 256, .chosen = 8, .intermediate = 512, .shared = 512, .always_renormalizes = true});
}

// Channel order q | k | v; with `fused`, groups by key head of the two wide projections.
void delta_net(Builder& b, const Decoder& d, const AttentionSpec& a, const std::string& prefix) {
  const auto scope = b.open("linear_attn", prefix + "GatedDeltaNet");
  const Dim keys{int64_t{a.linear_key_heads} * a.linear_key_dim, "linear_num_key_heads x linear_key_head_dim"};
  const Dim values{int64_t{a.linear_value_heads} * a.linear_value_dim,
                   "linear_num_value_heads x linear_value_head_dim"};
  const Dim heads{a.linear_value_heads, "linear_num_value_heads"};
  const Dim channels{2 * keys.value + values.value, "2 x keys + values of the delta net"};
  b.vector("dt_bias", heads, Role::kDeltaDtBias);
  b.vector("A_log", heads, Role::kDeltaALog);
  {
    const auto conv = b.open("conv1d", "Conv1d");
    const Shape shape{channels.value, 1, a.conv_kernel};
    b.parameter("weight", shape);
    const Dim kernel{a.conv_kernel, "linear_conv_kernel_dim"};
    if (WantedTensor* w = b.want(Role::kDeltaConv, TensorKind::kVector, "weight", channels, kernel))
      w->forms = {{{{w->spec.name, shape}}, {}}};
  }
  const auto gated_norm = [&] {
    NormSpec norm = rms_norm(a.linear_norm_eps);
    b.norm("norm", prefix + "RMSNormGated", {a.linear_value_dim, "linear_value_head_dim"}, norm, Role::kDeltaNorm,
           Role::kDeltaNorm);
  };
  const auto out = [&] { b.linear("out_proj", d.hidden(), values, Role::kO); };
  if (a.linear_fused) {
    b.linear("in_proj_qkvz", {channels.value + values.value, "2 x keys + 2 x values of the delta net"}, d.hidden(),
             Role::kDeltaQkvz);
    b.linear("in_proj_ba", {2 * heads.value, "2 x linear_num_value_heads"}, d.hidden(), Role::kDeltaBa);
    gated_norm();
    out();
    return;
  }
  gated_norm();
  out();
  b.linear("in_proj_qkv", channels, d.hidden(), Role::kDeltaQkv);
  b.linear("in_proj_z", values, d.hidden(), Role::kDeltaZ);
  b.linear("in_proj_b", heads, d.hidden(), Role::kDeltaB);
  b.linear("in_proj_a", heads, d.hidden(), Role::kDeltaA);
}

DecoderParts parts_of(const std::string& prefix, const ExpertNames& names) {
  DecoderParts parts{.prefix = prefix, .add_one = true};
  parts.attention = [prefix](Builder& b, const Decoder& d, const LayerSpec& layer) {
    if (layer.attention.kind == AttentionKind::kDeltaNet) return delta_net(b, d, layer.attention, prefix);
    split_attention(b, d, layer, prefix + "Attention", prefix + "RMSNorm", true);
  };
  parts.mlp = [prefix, names](Builder& b, const Decoder& d, const LayerSpec& layer) {
    qwen_mlp(b, d, layer, prefix, names);
  };
  return parts;
}

void build_next(const Decoder& d, Builder& b) { causal_lm(b, d, parts_of("Qwen3Next", {})); }

DecoderParts qwen35_parts() {
  DecoderParts parts = parts_of("Qwen3_5Moe", {.fused_first = true});
  parts.model_class = "Qwen3_5MoeTextModel";
  parts.rotary_class = "Qwen3_5MoeTextRotaryEmbedding";
  return parts;
}

void build_qwen35_text(const Decoder& d, Builder& b) { causal_lm(b, d, qwen35_parts()); }

void vision_block(Builder& b, int64_t index, int64_t hidden, int64_t inner, std::string_view activation) {
  const auto block = b.open(std::to_string(index), "Qwen3_5MoeVisionBlock");
  b.layer_norm("norm1", hidden);
  b.layer_norm("norm2", hidden);
  {
    const auto attention = b.open("attn", "Qwen3_5MoeVisionAttention");
    b.linear("qkv", 3 * hidden, hidden, true);
    b.linear("proj", hidden, hidden, true);
  }
  const auto mlp = b.open("mlp", "Qwen3_5MoeVisionMLP");
  b.linear("linear_fc1", inner, hidden, true);
  b.linear("linear_fc2", hidden, inner, true);
  b.leaf("act_fn", activation_class(activation));
}

void vision_tower(const Decoder& d, Builder& b) {
  const TowerConfig config(d.config, "vision_config");
  const int64_t hidden = config.integer("hidden_size", 1152), inner = config.integer("intermediate_size", 4304);
  const int64_t heads = std::max<int64_t>(1, config.integer("num_heads", 16));
  const int64_t patch = config.integer("patch_size", 16), temporal = config.integer("temporal_patch_size", 2);
  const int64_t merge = config.integer("spatial_merge_size", 2);
  const auto tower = b.open("visual", "Qwen3_5MoeVisionModel");
  {
    const auto embed = b.open("patch_embed", "Qwen3_5MoeVisionPatchEmbed");
    const auto conv = b.open("proj", "Conv3d");
    b.parameter("weight", {hidden, config.integer("in_channels", 3), temporal, patch, patch});
    b.parameter("bias", {hidden});
  }
  {
    const auto positions = b.open("pos_embed", "Embedding");
    b.parameter("weight", {config.integer("num_position_embeddings", 2304), hidden});
  }
  {
    const auto rotary = b.open("rotary_pos_emb", "Qwen3_5MoeVisionRotaryEmbedding");
    for (const char* name : {"inv_freq", "original_inv_freq"})
      b.buffer(name, {hidden / heads / 4}, StoredAs::kF32, false);
  }
  {
    const auto blocks = b.open("blocks", "ModuleList");
    const std::string activation = config.text("hidden_act", "gelu_pytorch_tanh");
    for (int64_t i = 0; i < config.layers("depth", 27); ++i) vision_block(b, i, hidden, inner, activation);
  }
  const auto merger = b.open("merger", "Qwen3_5MoeVisionPatchMerger");
  const int64_t merged = hidden * merge * merge;
  b.layer_norm("norm", hidden);
  b.linear("linear_fc1", merged, merged, true);
  b.leaf("act_fn", "GELU");
  b.linear("linear_fc2", config.integer("out_hidden_size", d.spec.hidden), merged, true);
}

void build_qwen35(const Decoder& d, Builder& b) {
  if (d.architecture == "Qwen3_5MoeForCausalLM") return build_qwen35_text(d, b);
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"Qwen3_5MoeDecoderLayer", "Qwen3_5MoeVisionBlock"};
  {
    const auto model = b.open("model", "Qwen3_5MoeModel");
    vision_tower(d, b);
    const auto language = b.open("language_model", "Qwen3_5MoeTextModel");
    text_model(b, d, qwen35_parts());
  }
  head(b, d, "lm_head", "model.language_model.embed_tokens.weight");
}

constexpr std::array<std::string_view, 1> kNextClass{"Qwen3NextForCausalLM"}, kTextClass{"Qwen3_5MoeForCausalLM"};
constexpr std::array<std::string_view, 2> kWrapperClasses{"Qwen3_5MoeForConditionalGeneration",
                                                          "Qwen3_5MoeForCausalLM"};
constexpr std::array<Family, 3> kFamilies{{
    {"qwen3_next", "", kNextClass, read_next, build_next},
    {"qwen3_5_moe_text", "", kTextClass, read_qwen35, build_qwen35_text},
    {"qwen3_5_moe", "text_config", kWrapperClasses, read_qwen35, build_qwen35},
}};

}  // namespace

std::span<const Family> qwen_next_families() { return kFamilies; }

}  // namespace berth::arch
