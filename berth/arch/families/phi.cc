// arch/families/phi.cc — Phi-1.5 and 2 (attention and MLP in parallel from one LayerNorm, biases everywhere, part of
// the head turns), Phi-3 to 4 (Llama with fused projections, long rope).
#include <array>
#include <cmath>

#include "berth/arch/decoder_parts.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

// --- Phi-1.5, Phi-2

void set_phi_layers(Decoder& d, double eps) {
  d.spec.final_norm = layer_norm(eps);
  d.spec.head_bias = true;
  for (LayerSpec& layer : d.spec.layers) {
    layer.parallel = true;
    layer.parallel_order = LayerSpec::ParallelOrder::kAttnMlpThenH;
    layer.input_norm = layer_norm(eps);
    layer.mlp_norm = {};
    layer.attention.qkv_bias = layer.attention.output_bias = true;
    layer.mlp.gated = false;
    layer.mlp.bias = true;
  }
}

void read_phi(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 51200,
                              .hidden = 2048,
                              .intermediate = 8192,
                              .layers = 24,
                              .heads = 32,
                              .max_position = 2048,
                              .eps = 1e-5,
                              .activation = "gelu_new"};
  TextKeys keys;
  keys.eps = "layer_norm_eps";
  const TextConfig text = read_decoder(config, d, defaults, keys);
  d.spec.ropes = {read_rope(config, {.part = 0.5}, text.head_dim, text.max_position)};
  set_phi_layers(d, text.eps);
  if (!config.boolean("qk_layernorm", false)) return;
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.qk_norm = QkNorm::kPerHead;
    layer.attention.q_norm = layer.attention.k_norm = layer_norm(text.eps);
  }
}

void phi_attention(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  const auto scope = b.open("self_attn", "PhiAttention");
  b.linear("q_proj", query_dim(d, a), d.hidden(), true, Role::kQ, Role::kQBias);
  b.linear("k_proj", key_dim(d, a), d.hidden(), true, Role::kK, Role::kKBias);
  b.linear("v_proj", value_dim(d, a), d.hidden(), true, Role::kV, Role::kVBias);
  b.linear("dense", d.hidden(), query_dim(d, a), true, Role::kO, Role::kOBias);
  if (a.qk_norm == QkNorm::kNone) return;
  const Dim head_width{a.head_dim, std::string(d.keys.head_dim)};
  b.norm("q_layernorm", "LayerNorm", head_width, a.q_norm, Role::kQNorm, Role::kQNormBias);
  b.norm("k_layernorm", "LayerNorm", head_width, a.k_norm, Role::kKNorm, Role::kKNormBias);
}

void phi_mlp(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const auto scope = b.open("mlp", "PhiMLP");
  b.leaf("activation_fn", activation_class(d.activation));
  plain_mlp(b, d, layer.mlp, "fc1", "fc2");
}

void build_phi(const Decoder& d, Builder& b) {
  DecoderParts parts{.prefix = "Phi", .norm_class = "LayerNorm"};
  parts.attention = phi_attention;
  parts.mlp = phi_mlp;
  parts.layer_end = [](Builder& builder, const Decoder&, const LayerSpec&) {
    builder.leaf("resid_dropout", "Dropout");
  };
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"PhiDecoderLayer"};
  {
    const auto model = b.open("model", "PhiModel");
    b.mark_base();
    embedding(b, d, "embed_tokens", parts);
    decoder_layers(b, d, parts);
    rotary_embedding(b, d, "rotary_emb", "PhiRotaryEmbedding");
    b.leaf("embed_dropout", "Dropout");
    b.norm("final_layernorm", "LayerNorm", d.hidden(), d.spec.final_norm, Role::kFinalNorm, Role::kFinalNormBias);
  }
  head(b, d, "lm_head", "model.embed_tokens.weight");
}

// --- Phi-3

void set_phi3_layers(Decoder& d) {
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.fused = AttentionSpec::Fused::kQkvRows;
    layer.mlp.fused_gate_up = true;
  }
}

