// arch/families/gemma.cc — Gemma 1, 2 and 3: norms stored as offset from one, scaled embeddings, from Gemma 2 on norms
// on both sides of each half and alternating windows. Gemma 3's published wrapper carries a SigLIP vision tower.
#include <array>
#include <cmath>

#include "berth/arch/decoder_parts.h"
#include "berth/arch/families/family.h"
#include "berth/arch/families/siglip.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

void scale_embedding(ModelSpec& spec) { spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden)); }

void set_biases(Decoder& d, bool attention) {
  for (LayerSpec& layer : d.spec.layers) layer.attention.qkv_bias = layer.attention.output_bias = attention;
}

void set_four_norms(ModelSpec& spec, double eps) {
  for (LayerSpec& layer : spec.layers) layer.attention_out_norm = layer.mlp_out_norm = rms_norm(eps);
}

void set_head_norms(ModelSpec& spec, double eps) {
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::kPerHead;
    layer.attention.q_norm = layer.attention.k_norm = rms_norm(eps);
  }
}

void set_scale(ModelSpec& spec, double query_pre_attn_scalar) {
  for (LayerSpec& layer : spec.layers) layer.attention.scale = 1 / std::sqrt(query_pre_attn_scalar);
}

// Full layers use rope 0, sliding ones rope 1.
void set_two_ropes(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) layer.attention.rope = layer.attention.kind == AttentionKind::kSliding ? 1 : 0;
}

constexpr auto kEvenSlides = [](int64_t i) { return i % 2 == 0 ? AttentionKind::kSliding : AttentionKind::kFull; };

void read_gemma(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 256000,
                              .hidden = 3072,
                              .intermediate = 24576,
                              .layers = 28,
                              .heads = 16,
                              .kv_heads = 16,
                              .head_dim = 256,
                              .max_position = 8192,
                              .tied = true,
                              .activation = "gelu_pytorch_tanh"};
  const TextConfig text = read_decoder(config, d, defaults);
  if (text.activation == "gelu") {  // old files say so and mean the tanh form; hidden_activation is not read
    d.activation = "gelu_pytorch_tanh";
    for (LayerSpec& layer : d.spec.layers) layer.mlp.activation = Activation::kGeluTanh;
  }
  set_biases(d, config.boolean("attention_bias", false));
  scale_embedding(d.spec);
  d.spec.ropes = {read_rope(config, {}, text.head_dim, text.max_position)};
}

TextKeys newer_keys() {
  TextKeys keys;
  keys.activation = "hidden_activation";
  return keys;
}

void read_gemma2(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 256000,
                              .hidden = 2304,
                              .intermediate = 9216,
                              .layers = 26,
                              .heads = 8,
                              .kv_heads = 4,
                              .head_dim = 256,
                              .max_position = 8192,
                              .tied = true,
                              .activation = "gelu_pytorch_tanh"};
  const TextConfig text = read_decoder(config, d, defaults, newer_keys());
  set_biases(d, config.boolean("attention_bias", false));
  scale_embedding(d.spec);
  set_four_norms(d.spec, text.eps);
  set_scale(d.spec, config.number("query_pre_attn_scalar", 256));
  set_windows(d.spec, read_layer_kinds(config, text.layers, kEvenSlides), read_window(config, 4096));
  const double cap = config.is_null("attn_logit_softcapping") ? 0 : config.number("attn_logit_softcapping", 50);
  for (LayerSpec& layer : d.spec.layers) layer.attention.softcap = cap;
  d.spec.final_softcap = config.is_null("final_logit_softcapping") ? 0 : config.number("final_logit_softcapping", 30);
  d.spec.ropes = {read_rope(config, {}, text.head_dim, text.max_position)};
}

void read_gemma3(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 262208,
                              .hidden = 2304,
                              .intermediate = 9216,
                              .layers = 26,
                              .heads = 8,
                              .kv_heads = 4,
                              .head_dim = 256,
                              .max_position = 131072,
                              .tied = true,
                              .activation = "gelu_pytorch_tanh"};
  const TextConfig text = read_decoder(config, d, defaults, newer_keys());
  set_biases(d, config.boolean("attention_bias", false));
  scale_embedding(d.spec);
  set_four_norms(d.spec, text.eps);
  set_head_norms(d.spec, text.eps);
  set_scale(d.spec, config.number("query_pre_attn_scalar", 256));
  const int64_t every = config.integer({"sliding_window_pattern", "_sliding_window_pattern"}, 6, {1, INT32_MAX});
  const auto kinds = read_layer_kinds(config, text.layers, [every](int64_t i) {
    return (i + 1) % every == 0 ? AttentionKind::kFull : AttentionKind::kSliding;
  });
  set_windows(d.spec, kinds, read_window(config, 4096));
  d.spec.final_softcap = config.number("final_logit_softcapping", 0, {0, 1e9, false});
  if (config.boolean("use_bidirectional_attention", false))
    d.spec.unsupported = "bidirectional attention (an embedding model, not one that generates)";
  d.spec.ropes = {
      read_rope(config, {.theta = 1e6, .per_layer_type = true}, text.head_dim, text.max_position, "full_attention"),
      read_rope(config, {.theta = 1e4, .per_layer_type = true}, text.head_dim, text.max_position, "sliding_attention")};
  d.rope_names = {"full_attention", "sliding_attention"};
  set_two_ropes(d.spec);
}

