// arch/families/qwen.cc — Qwen 2 and 2.5 (biases on q, k, v), Qwen 3 (norms on the heads of q and k).
#include "berth/arch/families/qwen.h"

#include <array>

#include "berth/arch/decoder_parts.h"
#include "berth/arch/families/family.h"
#include "berth/arch/rope.h"

namespace berth::arch {

TextConfig read_qwen_text(ConfigReader& config, Decoder& d, const TextDefaults& defaults) {
  const TextConfig text = read_decoder(config, d, defaults);
  d.spec.ropes = {read_rope(config, {}, text.head_dim, text.max_position)};
  return text;
}

void read_qwen_windows(ConfigReader& config, Decoder& d, const std::function<bool(int64_t, int64_t)>& slides) {
  const bool used = config.boolean("use_sliding_window", false);
  const int64_t first = config.integer("max_window_layers", 28, {0, INT32_MAX});
  const auto kinds = read_layer_kinds(config, static_cast<int64_t>(d.spec.layers.size()), [&](int64_t i) {
    return used && slides(i, first) ? AttentionKind::kSliding : AttentionKind::kFull;
  });
  set_windows(d.spec, kinds, used ? read_window(config, 4096) : 0);
}

void set_head_norms(ModelSpec& spec, double eps) {
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::kPerHead;
    layer.attention.q_norm = layer.attention.k_norm = rms_norm(eps);
  }
}

namespace {

constexpr auto kFromLayer = [](int64_t layer, int64_t first) { return layer >= first; };

void read_qwen2(ConfigReader& config, Decoder& d) {
  read_qwen_text(config, d, {.vocab = 151936, .intermediate = 22016, .kv_heads = 32, .max_position = 32768});
  for (LayerSpec& layer : d.spec.layers) layer.attention.qkv_bias = true;
  read_qwen_windows(config, d, kFromLayer);
}

void read_qwen3(ConfigReader& config, Decoder& d) {
  const TextConfig text = read_qwen_text(
      config, d, {.vocab = 151936, .intermediate = 22016, .kv_heads = 32, .head_dim = 128, .max_position = 32768});
  set_head_norms(d.spec, text.eps);
  const bool bias = config.boolean("attention_bias", false);
  for (LayerSpec& layer : d.spec.layers) layer.attention.qkv_bias = layer.attention.output_bias = bias;
  read_qwen_windows(config, d, kFromLayer);
}

void build_qwen2(const Decoder& d, Builder& b) { causal_lm(b, d, {.prefix = "Qwen2"}); }
void build_qwen3(const Decoder& d, Builder& b) { causal_lm(b, d, {.prefix = "Qwen3"}); }

void read_gguf_qwen2(GgufReader& gguf, Decoder& d) { read_gguf_decoder(gguf, d, "silu", 10000); }
void read_gguf_qwen3(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 10000);
  set_head_norms(d.spec, text.eps);
}

constexpr std::array<std::string_view, 1> kQwen2Class{"Qwen2ForCausalLM"}, kQwen3Class{"Qwen3ForCausalLM"},
    kQwen2Gguf{"qwen2"}, kQwen3Gguf{"qwen3"};
constexpr std::array<Family, 2> kFamilies{{
    {"qwen2", "", kQwen2Class, read_qwen2, build_qwen2, kQwen2Gguf, read_gguf_qwen2},
    {"qwen3", "", kQwen3Class, read_qwen3, build_qwen3, kQwen3Gguf, read_gguf_qwen3},
}};

}  // namespace

std::span<const Family> qwen_families() { return kFamilies; }

}  // namespace berth::arch
