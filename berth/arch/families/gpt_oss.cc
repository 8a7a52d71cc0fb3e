// arch/families/gpt_oss.cc — gpt-oss: attention sinks, alternating windows, experts with biases and clamped swiglu. In
// memory and in 16-bit files experts are [experts, in, out] with gate and up columns in turn; published files hold them
// as mxfp4 blocks, rows out. Berth keeps gate rows first, then up rows, whatever the file.
#include <array>

#include "berth/arch/families/moe.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

void set_layers(Decoder& d, const MoeSpec& moe, bool bias, double limit, double alpha) {
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.sinks = true;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    make_sparse(layer, moe);
    layer.mlp.activation = Activation::kClampedSwiglu;
    layer.mlp.swiglu_limit = limit;
    layer.mlp.swiglu_alpha = alpha;
  }
}

// What a config that is silent about its rope stands for.
void yarn_of_the_class(RopeSpec& rope) {
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 32;
  rope.original_max_position = 4096;
  rope.truncate = false;
  rope.attention_scaling = yarn_magnitude(rope.factor, 1);
}

void read_gpt_oss(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 201088,
                              .hidden = 2880,
                              .intermediate = 2880,
                              .layers = 36,
                              .heads = 64,
                              .kv_heads = 8,
                              .head_dim = 64,
                              .max_position = 131072,
                              .eps = 1e-5};
  const TextConfig text = read_decoder(config, d, defaults);
  d.spec.ropes = {read_rope(config, {.theta = 150000}, text.head_dim, text.max_position)};
  if (!config.has("rope_parameters") && !config.has("rope_scaling")) yarn_of_the_class(d.spec.ropes[0]);
  const auto kinds = read_layer_kinds(
      config, text.layers, [](int64_t i) { return i % 2 == 0 ? AttentionKind::kSliding : AttentionKind::kFull; });
  set_windows(d.spec, kinds, read_window(config, 128));
  MoeSpec moe;
  moe.experts = static_cast<int32_t>(config.integer({"num_local_experts", "num_experts"}, 128, kExpertRange));
  moe.experts_per_token =
      static_cast<int32_t>(config.integer({"num_experts_per_tok", "experts_per_token"}, 4, {1, moe.experts}));
  moe.intermediate = static_cast<int32_t>(text.intermediate);
  moe.router = RouterKind::kTopKThenSoftmax;
  moe.expert_bias = moe.router_bias = true;
  const bool bias = config.boolean("attention_bias", true);
  set_layers(d, moe, bias, config.number("swiglu_limit", 7), config.number("swiglu_alpha", 1.702));
}

void attention(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const auto scope = b.open("self_attn", "GptOssAttention");
  b.vector("sinks", {layer.attention.heads, std::string(d.keys.heads)}, Role::kSinks);
  attention_projections(b, d, layer.attention);
}

// Even rows of every expert, then its odd ones. `source_of`: each expert a source of its own, or all in one.
std::vector<Segment> gate_then_up(int64_t experts, int64_t inner, bool one_source) {
  std::vector<Segment> segments;
  for (int64_t e = 0; e < experts; ++e)
    for (const int64_t odd : {0, 1})
      segments.push_back({one_source ? 0 : static_cast<int32_t>(e), (one_source ? 2 * e * inner : 0) + odd, inner, 2});
  return segments;
}

void experts(Builder& b, const Decoder& d, const MoeSpec& moe) {
  const auto scope = b.open("experts", "GptOssExperts");
  const int64_t n = moe.experts, inner = moe.intermediate;
  const Dim inner_dim{inner, std::string(d.keys.intermediate)}, both{2 * inner, "2 x " + inner_dim.keys};
  const Dim count{n, "num_local_experts"};
  const auto bank = [&](Role role, std::string_view name, const Dim& rows, const Dim& cols, bool interleaved) {
    b.parameter(name, {n, cols.value, rows.value});
    WantedTensor* w = b.want(role, TensorKind::kBank, name, rows, cols, moe.experts);
    if (w == nullptr) return;
    WantedForm wide, packed;
    for (int64_t e = 0; e < n; ++e) wide.sources.push_back({w->spec.name, {n, cols.value, rows.value}, true, e});
    packed.sources.push_back({w->spec.name, {n, rows.value, cols.value}, false, -1, true});
    if (interleaved) {
      wide.segments = gate_then_up(n, inner, false);
      packed.segments = gate_then_up(n, inner, true);
    }
    w->forms = {std::move(wide), std::move(packed)};
  };
  const auto bias = [&](Role role, std::string_view name, const Dim& size, bool interleaved) {
    b.parameter(name, {n, size.value});
    WantedTensor* w = b.want(role, TensorKind::kVector, name, count, size);
    if (w == nullptr || !interleaved) return;
    w->forms = {{{{w->spec.name, {n, size.value}}}, gate_then_up(n, inner, true)}};
    w->forms.front().sources.front().column = true;
  };
  bank(Role::kExpertsGateUp, "gate_up_proj", both, d.hidden(), true);
  bias(Role::kExpertsGateUpBias, "gate_up_proj_bias", both, true);
  bank(Role::kExpertsDown, "down_proj", d.hidden(), inner_dim, false);
  bias(Role::kExpertsDownBias, "down_proj_bias", d.hidden(), false);
}

void mlp(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const MoeSpec& moe = *layer.mlp.moe;
  const auto block = b.open("mlp", "GptOssMLP");
  {
    const auto router = b.open("router", "GptOssTopKRouter");
    router_weight(b, d, moe);
    b.vector("bias", {moe.experts, "num_local_experts"}, Role::kRouterBias);
  }
  experts(b, d, moe);
}

void build_gpt_oss(const Decoder& d, Builder& b) {
  b.tree().keep_in_fp32 = {"input_layernorm", "norm", "post_attention_layernorm"};
  DecoderParts parts{.prefix = "GptOss"};
  parts.attention = attention;
  parts.mlp = mlp;
  causal_lm(b, d, parts);
}

// GGUF: its yarn is not truncated either, and there is no key for the clamp of the published models.
void read_gguf_gpt_oss(GgufReader& gguf, Decoder& d) {
  read_gguf_decoder(gguf, d, "silu", 150000);
  d.spec.ropes.front().truncate = d.spec.ropes.front().scaling != RopeScaling::kYarn;
  set_gguf_windows(
      gguf, d.spec, [](int64_t i) { return i % 2 == 0 ? AttentionKind::kSliding : AttentionKind::kFull; }, 128);
  MoeSpec moe = read_gguf_experts(gguf, RouterKind::kTopKThenSoftmax, false);
  moe.expert_bias = moe.router_bias = true;
  const auto limits = gguf.numbers_per_layer("swiglu_clamp_exp", d.spec.layers.size(), format::kPositive);
  set_layers(d, moe, gguf.has_tensor("blk.0.attn_q.bias"), limits.empty() ? 7 : limits.front(), 1.702);
}

constexpr std::array<std::string_view, 1> kClass{"GptOssForCausalLM"}, kGguf{"gpt-oss"};
constexpr std::array<Family, 1> kFamilies{
    {{"gpt_oss", "", kClass, read_gpt_oss, build_gpt_oss, kGguf, read_gguf_gpt_oss}}};

}  // namespace

std::span<const Family> gpt_oss_families() { return kFamilies; }

}  // namespace berth::arch