// The published wrapper computes its logits without the cap, whatever its text_config says.
void read_gemma3_wrapper(ConfigReader& config, Decoder& d) {
  read_gemma3(config, d);
  d.spec.final_softcap = 0;
}

DecoderParts gemma_parts(const std::string& prefix) {
  return {.prefix = prefix, .embedding_class = prefix + "TextScaledWordEmbedding", .add_one = true};
}

void build_gemma(const Decoder& d, Builder& b) { causal_lm(b, d, gemma_parts("Gemma")); }
void build_gemma2(const Decoder& d, Builder& b) { causal_lm(b, d, gemma_parts("Gemma2")); }

DecoderParts gemma3_parts() {
  DecoderParts parts = gemma_parts("Gemma3");
  parts.model_class = "Gemma3TextModel";
  return parts;
}

void build_gemma3_text(const Decoder& d, Builder& b) { causal_lm(b, d, gemma3_parts()); }

void build_gemma3(const Decoder& d, Builder& b) {
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"Gemma3DecoderLayer", "SiglipEncoderLayer", "SiglipMultiheadAttentionPoolingHead",
                               "SiglipTextEmbeddings", "SiglipVisionEmbeddings"};
  {
    const auto model = b.open("model", "Gemma3Model");
    const SiglipConfig vision = read_siglip(d.config);
    siglip_tower(b, vision, "vision_tower");
    {
      const auto projector = b.open("multi_modal_projector", "Gemma3MultiModalProjector");
      b.parameter("mm_input_projection_weight", {vision.hidden, d.spec.hidden});
      b.rms_norm("mm_soft_emb_norm", "Gemma3RMSNorm", vision.hidden);
      b.leaf("avg_pool", "AvgPool2d");
    }
    const auto language = b.open("language_model", "Gemma3TextModel");
    text_model(b, d, gemma3_parts());
  }
  head(b, d, "lm_head", "model.language_model.embed_tokens.weight");
}

// --- GGUF: norms already hold the one; the pre-attention scalar is a rule by size.

TextConfig read_gguf_gemma(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "gelu_pytorch_tanh", 10000);
  scale_embedding(d.spec);
  return text;
}

// The largest of either generation scales by hidden / heads instead of the head's width.
void set_gguf_scale(GgufReader& gguf, Decoder& d, const TextConfig& text, int64_t largest_layers) {
  const int64_t scalar = text.layers == largest_layers ? text.hidden / text.heads : text.head_dim;
  const double scale = gguf.number("attention.scale", 1 / std::sqrt(static_cast<double>(scalar)));
  for (LayerSpec& layer : d.spec.layers) layer.attention.scale = scale;
}

void read_gguf_gemma1(GgufReader& gguf, Decoder& d) { read_gguf_gemma(gguf, d); }

void read_gguf_gemma2(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_gemma(gguf, d);
  set_four_norms(d.spec, text.eps);
  set_gguf_scale(gguf, d, text, 46);
  set_gguf_windows(gguf, d.spec, kEvenSlides, 4096);
  const double cap = gguf.number("attn_logit_softcapping", 50);
  for (LayerSpec& layer : d.spec.layers) layer.attention.softcap = cap;
  d.spec.final_softcap = gguf.number("final_logit_softcapping", 30);
}

void read_gguf_gemma3(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_gemma(gguf, d);
  set_four_norms(d.spec, text.eps);
  set_head_norms(d.spec, text.eps);
  set_gguf_scale(gguf, d, text, 62);
  set_gguf_windows(
      gguf, d.spec, [](int64_t i) { return (i + 1) % 6 == 0 ? AttentionKind::kFull : AttentionKind::kSliding; }, 1024);
  d.spec.final_softcap = gguf.number("final_logit_softcapping", 0, {0, 1e9, false});
  d.spec.ropes.front().theta = gguf.number("rope.freq_base", 1e6);
  RopeSpec sliding = plain_rope(text.head_dim, gguf.number("rope.freq_base_swa", 1e4), text.max_position);
  sliding.frequency_divisors = d.spec.ropes.front().frequency_divisors;
  d.spec.ropes.push_back(sliding);
  d.rope_names = {"full_attention", "sliding_attention"};
  set_two_ropes(d.spec);
}

constexpr std::array<std::string_view, 1> kGemmaClass{"GemmaForCausalLM"}, kGemma2Class{"Gemma2ForCausalLM"},
    kGemma3TextClass{"Gemma3ForCausalLM"}, kGemma3Class{"Gemma3ForConditionalGeneration"}, kGemmaGguf{"gemma"},
    kGemma2Gguf{"gemma2"}, kGemma3Gguf{"gemma3"};
constexpr std::array<Family, 4> kFamilies{{
    {"gemma", "", kGemmaClass, read_gemma, build_gemma, kGemmaGguf, read_gguf_gemma1},
    {"gemma2", "", kGemma2Class, read_gemma2, build_gemma2, kGemma2Gguf, read_gguf_gemma2},
    {"gemma3_text", "", kGemma3TextClass, read_gemma3, build_gemma3_text, kGemma3Gguf, read_gguf_gemma3},
    {"gemma3", "text_config", kGemma3Class, read_gemma3_wrapper, build_gemma3},
}};

}  // namespace

std::span<const Family> gemma_families() { return kFamilies; }

}  // namespace berth::arch
