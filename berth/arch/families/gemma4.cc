// arch/families/gemma4.cc — Gemma 4: wider heads on full layers, proportional rope there, per-layer embeddings, keys
// and values shared by the last layers, values made of keys, experts beside the dense MLP. Norms are stored as they
// are. Published in a wrapper with vision and audio towers (gemma4_towers.h).
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "berth/arch/families/gemma4_towers.h"
#include "berth/arch/families/gemma_shared.h"
#include "berth/arch/families/moe.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

constexpr std::string_view kNorm = "Gemma4RMSNorm";

// Head widths and KV heads by layer: `per_layer_config` (re-saved files) or the two global_* keys (published ones).
struct LayerWidths {
  int64_t head_dim = 0, kv_heads = 0;
};
std::vector<LayerWidths> read_layer_widths(ConfigReader& config, const TextConfig& text,
                                           const std::vector<AttentionKind>& kinds) {
  std::vector<LayerWidths> widths(kinds.size(), {text.head_dim, text.kv_heads});
  const bool overrides = config.has("per_layer_config");
  const ConfigReader by_layer = config.nested("per_layer_config");
  config.fail_if(by_layer.status());
  const int64_t global_dim = config.integer("global_head_dim", overrides ? text.head_dim : 512, kHeadRange);
  const bool k_eq_v = config.boolean("attention_k_eq_v", false);
  const int64_t global_kv = config.integer("num_global_key_value_heads", text.kv_heads, kHeadRange);
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == AttentionKind::kFull) {
      widths[i].head_dim = global_dim;
      if (k_eq_v) widths[i].kv_heads = global_kv;
    }
    ConfigReader own = by_layer.nested(std::to_string(i));
    widths[i].head_dim = own.integer("head_dim", widths[i].head_dim, kHeadRange);
    widths[i].kv_heads = own.integer("num_key_value_heads", widths[i].kv_heads, kHeadRange);
    config.fail_if(own.status());
    if (text.heads % widths[i].kv_heads != 0) {
      config.fail("num_global_key_value_heads", "a divisor of num_attention_heads");
      widths[i].kv_heads = text.heads;
    }
  }
  return widths;
}

void set_experts(Decoder& d, MoeSpec moe) {
  moe.renormalize = true;
  moe.gemma4_router = true;
  moe.parallel_dense = true;
  for (LayerSpec& layer : d.spec.layers) layer.mlp.moe = moe;
}

void read_experts(ConfigReader& config, Decoder& d) {
  if (!config.boolean("enable_moe_block", false)) return;
  MoeSpec moe;
  moe.experts = static_cast<int32_t>(config.integer("num_experts", std::nullopt, kExpertRange));
  moe.experts_per_token =
      static_cast<int32_t>(config.integer({"top_k_experts", "num_experts_per_tok"}, std::nullopt, {1, moe.experts}));
  moe.intermediate = static_cast<int32_t>(
      config.integer({"moe_intermediate_size", "expert_intermediate_size"}, std::nullopt, kWidthRange));
  set_experts(d, moe);
}

// What every file of this model has, whatever it says.
void set_layers(Decoder& d, double eps, const std::vector<AttentionKind>& kinds,
                const std::vector<LayerWidths>& widths) {
  for (size_t i = 0; i < kinds.size(); ++i) {
    LayerSpec& layer = d.spec.layers[i];
    AttentionSpec& a = layer.attention;
    a.head_dim = a.v_head_dim = static_cast<int32_t>(widths[i].head_dim);
    a.kv_heads = static_cast<int32_t>(widths[i].kv_heads);
    a.scale = 1;
    a.rope = kinds[i] == AttentionKind::kFull ? 0 : 1;
    a.qk_norm = QkNorm::kPerHead;
    a.q_norm = a.k_norm = a.v_norm = rms_norm(eps);
    a.v_norm.has_weight = false;
    layer.attention_out_norm = layer.mlp_out_norm = rms_norm(eps);
    layer.layer_scalar = true;
  }
}

