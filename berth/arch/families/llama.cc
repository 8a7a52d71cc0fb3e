// arch/families/llama.cc — Llama 1 to 3.x and its look-alikes that differ in one rule each: Mistral, Granite, SmolLM3.
#include <array>
#include <cmath>

#include "berth/arch/decoder_parts.h"
#include "berth/arch/families/family.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

TextConfig read_common(ConfigReader& config, Decoder& d, const TextDefaults& defaults, double theta) {
  const TextConfig text = read_decoder(config, d, defaults);
  d.spec.ropes = {read_rope(config, {.theta = theta}, text.head_dim, text.max_position)};
  return text;
}

// One flag for all four attention projections, one for the MLP.
void set_biases(Decoder& d, bool attention, bool mlp) {
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.qkv_bias = layer.attention.output_bias = attention;
    layer.mlp.bias = mlp;
  }
}

void read_llama(ConfigReader& config, Decoder& d) {
  read_common(config, d, {}, 10000);
  set_biases(d, config.boolean("attention_bias", false), config.boolean("mlp_bias", false));
}

void read_mistral(ConfigReader& config, Decoder& d) {
  const TextConfig text = read_common(config, d, {.intermediate = 14336, .kv_heads = 8, .max_position = 131072}, 10000);
  const auto kinds = read_layer_kinds(config, text.layers, [](int64_t) { return AttentionKind::kSliding; });
  set_windows(d.spec, kinds, read_window(config, 4096));
}

void read_granite(ConfigReader& config, Decoder& d) {
  read_common(config, d, {}, 10000);
  set_biases(d, config.boolean("attention_bias", false), config.boolean("mlp_bias", false));
  d.spec.embedding_scale = config.number("embedding_multiplier", 1);
  d.spec.logits_divisor = config.number("logits_scaling", 1);
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.scale = config.number("attention_multiplier", 1);
    layer.residual_multiplier = config.number("residual_multiplier", 1);
  }
}

// no_rope_layers: 1 is a layer with rope. Its windows sit on the layers without.
void read_smollm3(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{
      .vocab = 128256, .hidden = 2048, .layers = 36, .heads = 16, .kv_heads = 4, .max_position = 32768, .tied = true};
  const TextConfig text = read_common(config, d, defaults, 2e6);
  set_biases(d, config.boolean("attention_bias", false), config.boolean("mlp_bias", false));
  std::vector<int64_t> with_rope = config.integers("no_rope_layers", {0, 1});
  const int64_t interval = config.integer("no_rope_layer_interval", 4, {1, INT32_MAX});
  if (with_rope.empty())
    for (int64_t i = 0; i < text.layers; ++i) with_rope.push_back((i + 1) % interval != 0);
  if (with_rope.size() != d.spec.layers.size()) {
    config.fail("no_rope_layers", "one entry per layer");
    return;
  }
  const bool slides = config.boolean("use_sliding_window", false);
  const auto kinds = read_layer_kinds(config, text.layers, [&](int64_t i) {
    return slides && with_rope[static_cast<size_t>(i)] == 0 ? AttentionKind::kSliding : AttentionKind::kFull;
  });
  set_windows(d.spec, kinds, read_window(config, 0));
  for (size_t i = 0; i < with_rope.size(); ++i)
    if (with_rope[i] == 0) d.spec.layers[i].attention.rope = -1;
}

void build_llama(const Decoder& d, Builder& b) { causal_lm(b, d, {.prefix = "Llama"}); }
void build_mistral(const Decoder& d, Builder& b) { causal_lm(b, d, {.prefix = "Mistral"}); }
void build_granite(const Decoder& d, Builder& b) { causal_lm(b, d, {.prefix = "Granite"}); }
void build_smollm3(const Decoder& d, Builder& b) { causal_lm(b, d, {.prefix = "SmolLM3"}); }

// --- GGUF

void read_gguf_llama(GgufReader& gguf, Decoder& d) { read_gguf_decoder(gguf, d, "silu", 10000); }

void read_gguf_granite(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 10000);
  d.spec.embedding_scale = gguf.number("embedding_scale", 1);
  d.spec.logits_divisor = gguf.number("logit_scale", 1);
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.scale = gguf.number("attention.scale", 1 / std::sqrt(static_cast<double>(text.head_dim)));
    layer.residual_multiplier = gguf.number("residual_scale", 1);
  }
}

void read_gguf_smollm3(GgufReader& gguf, Decoder& d) {
  read_gguf_decoder(gguf, d, "silu", 2e6);
  for (size_t i = 3; i < d.spec.layers.size(); i += 4) d.spec.layers[i].attention.rope = -1;
}

constexpr std::array<std::string_view, 1> kLlamaClass{"LlamaForCausalLM"}, kMistralClass{"MistralForCausalLM"},
    kGraniteClass{"GraniteForCausalLM"}, kSmolLm3Class{"SmolLM3ForCausalLM"}, kLlamaGguf{"llama"},
    kGraniteGguf{"granite"}, kSmolLm3Gguf{"smollm3"};

constexpr std::array<Family, 4> kFamilies{{
    {"llama", "", kLlamaClass, read_llama, build_llama, kLlamaGguf, read_gguf_llama},
    {"mistral", "", kMistralClass, read_mistral, build_mistral},
    {"granite", "", kGraniteClass, read_granite, build_granite, kGraniteGguf, read_gguf_granite},
    {"smollm3", "", kSmolLm3Class, read_smollm3, build_smollm3, kSmolLm3Gguf, read_gguf_smollm3},
}};

}  // namespace

std::span<const Family> llama_families() { return kFamilies; }

}  // namespace berth::arch
