// arch/families/deepseek.cc — DeepSeek-V3 and R1: latent attention, experts chosen by groups, a multi-token-prediction
// layer past the last that nobody reads.
#include <array>
#include <cmath>

#include "berth/arch/families/moe.h"
#include "berth/arch/rope.h"
#include "berth/format/rope_parameters.h"

namespace berth::arch {
namespace {

// The magnitude that yarn puts on the scores here, squared.
double score_magnitude(ConfigReader& config) {
  const auto rope = format::read_rope_config(config.view());
  if (!rope || rope->all.rope_type == "default") return 1;
  const double all = rope->all.mscale_all_dim.value_or(0);
  if (all == 0) return 1;
  const double m = yarn_magnitude(rope->all.factor.value_or(1), all);
  return m * m;
}

void read_experts(ConfigReader& config, Decoder& d) {
  MoeSpec moe;
  moe.experts =
      static_cast<int32_t>(config.integer({"n_routed_experts", "num_local_experts", "num_experts"}, 256, kExpertRange));
  moe.experts_per_token = static_cast<int32_t>(config.integer("num_experts_per_tok", 8, {1, moe.experts}));
  moe.intermediate = static_cast<int32_t>(config.integer("moe_intermediate_size", 2048, kWidthRange));
  moe.router = RouterKind::kSigmoid;
  moe.renormalize = config.boolean("norm_topk_prob", true);
  moe.routed_scale = config.number("routed_scaling_factor", 2.5);
  moe.selection_bias = true;
  moe.groups = static_cast<int32_t>(config.integer("n_group", 8, {1, moe.experts}));
  if (moe.experts % moe.groups != 0) config.fail("n_group", "a divisor of the number of experts");
  moe.groups_per_token = static_cast<int32_t>(config.integer("topk_group", 4, {1, moe.groups}));
  const int64_t shared = config.integer("n_shared_experts", 1, {0, 1024});
  moe.shared_intermediate = static_cast<int32_t>(shared * moe.intermediate);
  const int64_t dense = config.integer("first_k_dense_replace", 3, {0, kLayerRange.max});
  for (size_t i = 0; i < d.spec.layers.size(); ++i)
    if (static_cast<int64_t>(i) >= dense) make_sparse(d.spec.layers[i], moe);
}

struct LatentWidths {
  int64_t query = 0, latent = 0, nope = 0, turned = 0, value = 0;
};
void set_latent_attention(AttentionSpec& a, const LatentWidths& widths, double magnitude) {
  a.kind = AttentionKind::kLatent;
  a.kv_heads = a.heads;
  a.head_dim = static_cast<int32_t>(widths.nope + widths.turned);
  a.v_head_dim = static_cast<int32_t>(widths.value);
  a.nope_head_dim = static_cast<int32_t>(widths.nope);
  a.rope_head_dim = static_cast<int32_t>(widths.turned);
  a.kv_lora_rank = static_cast<int32_t>(widths.latent);
  a.q_lora_rank = static_cast<int32_t>(widths.query);
  a.scale = magnitude / std::sqrt(static_cast<double>(a.head_dim));
}

void read_deepseek(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 129280,
                              .hidden = 7168,
                              .intermediate = 18432,
                              .layers = 61,
                              .heads = 128,
                              .kv_heads = 128,
                              .head_dim = 64,  // what the config calls head_dim is the part that turns
                              .max_position = 4096};
  const TextConfig text = read_decoder(config, d, defaults);
  const int64_t nope = config.integer("qk_nope_head_dim", 128, kHeadRange);
  const int64_t turned = config.integer("qk_rope_head_dim", 64, kHeadRange);
  const int64_t value = config.integer("v_head_dim", 128, kHeadRange);
  const int64_t latent = config.integer("kv_lora_rank", 512, kWidthRange);
  const int64_t query = config.is_null("q_lora_rank") ? 0 : config.integer("q_lora_rank", 1536, kWidthRange);
  const bool pairs = config.boolean("rope_interleave", true);
  d.spec.ropes = {read_rope(config, {.layout = pairs ? RopeLayout::kPairsToHalves : RopeLayout::kHalves}, turned,
                            text.max_position)};
  const double magnitude = score_magnitude(config);
  for (LayerSpec& layer : d.spec.layers)
    set_latent_attention(layer.attention,
                         {.query = query, .latent = latent, .nope = nope, .turned = turned, .value = value}, magnitude);
  if (config.boolean("attention_bias", false)) {
    d.spec.unsupported = "biases in latent attention";
    for (LayerSpec& layer : d.spec.layers) layer.attention.qkv_bias = layer.attention.output_bias = true;
  }
  read_experts(config, d);
  d.extra_layers = config.integer("num_nextn_predict_layers", 1, {0, 64});
}

void attention(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  const std::string_view norm_class = "DeepseekV3RMSNorm";
  const NormSpec inner = rms_norm(a.latent_norm_eps);
  const auto scope = b.open("self_attn", "DeepseekV3Attention");
  const Dim queries{int64_t{a.heads} * a.head_dim, "num_attention_heads x (qk_nope_head_dim + qk_rope_head_dim)"};
  if (a.q_lora_rank == 0) {
    b.linear("q_proj", queries, d.hidden(), Role::kQ);
  } else {
    const Dim rank{a.q_lora_rank, "q_lora_rank"};
    b.linear("q_a_proj", rank, d.hidden(), a.qkv_bias, Role::kQDown, Role::kQBias);
    b.norm("q_a_layernorm", norm_class, rank, inner, Role::kQDownNorm, Role::kQDownNorm);
    b.linear("q_b_proj", queries, rank, Role::kQUp);
  }
  const Dim latent{a.kv_lora_rank, "kv_lora_rank"};
  b.linear("kv_a_proj_with_mqa", {latent.value + a.rope_head_dim, "kv_lora_rank + qk_rope_head_dim"}, d.hidden(),
           a.qkv_bias, Role::kKvDown, Role::kKBias);
  b.norm("kv_a_layernorm", norm_class, latent, inner, Role::kKvDownNorm, Role::kKvDownNorm);
  b.linear(
      "kv_b_proj",
      {int64_t{a.heads} * (a.nope_head_dim + a.v_head_dim), "num_attention_heads x (qk_nope_head_dim + v_head_dim)"},
      latent, Role::kKvUp);
  b.linear("o_proj", d.hidden(), {int64_t{a.heads} * a.v_head_dim, "num_attention_heads x v_head_dim"}, a.output_bias,
           Role::kO, Role::kOBias);
}

void mlp(Builder& b, const Decoder& d, const LayerSpec& layer) {
  if (!layer.mlp.moe) {
    gated_mlp(b, d, "mlp", "DeepseekV3MLP", inner_dim(d, layer.mlp), false);
    return;
  }
  const MoeSpec& moe = *layer.mlp.moe;
  const auto block = b.open("mlp", "DeepseekV3MoE");
  experts_module(b, d, moe, "experts", "DeepseekV3Experts", {}, d.activation);
  {
    const auto gate = b.open("gate", "DeepseekV3TopkRouter");
    router_weight(b, d, moe);
    const Dim experts{moe.experts, "n_routed_experts"};
    b.buffer("e_score_correction_bias", {experts.value}, StoredAs::kModelDtype, true);
    b.want(Role::kSelectionBias, TensorKind::kVector, "e_score_correction_bias", {1, ""}, experts);
  }
  gated_mlp(b, d, "shared_experts", "DeepseekV3MLP",
            {moe.shared_intermediate, "n_shared_experts x moe_intermediate_size"}, false,
            {Role::kSharedGate, Role::kSharedUp, Role::kSharedDown});
}

void build_deepseek(const Decoder& d, Builder& b) {
  b.tree().keep_in_fp32_strict = {"e_score_correction_bias", "gate.weight"};
  DecoderParts parts{.prefix = "DeepseekV3"};
  parts.attention = attention;
  parts.mlp = mlp;
  causal_lm(b, d, parts);
}

// --- GGUF. The width of a head's queries and keys is attention.key_length_mla (attention.key_length in older files,
// which keep attn_kv_b whole); rope.dimension_count of it turns.

void read_gguf_deepseek_experts(GgufReader& gguf, Decoder& d) {
  // Where the file does not name the router: a bias on the choice came with sigmoid.
  const auto biased_layer = [&](size_t i) { return gguf.has_tensor("blk." + std::to_string(i) + ".exp_probs_b.bias"); };
  const bool last_biased = biased_layer(d.spec.layers.size() - 1);
  MoeSpec moe = read_gguf_experts(gguf, last_biased ? RouterKind::kSigmoid : RouterKind::kSoftmaxThenTopK, false);
  moe.groups = static_cast<int32_t>(gguf.integer("expert_group_count", 1, {1, moe.experts}));
  if (moe.experts % moe.groups != 0) gguf.fail_key("expert_group_count", "a divisor of the number of experts");
  moe.groups_per_token = static_cast<int32_t>(gguf.integer("expert_group_used_count", 1, {1, moe.groups}));
  moe.shared_intermediate = static_cast<int32_t>(gguf.integer("expert_shared_count", 0, {0, 1024}) * moe.intermediate);
  moe.selection_bias = true;
  bool biased = true;
  for (size_t i = 0; i < d.spec.layers.size(); ++i) {
    if (!gguf_layer_is_sparse(gguf, i)) continue;
    biased = biased && biased_layer(i);
    make_sparse(d.spec.layers[i], moe);
  }
  if (moe.router != RouterKind::kSigmoid || !biased)
    d.spec.unsupported = "DeepSeek-V2's routing (softmax, groups by their best expert)";
}

void read_gguf_deepseek(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 10000);
  const int64_t width = gguf.integer("attention.key_length_mla", text.head_dim, kHeadRange);
  const int64_t value =
      gguf.integer("attention.value_length_mla", gguf.integer("attention.value_length", width, kHeadRange), kHeadRange);
  const int64_t turned = gguf.integer("rope.dimension_count", std::nullopt, {2, std::max<int64_t>(2, width - 1)});
  const int64_t query = gguf.integer("attention.q_lora_rank", 0, {0, kWidthRange.max});
  const int64_t latent = gguf.integer("attention.kv_lora_rank", std::nullopt, kWidthRange);
  RopeSpec rope = read_gguf_rope(gguf, text, turned, 10000);
  rope.layout = RopeLayout::kPairsToHalves;
  double magnitude = 1;
  if (rope.scaling == RopeScaling::kYarn) {
    // A tenth of mscale_all_dim is kept, mscale is not: published models have the same in both, and cos and sin stay as
    // they are.
    const double all = 10 * gguf.number("rope.scaling.yarn_log_multiplier", 0, {0, 100, false});
    const double m = yarn_magnitude(rope.factor, all);
    if (all > 0) rope.attention_scaling = gguf.number("rope.scaling.attn_factor", 1);
    magnitude = m * m;
  }
  d.spec.ropes = {rope};
  for (LayerSpec& layer : d.spec.layers)
    set_latent_attention(layer.attention,
                         {.query = query, .latent = latent, .nope = width - turned, .turned = turned, .value = value},
                         magnitude);
  read_gguf_deepseek_experts(gguf, d);
}

constexpr std::array<std::string_view, 1> kClass{"DeepseekV3ForCausalLM"}, kGguf{"deepseek2"};
constexpr std::array<Family, 1> kFamilies{
    {{"deepseek_v3", "", kClass, read_deepseek, build_deepseek, kGguf, read_gguf_deepseek}}};

}  // namespace

std::span<const Family> deepseek_families() { return kFamilies; }

}  // namespace berth::arch