void read_gemma4(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 262144,
                              .hidden = 2304,
                              .intermediate = 9216,
                              .layers = 30,
                              .heads = 8,
                              .kv_heads = 4,
                              .head_dim = 256,
                              .max_position = 131072,
                              .tied = true,
                              .activation = "gelu_pytorch_tanh"};
  TextKeys keys;
  keys.activation = "hidden_activation";
  const TextConfig text = read_decoder(config, d, defaults, keys);
  d.spec.embedding_scale = std::sqrt(static_cast<double>(text.hidden));
  d.spec.final_softcap = config.number("final_logit_softcapping", 0, {0, 1e9, false});
  auto kinds = read_layer_kinds(
      config, text.layers, [](int64_t i) { return (i + 1) % 6 == 0 ? AttentionKind::kFull : AttentionKind::kSliding; });
  kinds.back() = AttentionKind::kFull;
  set_windows(d.spec, kinds, read_window(config, 512));
  const std::vector<LayerWidths> widths = read_layer_widths(config, text, kinds);
  const bool k_eq_v = config.boolean("attention_k_eq_v", false), bias = config.boolean("attention_bias", false);
  int64_t full_dim = 512, sliding_dim = text.head_dim;
  set_layers(d, text.eps, kinds, widths);
  for (size_t i = 0; i < kinds.size(); ++i) {
    const bool full = kinds[i] == AttentionKind::kFull;
    AttentionSpec& a = d.spec.layers[i].attention;
    a.v_from_k = full && k_eq_v;
    a.qkv_bias = a.output_bias = bias;
    (full ? full_dim : sliding_dim) = widths[i].head_dim;
  }
  read_kv_sharing(config, d, kinds, 0);
  if (config.boolean("use_double_wide_mlp", false))
    for (LayerSpec& layer : d.spec.layers)
      if (layer.attention.kv_source_layer >= 0) layer.mlp.intermediate *= 2;
  read_experts(config, d);
  read_per_layer_embedding(config, d, text.eps, 262144);
  for (LayerSpec& layer : d.spec.layers) layer.per_layer_embedding = d.spec.per_layer_embedding.dim > 0;
  if (config.text("use_bidirectional_attention", "") == "all")
    d.spec.unsupported = "bidirectional attention (an encoder, not a model that generates)";
  d.spec.ropes = {read_rope(config, {.theta = 1e6}, full_dim, text.max_position, "full_attention"),
                  read_rope(config, {.theta = 1e4}, sliding_dim, text.max_position, "sliding_attention")};
  if (!config.has("rope_parameters")) {
    d.spec.ropes[0].scaling = RopeScaling::kProportional;
    d.spec.ropes[0].partial_rotary_factor = 0.25;
  }
  d.rope_names = {"full_attention", "sliding_attention"};
}

void attention(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  b.buffer("layer_scalar", {1}, StoredAs::kModelDtype, true);
  b.want(Role::kLayerScalar, TensorKind::kVector, "layer_scalar", {1, ""}, {1, "1"});
  const auto scope = b.open("self_attn", "Gemma4TextAttention");
  const Dim head{a.head_dim, "head_dim (or global_head_dim)"};
  b.linear("q_proj", query_dim(d, a), d.hidden(), a.qkv_bias, Role::kQ, Role::kQBias);
  b.norm("q_norm", kNorm, head, a.q_norm, Role::kQNorm, Role::kQNormBias);
  if (a.kv_source_layer < 0) {
    b.norm("k_norm", kNorm, head, a.k_norm, Role::kKNorm, Role::kKNormBias);
    b.leaf("v_norm", kNorm);
    b.linear("k_proj", key_dim(d, a), d.hidden(), a.qkv_bias, Role::kK, Role::kKBias);
    if (!a.v_from_k) b.linear("v_proj", value_dim(d, a), d.hidden(), a.qkv_bias, Role::kV, Role::kVBias);
  }
  b.linear("o_proj", d.hidden(), query_dim(d, a), a.output_bias, Role::kO, Role::kOBias);
}

void sparse_part(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const MoeSpec& moe = *layer.mlp.moe;
  {
    const Dim experts{moe.experts, "num_experts"};
    const auto router = b.open("router", "Gemma4TextRouter");
    b.vector("scale", d.hidden(), Role::kRouterScale);
    b.vector("per_expert_scale", experts, Role::kRouterExpertScale);
    b.leaf("norm", kNorm);
    b.linear("proj", experts, d.hidden(), Role::kRouter);
  }
  experts_module(b, d, moe, "experts", "Gemma4TextExperts", {.block = "experts", .fused_first = true}, d.activation);
  const NormSpec& norm = layer.mlp_norm;
  b.norm("post_feedforward_layernorm_1", kNorm, d.hidden(), norm, Role::kMoeDenseOutNorm, Role::kMoeDenseOutNorm);
  b.norm("post_feedforward_layernorm_2", kNorm, d.hidden(), norm, Role::kMoeOutNorm, Role::kMoeOutNorm);
  b.norm("pre_feedforward_layernorm_2", kNorm, d.hidden(), norm, Role::kMoeInputNorm, Role::kMoeInputNorm);
}

void layer_end(Builder& b, const Decoder& d, const LayerSpec& layer) {
  if (layer.per_layer_embedding) {
    b.leaf("act_fn", activation_class(d.activation));
    layer_per_layer_embedding(b, d, kNorm);
  }
  if (layer.mlp.moe) sparse_part(b, d, layer);
}

void gemma4_text_model(const Decoder& d, Builder& b) {
  DecoderParts parts{
      .prefix = "Gemma4Text", .norm_class = std::string(kNorm), .embedding_class = "Gemma4TextScaledWordEmbedding"};
  parts.attention = attention;
  parts.layer_end = layer_end;
  text_model(b, d, parts);
  if (d.spec.per_layer_embedding.dim > 0) per_layer_embedding_tables(b, d, parts.embedding_class, kNorm);
}

