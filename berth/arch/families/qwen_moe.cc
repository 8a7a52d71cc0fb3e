// arch/families/qwen_moe.cc — Qwen 1.5 and 2 MoE (a shared expert behind a sigmoid gate), Qwen 3 MoE (none).
#include <algorithm>
#include <array>

#include "berth/arch/families/moe.h"
#include "berth/arch/families/qwen.h"
#include "berth/arch/families/qwen_sparse.h"

namespace berth::arch {

void read_qwen_experts(ConfigReader& config, Decoder& d, const QwenMoeDefaults& defaults) {
  MoeSpec moe;
  moe.experts =
      static_cast<int32_t>(config.integer({"num_experts", "num_local_experts"}, defaults.experts, kExpertRange));
  moe.experts_per_token =
      static_cast<int32_t>(config.integer("num_experts_per_tok", defaults.chosen, {1, moe.experts}));
  moe.intermediate = static_cast<int32_t>(config.integer("moe_intermediate_size", defaults.intermediate, kWidthRange));
  moe.renormalize = defaults.always_renormalizes || config.boolean("norm_topk_prob", defaults.renormalizes);
  if (defaults.shared > 0) {
    moe.shared_intermediate =
        static_cast<int32_t>(config.integer("shared_expert_intermediate_size", defaults.shared, kWidthRange));
    moe.shared_gate = true;
  }
  const int64_t step = config.integer("decoder_sparse_step", 1, {1, INT32_MAX});
  const std::vector<int64_t> dense = config.integers("mlp_only_layers", {0, INT32_MAX});
  for (size_t i = 0; i < d.spec.layers.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    if (std::find(dense.begin(), dense.end(), layer) != dense.end() || (layer + 1) % step != 0) continue;
    make_sparse(d.spec.layers[i], moe);
  }
}

void qwen_mlp(Builder& b, const Decoder& d, const LayerSpec& layer, const std::string& prefix,
              const ExpertNames& names) {
  if (!layer.mlp.moe) {
    gated_mlp(b, d, "mlp", prefix + "MLP", inner_dim(d, layer.mlp), false);
    return;
  }
  qwen_moe_block(b, d, *layer.mlp.moe, prefix, names);
}

namespace {

void read_qwen2_moe(ConfigReader& config, Decoder& d) {
  read_qwen_text(config, d,
                 {.vocab = 151936,
                  .hidden = 2048,
                  .intermediate = 5632,
                  .layers = 24,
                  .heads = 16,
                  .kv_heads = 16,
                  .max_position = 32768});
  const bool bias = config.boolean("qkv_bias", true);
  for (LayerSpec& layer : d.spec.layers) layer.attention.qkv_bias = bias;
  read_qwen_windows(config, d, [](int64_t layer, int64_t first) { return layer % 2 == 0 && layer < first; });
  read_qwen_experts(config, d, {.experts = 60, .chosen = 4, .intermediate = 1408, .shared = 5632});
}

void read_qwen3_moe(ConfigReader& config, Decoder& d) {
  const TextConfig text = read_qwen_text(config, d,
                                         {.vocab = 151936,
                                          .hidden = 2048,
                                          .intermediate = 6144,
                                          .layers = 24,
                                          .heads = 32,
                                          .kv_heads = 4,
                                          .max_position = 32768});
  set_head_norms(d.spec, text.eps);
  const bool bias = config.boolean("attention_bias", false);
  for (LayerSpec& layer : d.spec.layers) layer.attention.qkv_bias = layer.attention.output_bias = bias;
  // Its window is for all layers.
  read_qwen_windows(config, d, [](int64_t, int64_t) { return true; });
  read_qwen_experts(config, d, {.experts = 128, .chosen = 8, .intermediate = 768});
}

void build_qwen2_moe(const Decoder& d, Builder& b) {
  DecoderParts parts{.prefix = "Qwen2Moe"};
  parts.mlp = [](Builder& builder, const Decoder& decoder, const LayerSpec& layer) {
    qwen_mlp(builder, decoder, layer, "Qwen2Moe", {});
  };
  causal_lm(b, d, parts);
}

void build_qwen3_moe(const Decoder& d, Builder& b) {
  DecoderParts parts{.prefix = "Qwen3Moe"};
  parts.mlp = [](Builder& builder, const Decoder& decoder, const LayerSpec& layer) {
    if (!layer.mlp.moe) return qwen_mlp(builder, decoder, layer, "Qwen3Moe", {});
    const auto block = builder.open("mlp", "Qwen3MoeSparseMoeBlock");
    experts_module(builder, decoder, *layer.mlp.moe, "experts", "Qwen3MoeExperts", {}, decoder.activation);
    router_module(builder, decoder, *layer.mlp.moe, "gate", "Qwen3MoeTopKRouter");
  };
  causal_lm(b, d, parts);
}

// --- GGUF

void set_gguf_experts(GgufReader& gguf, Decoder& d, const MoeSpec& moe) {
  for (size_t i = 0; i < d.spec.layers.size(); ++i)
    if (gguf_layer_is_sparse(gguf, i)) make_sparse(d.spec.layers[i], moe);
}

void read_gguf_qwen2_moe(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 10000);
  MoeSpec moe = read_gguf_experts(gguf, RouterKind::kSoftmaxThenTopK, false);
  moe.shared_intermediate =
      static_cast<int32_t>(gguf.integer("expert_shared_feed_forward_length", text.intermediate, kWidthRange));
  moe.shared_gate = true;
  set_gguf_experts(gguf, d, moe);
}

void read_gguf_qwen3_moe(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 10000);
  set_head_norms(d.spec, text.eps);
  set_gguf_experts(gguf, d, read_gguf_experts(gguf, RouterKind::kSoftmaxThenTopK, true));
}

constexpr std::array<std::string_view, 1> kQwen2Class{"Qwen2MoeForCausalLM"}, kQwen3Class{"Qwen3MoeForCausalLM"},
    kQwen2Gguf{"qwen2moe"}, kQwen3Gguf{"qwen3moe"};
constexpr std::array<Family, 2> kFamilies{{
    {"qwen2_moe", "", kQwen2Class, read_qwen2_moe, build_qwen2_moe, kQwen2Gguf, read_gguf_qwen2_moe},
    {"qwen3_moe", "", kQwen3Class, read_qwen3_moe, build_qwen3_moe, kQwen3Gguf, read_gguf_qwen3_moe},
}};

}  // namespace

std::span<const Family> qwen_moe_families() { return kFamilies; }

}  // namespace berth::arch
