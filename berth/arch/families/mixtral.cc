// arch/families/mixtral.cc — Mixtral: Mistral's attention, experts w1 (gate), w3 (up), w2 (down) on disk.
#include <array>

#include "berth/arch/families/moe.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

constexpr ExpertNames kExperts{
    .block = "block_sparse_moe.experts", .gate = "w1", .up = "w3", .down = "w2", .inner_key = "intermediate_size"};

void set_experts(Decoder& d, int64_t experts, int64_t chosen) {
  MoeSpec moe;
  moe.experts = static_cast<int32_t>(experts);
  moe.experts_per_token = static_cast<int32_t>(chosen);
  moe.intermediate = d.spec.layers.front().mlp.intermediate;
  moe.renormalize = true;
  for (LayerSpec& layer : d.spec.layers) make_sparse(layer, moe);
}

void read_mixtral(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.intermediate = 14336, .kv_heads = 8, .max_position = 131072, .eps = 1e-5};
  const TextConfig text = read_decoder(config, d, defaults);
  d.spec.ropes = {read_rope(config, {.theta = 1e6}, text.head_dim, text.max_position)};
  const auto kinds = read_layer_kinds(config, text.layers, [](int64_t) { return AttentionKind::kSliding; });
  set_windows(d.spec, kinds, read_window(config, 0));
  const int64_t experts = config.integer({"num_local_experts", "num_experts"}, 8, kExpertRange);
  set_experts(d, experts, config.integer("num_experts_per_tok", 2, {1, experts}));
}

void read_gguf_mixtral(GgufReader& gguf, Decoder& d) {
  read_gguf_decoder(gguf, d, "silu", 1e6);
  const int64_t experts = gguf.integer("expert_count", std::nullopt, kExpertRange);
  set_experts(d, experts, gguf.integer("expert_used_count", std::nullopt, {1, experts}));
}

void build_mixtral(const Decoder& d, Builder& b) {
  DecoderParts parts{.prefix = "Mixtral"};
  parts.mlp = [](Builder& builder, const Decoder& decoder, const LayerSpec& layer) {
    const auto block = builder.open("mlp", "MixtralSparseMoeBlock");
    router_module(builder, decoder, *layer.mlp.moe, "gate", "MixtralTopKRouter", "block_sparse_moe.gate.weight");
    experts_module(builder, decoder, *layer.mlp.moe, "experts", "MixtralExperts", kExperts, decoder.activation);
  };
  causal_lm(b, d, parts);
}

constexpr std::array<std::string_view, 1> kClass{"MixtralForCausalLM"}, kGguf{"llama+experts"};
constexpr std::array<Family, 1> kFamilies{
    {{"mixtral", "", kClass, read_mixtral, build_mixtral, kGguf, read_gguf_mixtral}}};

}  // namespace

std::span<const Family> mixtral_families() { return kFamilies; }

}  // namespace berth::arch
