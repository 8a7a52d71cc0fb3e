// arch/capability.cc — see capability.h.
#include "berth/arch/capability.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "berth/base/strings.h"

namespace berth::arch {
namespace {

struct Mechanism {
  std::string_view name;
  bool engine_has;  // flip when model/ and kernel/ have it
  bool (*used)(const ModelSpec&);
};

template <typename F>
bool any_layer(const ModelSpec& spec, F&& f) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), f);
}
template <AttentionKind kind>
bool attends(const ModelSpec& spec) {
  return any_layer(spec, [](const LayerSpec& l) { return l.attention.kind == kind; });
}

constexpr std::array kMechanisms{
    Mechanism{"chunked attention", true, attends<AttentionKind::kChunked>},
    Mechanism{"block-sparse attention", true, attends<AttentionKind::kBlockSparse>},
    Mechanism{"latent attention", true, attends<AttentionKind::kLatent>},
    Mechanism{"gated delta net attention", true, attends<AttentionKind::kDeltaNet>},
    Mechanism{"fused query, key and value projections", true,
              [](const ModelSpec& s) {
                return any_layer(s,
                                 [](const LayerSpec& l) { return l.attention.fused != AttentionSpec::Fused::kSplit; });
              }},
    Mechanism{"fused gate and up projections", true,
              [](const ModelSpec& s) { return any_layer(s, [](const LayerSpec& l) { return l.mlp.fused_gate_up; }); }},
    Mechanism{"layer norms with mean and bias", true,
              [](const ModelSpec& s) {
                const auto is_layer = [](const NormSpec& n) { return n.kind == NormKind::kLayer; };
                return is_layer(s.final_norm) || is_layer(s.embedding_norm) || any_layer(s, [&](const LayerSpec& l) {
                         return is_layer(l.input_norm) || is_layer(l.attention_out_norm) || is_layer(l.mlp_norm) ||
                                is_layer(l.mlp_out_norm) || is_layer(l.attention.q_norm);
                       });
              }},
    Mechanism{"rope on pairs of neighbouring channels", true,
              [](const ModelSpec& s) {
                return std::any_of(s.ropes.begin(), s.ropes.end(),
                                   [](const RopeSpec& r) { return r.layout != RopeLayout::kHalves; });
              }},
    Mechanism{"long rope", true,
              [](const ModelSpec& s) {
                return std::any_of(s.ropes.begin(), s.ropes.end(),
                                   [](const RopeSpec& r) { return r.scaling == RopeScaling::kLongRope; });
              }},
    Mechanism{"proportional rope", true,
              [](const ModelSpec& s) {
                return std::any_of(s.ropes.begin(), s.ropes.end(),
                                   [](const RopeSpec& r) { return r.scaling == RopeScaling::kProportional; });
              }},
    Mechanism{"a norm over all heads of q and k at once", true,
              [](const ModelSpec& s) {
                return any_layer(s, [](const LayerSpec& l) { return l.attention.qk_norm == QkNorm::kAllHeads; });
              }},
    Mechanism{"norms of q and k with a weight per head, without one, or after rope", true,
              [](const ModelSpec& s) {
                return any_layer(s, [](const LayerSpec& l) {
                  const AttentionSpec& a = l.attention;
                  return a.qk_norm != QkNorm::kNone &&
                         (a.qk_norm_own_weights || a.qk_norm_after_rope || !a.q_norm.has_weight);
                });
              }},
    Mechanism{"a norm of v", true,
              [](const ModelSpec& s) {
                return any_layer(s, [](const LayerSpec& l) { return l.attention.v_norm.present(); });
              }},
    Mechanism{"attention sinks", true,
              [](const ModelSpec& s) { return any_layer(s, [](const LayerSpec& l) { return l.attention.sinks; }); }},
    Mechanism{"alibi", true,
              [](const ModelSpec& s) { return any_layer(s, [](const LayerSpec& l) { return l.attention.alibi; }); }},
    Mechanism{
        "an output gate on attention", true,
        [](const ModelSpec& s) { return any_layer(s, [](const LayerSpec& l) { return l.attention.output_gate; }); }},
    Mechanism{"query temperature", true,
              [](const ModelSpec& s) {
                return any_layer(s, [](const LayerSpec& l) { return l.attention.query_temperature_scale != 0; });
              }},
    Mechanism{"layers that share another layer's keys and values", true,
              [](const ModelSpec& s) {
                return any_layer(s, [](const LayerSpec& l) { return l.attention.kv_source_layer >= 0; });
              }},
    Mechanism{"values made of keys", true,
              [](const ModelSpec& s) { return any_layer(s, [](const LayerSpec& l) { return l.attention.v_from_k; }); }},
    Mechanism{
        "mixture of experts", true,
        [](const ModelSpec& s) { return any_layer(s, [](const LayerSpec& l) { return l.mlp.moe.has_value(); }); }},
    Mechanism{"an MLP without gate", true,
              [](const ModelSpec& s) {
                return any_layer(s, [](const LayerSpec& l) { return l.mlp.present && !l.mlp.gated; });
              }},
    Mechanism{"clamped swiglu", true,
              [](const ModelSpec& s) {
                return any_layer(s, [](const LayerSpec& l) { return l.mlp.activation == Activation::kClampedSwiglu; });
              }},
    Mechanism{
        "activation sparsity", true,
        [](const ModelSpec& s) { return any_layer(s, [](const LayerSpec& l) { return l.mlp.sparsity_icdf.has_value(); }); }},
    Mechanism{"attention and MLP in parallel", true,
              [](const ModelSpec& s) { return any_layer(s, [](const LayerSpec& l) { return l.parallel; }); }},
    Mechanism{"norms after the residual sum", true,
              [](const ModelSpec& s) {
                return any_layer(s, [](const LayerSpec& l) { return l.norm_after_residual || l.residual_from_norm; });
              }},
    Mechanism{"layers without a norm before attention", true,
              [](const ModelSpec& s) {
                return any_layer(s,
                                 [](const LayerSpec& l) { return !l.input_norm.present() && !l.norm_after_residual; });
              }},
    Mechanism{"a scale at the end of every layer", true,
              [](const ModelSpec& s) { return any_layer(s, [](const LayerSpec& l) { return l.layer_scalar; }); }},
    Mechanism{"per-layer embeddings", true, [](const ModelSpec& s) { return s.per_layer_embedding.dim > 0; }},
    Mechanism{"altup and laurel", true, [](const ModelSpec& s) { return s.altup.inputs > 0; }},
    Mechanism{"learned positions", true, [](const ModelSpec& s) { return s.position_rows > 0; }},
    Mechanism{"a projected embedding", true, [](const ModelSpec& s) { return s.embedding_dim > 0; }},
    Mechanism{"a norm of the embedding", true, [](const ModelSpec& s) { return s.embedding_norm.present(); }},
    Mechanism{"a bias of the head", true, [](const ModelSpec& s) { return s.head_bias; }},
    Mechanism{"rope over more than 1024 channels of a head", false,
              [](const ModelSpec& s) {
                return std::any_of(s.ropes.begin(), s.ropes.end(),
                                   [](const RopeSpec& r) { return r.rotary_dim > kMostRotaryDim; });
              }},
};

}  // namespace

std::string missing_mechanisms(const ModelSpec& spec) {
  std::vector<std::string> missing;
  for (const Mechanism& m : kMechanisms)
    if (!m.engine_has && m.used(spec)) missing.emplace_back(m.name);
  return join(missing, ", ");
}

}  // namespace berth::arch