const std::vector<std::string> kNoSplit{"Gemma4TextDecoderLayer", "Gemma4VisionEncoderLayer",
                                        "Gemma4VisionPatchEmbedder", "Gemma4AudioLayer"};

void build_gemma4_text(const Decoder& d, Builder& b) {
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = kNoSplit;
  {
    const auto model = b.open("model", "Gemma4TextModel");
    gemma4_text_model(d, b);
  }
  head(b, d, "lm_head", "model.embed_tokens.weight");
}

void build_gemma4(const Decoder& d, Builder& b) {
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = kNoSplit;
  {
    const auto model = b.open("model", "Gemma4Model");
    gemma4_vision_tower(b, d);
    {
      const auto language = b.open("language_model", "Gemma4TextModel");
      gemma4_text_model(d, b);
    }
    gemma4_audio_and_embedders(b, d);
  }
  head(b, d, "lm_head", "model.language_model.embed_tokens.weight");
}

// GGUF: attention.key_length is the heads' width on full layers, key_length_swa on the others; rope_freqs.weight (for
// full layers alone) stops the pairs that do not turn.
void read_gguf_gemma4(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "gelu_pytorch_tanh", 1e6);
  const size_t layers = d.spec.layers.size();
  d.spec.embedding_scale = std::sqrt(static_cast<double>(text.hidden));
  d.spec.final_softcap = gguf.number("final_logit_softcapping", 0, {0, 1e9, false});
  const auto kinds = set_gguf_windows(
      gguf, d.spec, [](int64_t i) { return (i + 1) % 6 == 0 ? AttentionKind::kFull : AttentionKind::kSliding; }, 512);
  const int64_t sliding_dim = gguf.integer("attention.key_length_swa", text.head_dim, kHeadRange);
  const auto kv_heads = gguf.per_layer("attention.head_count_kv", layers, kHeadRange);
  std::vector<LayerWidths> widths(layers, {text.head_dim, text.kv_heads});
  for (size_t i = 0; i < layers; ++i) {
    if (kinds[i] != AttentionKind::kFull) widths[i].head_dim = sliding_dim;
    if (i < kv_heads.size()) widths[i].kv_heads = kv_heads[i];
    if (text.heads % widths[i].kv_heads == 0) continue;
    gguf.fail_key("attention.head_count_kv", "divisors of attention.head_count");
    widths[i].kv_heads = text.heads;
  }
  set_layers(d, text.eps, kinds, widths);
  const auto most = static_cast<int64_t>(layers) - 1;
  if (!share_kv(d.spec, kinds, gguf.integer("attention.shared_kv_layers", 0, {0, most})))
    gguf.fail_key("attention.shared_kv_layers", "a number that leaves a layer of every kind with keys of its own");
  const auto inner = gguf.per_layer("feed_forward_length", layers, kWidthRange);
  for (size_t i = 0; i < layers; ++i) {
    LayerSpec& layer = d.spec.layers[i];
    if (i < inner.size()) layer.mlp.intermediate = static_cast<int32_t>(inner[i]);
    layer.attention.v_from_k =
        layer.attention.kv_source_layer < 0 && !gguf.has_tensor("blk." + std::to_string(i) + ".attn_v.weight");
  }
  if (gguf.has("expert_count") && gguf_layer_is_sparse(gguf, 0))
    set_experts(d, read_gguf_experts(gguf, RouterKind::kSoftmaxThenTopK, true));
  const auto table = gguf.tensor_shape("per_layer_token_embd.weight");
  set_per_layer_embedding(d.spec, gguf.integer("embedding_length_per_layer_input", 0, {0, kWidthRange.max}),
                          table && !table->empty() ? table->front() : text.vocab, text.eps);
  for (LayerSpec& layer : d.spec.layers) layer.per_layer_embedding = d.spec.per_layer_embedding.dim > 0;
  RopeSpec sliding = plain_rope(sliding_dim, gguf.number("rope.freq_base_swa", 1e4), text.max_position);
  sliding.rotary_dim = static_cast<int32_t>(
      gguf.integer("rope.dimension_count_swa", sliding_dim, {2, std::max<int64_t>(2, sliding_dim)}));
  d.spec.ropes.push_back(sliding);
  d.rope_names = {"full_attention", "sliding_attention"};
}

constexpr std::array<std::string_view, 1> kGguf{"gemma4"};
constexpr std::array<std::string_view, 1> kTextClass{"Gemma4ForCausalLM"}, kClass{"Gemma4ForConditionalGeneration"};
constexpr std::array<Family, 2> kFamilies{{
    {"gemma4_text", "", kTextClass, read_gemma4, build_gemma4_text, kGguf, read_gguf_gemma4},
    {"gemma4", "text_config", kClass, read_gemma4, build_gemma4},
}};

}  // namespace

std::span<const Family> gemma4_families() { return kFamilies; }

}  // namespace berth::arch
