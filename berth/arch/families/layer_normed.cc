// arch/families/layer_normed.cc — Llama's layout with other norms: StableLM (LayerNorm, a quarter of the head turns),
// OLMo 2 (norms after each half only), Cohere 2 (attention and MLP in parallel, rope on sliding layers only).
#include <array>

#include "berth/arch/decoder_parts.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

// --- StableLM

void set_stablelm_layers(Decoder& d, double eps, bool parallel, bool head_norms) {
  d.spec.final_norm = layer_norm(eps);
  for (LayerSpec& layer : d.spec.layers) {
    layer.input_norm = layer_norm(eps);
    layer.mlp_norm = parallel ? NormSpec{} : layer_norm(eps);
    layer.parallel = parallel;
    if (parallel) layer.parallel_order = LayerSpec::ParallelOrder::kHAttnThenMlp;
    if (!head_norms) continue;
    layer.attention.qk_norm = QkNorm::kPerHead;
    layer.attention.qk_norm_own_weights = true;
    layer.attention.q_norm = layer.attention.k_norm = layer_norm(eps, false);
  }
}

void read_stablelm(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 50304,
                              .hidden = 2560,
                              .intermediate = 6912,
                              .layers = 32,
                              .heads = 32,
                              .kv_heads = 32,
                              .max_position = 4096,
                              .eps = 1e-5};
  TextKeys keys;
  keys.eps = "layer_norm_eps";
  const TextConfig text = read_decoder(config, d, defaults, keys);
  d.spec.ropes = {read_rope(config, {.part = 0.25}, text.head_dim, text.max_position)};
  const bool bias = config.boolean("use_qkv_bias", false), head_norms = config.boolean("qk_layernorm", false);
  set_stablelm_layers(d, text.eps, config.boolean("use_parallel_residual", false), head_norms);
  for (LayerSpec& layer : d.spec.layers) layer.attention.qkv_bias = bias;
}

// One LayerNorm without bias for every head; the engine has them as one [heads, head_dim] tensor.
void norms_per_head(Builder& b, const Decoder& d, std::string_view name, int64_t heads, const Dim& width, Role role) {
  const auto scope = b.open(name, "StableLmLayerNormPerHead");
  const auto list = b.open("norms", "ModuleList");
  WantedForm form;
  for (int64_t h = 0; h < heads; ++h) {
    const auto norm = b.open(std::to_string(h), "LayerNorm");
    b.parameter("weight", {width.value});
    form.sources.push_back({b.path("weight"), {width.value}});
  }
  if (WantedTensor* w = b.want(role, TensorKind::kVector, "weight", {heads, std::string(d.keys.heads)}, width))
    w->forms = {std::move(form)};
}

void stablelm_attention(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  const auto scope = b.open("self_attn", "StableLmAttention");
  attention_projections(b, d, a);
  if (!a.qk_norm_own_weights) return;
  const Dim width{a.head_dim, std::string(d.keys.head_dim)};
  norms_per_head(b, d, "q_layernorm", a.heads, width, Role::kQNorm);
  norms_per_head(b, d, "k_layernorm", a.kv_heads, width, Role::kKNorm);
}

void build_stablelm(const Decoder& d, Builder& b) {
  DecoderParts parts{.prefix = "StableLm", .norm_class = "LayerNorm"};
  parts.attention = stablelm_attention;
  parts.layer_end = [](Builder& builder, const Decoder&, const LayerSpec&) { builder.leaf("dropout", "Dropout"); };
  causal_lm(b, d, parts);
}

// --- OLMo 2

void set_olmo2_layers(Decoder& d, double eps) {
  for (LayerSpec& layer : d.spec.layers) {
    layer.input_norm = layer.mlp_norm = {};
    layer.attention_out_norm = layer.mlp_out_norm = rms_norm(eps);
    layer.attention.qk_norm = QkNorm::kAllHeads;
    layer.attention.q_norm = layer.attention.k_norm = rms_norm(eps);
  }
}

void read_olmo2(ConfigReader& config, Decoder& d) {
  const TextConfig text = read_decoder(config, d, {.vocab = 50304, .max_position = 2048, .eps = 1e-5});
  d.spec.ropes = {read_rope(config, {}, text.head_dim, text.max_position)};
  const bool bias = config.boolean("attention_bias", false);
  set_olmo2_layers(d, text.eps);
  for (LayerSpec& layer : d.spec.layers) layer.attention.qkv_bias = layer.attention.output_bias = bias;
}