void read_phi3(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 32064,
                              .hidden = 3072,
                              .intermediate = 8192,
                              .layers = 32,
                              .heads = 32,
                              .max_position = 4096,
                              .eps = 1e-5};
  const TextConfig text = read_decoder(config, d, defaults);
  const RopeRules rope{.part = 1.0, .original_max_position = 4096, .longrope_renews = true, .longrope_aliases = true};
  d.spec.ropes = {read_rope(config, rope, text.head_dim, text.max_position)};
  const auto kinds = read_layer_kinds(config, text.layers, [](int64_t) { return AttentionKind::kSliding; });
  set_windows(d.spec, kinds, read_window(config, 0));
  set_phi3_layers(d);
}

void phi3_attention(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  const auto scope = b.open("self_attn", "Phi3Attention");
  const Dim q = query_dim(d, a), k = key_dim(d, a);
  b.linear("o_proj", d.hidden(), q, Role::kO);
  b.linear("qkv_proj", {q.value + 2 * k.value, q.keys + " + 2 x " + k.keys}, d.hidden(), Role::kQkv);
}

void phi3_mlp(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const Dim inner = inner_dim(d, layer.mlp);
  const auto scope = b.open("mlp", "Phi3MLP");
  b.linear("gate_up_proj", {2 * inner.value, "2 x " + inner.keys}, d.hidden(), Role::kGateUp);
  b.linear("down_proj", d.hidden(), inner, Role::kDown);
  b.leaf("activation_fn", activation_class(d.activation));
}

void build_phi3(const Decoder& d, Builder& b) {
  DecoderParts parts{.prefix = "Phi3"};
  parts.attention = phi3_attention;
  parts.mlp = phi3_mlp;
  parts.layer_end = [](Builder& builder, const Decoder&, const LayerSpec&) {
    builder.leaf("resid_attn_dropout", "Dropout");
    builder.leaf("resid_mlp_dropout", "Dropout");
  };
  causal_lm(b, d, parts);
}

// --- GGUF

void read_gguf_phi2(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "gelu_new", 10000);
  set_phi_layers(d, text.eps);
}

void read_gguf_phi3(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 10000);
  set_gguf_windows(
      gguf, d.spec, [](int64_t) { return AttentionKind::kSliding; }, 0);
  set_phi3_layers(d);
  RopeSpec& rope = d.spec.ropes.front();
  const std::vector<float> longer = gguf.rope_numbers("rope_factors_long.weight", rope.rotary_dim / 2);
  const std::vector<float> shorter = gguf.rope_numbers("rope_factors_short.weight", rope.rotary_dim / 2);
  if (longer.empty() || shorter.empty()) return;
  rope.scaling = RopeScaling::kLongRope;
  rope.renews = true;
  rope.long_factor.assign(longer.begin(), longer.end());
  rope.short_factor.assign(shorter.begin(), shorter.end());
  rope.original_max_position = gguf.integer("rope.scaling.original_context_length", text.max_position, kPositionRange);
  rope.factor = static_cast<double>(text.max_position) / static_cast<double>(rope.original_max_position);
  rope.attention_scaling = gguf.number("rope.scaling.attn_factor", 1);
}

constexpr std::array<std::string_view, 1> kPhi2Gguf{"phi2"}, kPhi3Gguf{"phi3"};
constexpr std::array<std::string_view, 1> kPhiClass{"PhiForCausalLM"}, kPhi3Class{"Phi3ForCausalLM"};
constexpr std::array<Family, 2> kFamilies{{
    {"phi", "", kPhiClass, read_phi, build_phi, kPhi2Gguf, read_gguf_phi2},
    {"phi3", "", kPhi3Class, read_phi3, build_phi3, kPhi3Gguf, read_gguf_phi3},
}};

}  // namespace

std::span<const Family> phi_families() { return kFamilies; }

}  // namespace berth::arch