void build_olmo2(const Decoder& d, Builder& b) { causal_lm(b, d, {.prefix = "Olmo2"}); }

// --- Cohere 2

void set_cohere2_layers(Decoder& d, double eps, const std::vector<AttentionKind>& kinds) {
  d.spec.final_norm = layer_norm(eps, false);
  for (size_t i = 0; i < d.spec.layers.size(); ++i) {
    LayerSpec& layer = d.spec.layers[i];
    layer.attention.rope = kinds[i] == AttentionKind::kSliding ? 0 : -1;
    layer.parallel = true;
    layer.parallel_order = LayerSpec::ParallelOrder::kHAttnThenMlp;
    layer.input_norm = layer_norm(eps, false);
    layer.mlp_norm = {};
  }
}

void read_cohere2(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 256000,
                              .hidden = 8192,
                              .intermediate = 22528,
                              .layers = 40,
                              .heads = 64,
                              .max_position = 8192,
                              .eps = 1e-5,
                              .tied = true};
  TextKeys keys;
  keys.eps = "layer_norm_eps";
  const TextConfig text = read_decoder(config, d, defaults, keys);
  d.spec.ropes = {read_rope(config, {.layout = RopeLayout::kPairs}, text.head_dim, text.max_position)};
  const int64_t every = config.integer({"sliding_window_pattern", "_sliding_window_pattern"}, 4, {1, INT32_MAX});
  const auto kinds = read_layer_kinds(config, text.layers, [every](int64_t i) {
    return (i + 1) % every == 0 ? AttentionKind::kFull : AttentionKind::kSliding;
  });
  set_windows(d.spec, kinds, read_window(config, 4096));
  d.spec.logits_multiplier = config.number("logit_scale", 0.0625);
  const bool bias = config.boolean("attention_bias", false);
  set_cohere2_layers(d, text.eps, kinds);
  for (LayerSpec& layer : d.spec.layers) layer.attention.qkv_bias = layer.attention.output_bias = bias;
}

void build_cohere2(const Decoder& d, Builder& b) {
  causal_lm(b, d, {.prefix = "Cohere2", .norm_class = "Cohere2LayerNorm"});
}

// --- GGUF

void read_gguf_stablelm(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 10000);
  // The metadata's word on it is not what counts: without the second norm both halves read the first.
  set_stablelm_layers(d, text.eps, !gguf.has_tensor("blk.0.ffn_norm.weight"),
                      gguf.has_tensor("blk.0.attn_q_norm.weight"));
}

void read_gguf_olmo2(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 10000);
  set_olmo2_layers(d, text.eps);
  if (gguf.has("attention.sliding_window")) d.spec.unsupported = "OLMo 3 (windows, and another rope on their layers)";
}

void read_gguf_cohere2(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 10000);
  d.spec.ropes.front().layout = RopeLayout::kPairs;
  const auto kinds = set_gguf_windows(
      gguf, d.spec, [](int64_t i) { return (i + 1) % 4 == 0 ? AttentionKind::kFull : AttentionKind::kSliding; }, 4096);
  d.spec.logits_multiplier = gguf.number("logit_scale", 0.0625);
  set_cohere2_layers(d, text.eps, kinds);
}

constexpr std::array<std::string_view, 1> kStableLmGguf{"stablelm"}, kOlmo2Gguf{"olmo2"}, kCohere2Gguf{"cohere2"};
constexpr std::array<std::string_view, 1> kStableLmClass{"StableLmForCausalLM"}, kOlmo2Class{"Olmo2ForCausalLM"},
    kCohere2Class{"Cohere2ForCausalLM"};
constexpr std::array<Family, 3> kFamilies{{
    {"stablelm", "", kStableLmClass, read_stablelm, build_stablelm, kStableLmGguf, read_gguf_stablelm},
    {"olmo2", "", kOlmo2Class, read_olmo2, build_olmo2, kOlmo2Gguf, read_gguf_olmo2},
    {"cohere2", "", kCohere2Class, read_cohere2, build_cohere2, kCohere2Gguf, read_gguf_cohere2},
}};

}  // namespace

std::span<const Family> layer_normed_families() { return kFamilies; }

}  // namespace berth::arch
