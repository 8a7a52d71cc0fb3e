// arch/decoder_parts.cc — see decoder_parts.h.
#include "berth/arch/decoder_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace berth::arch {

TextConfig read_decoder(ConfigReader& config, Decoder& d, const TextDefaults& defaults, const TextKeys& keys) {
  const TextConfig text = read_text_config(config, defaults, keys);
  d.keys = text.keys;
  d.activation = text.activation;
  d.spec = llama_spec(config, text);
  return text;
}

TextConfig read_gguf_decoder(GgufReader& gguf, Decoder& d, std::string_view activation, double default_theta) {
  const TextConfig text = read_gguf_text(gguf, activation);
  d.keys = text.keys;
  d.activation = text.activation;
  d.spec = gguf_llama_spec(gguf, text);
  d.spec.ropes = {read_gguf_rope(gguf, text, text.head_dim, default_theta)};
  return text;
}

Dim query_dim(const Decoder& d, const AttentionSpec& a) {
  const int64_t gates = a.output_gate ? 2 : 1;
  return {gates * a.heads * a.head_dim,
          fmt::format("{}{} x {}", a.output_gate ? "2 x " : "", d.keys.heads, d.keys.head_dim)};
}
Dim key_dim(const Decoder& d, const AttentionSpec& a) {
  return {int64_t{a.kv_heads} * a.head_dim, fmt::format("{} x {}", d.keys.kv_heads, d.keys.head_dim)};
}
Dim value_dim(const Decoder& d, const AttentionSpec& a) {
  return {int64_t{a.kv_heads} * a.v_head_dim, fmt::format("{} x {}", d.keys.kv_heads, d.keys.head_dim)};
}
Dim inner_dim(const Decoder& d, const MlpSpec& mlp) { return {mlp.intermediate, std::string(d.keys.intermediate)}; }

namespace {

Dim output_dim(const Decoder& d, const AttentionSpec& a) {
  return {int64_t{a.heads} * a.v_head_dim, fmt::format("{} x {}", d.keys.heads, d.keys.head_dim)};
}

void layer_norms(Builder& b, const Decoder& d, const LayerSpec& layer, const DecoderParts& parts) {
  const std::string norm_class = parts.named(parts.norm_class, "RMSNorm");
  const auto norm = [&](std::string_view name, const NormSpec& spec, Role weight, Role bias) {
    if (spec.present()) b.norm(name, norm_class, d.hidden(), spec, weight, bias, parts.add_one);
  };
  norm("input_layernorm", layer.input_norm, Role::kInputNorm, Role::kInputNormBias);
  norm("post_attention_layernorm", layer.attention_out_norm, Role::kAttentionOutNorm, Role::kAttentionOutNormBias);
  norm(layer.attention_out_norm.present() ? "pre_feedforward_layernorm" : "post_attention_layernorm", layer.mlp_norm,
       Role::kMlpNorm, Role::kMlpNormBias);
  norm("post_feedforward_layernorm", layer.mlp_out_norm, Role::kMlpOutNorm, Role::kMlpOutNormBias);
}

}  // namespace

void causal_lm(Builder& b, const Decoder& d, const DecoderParts& parts) {
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {parts.named(parts.layer_class, "DecoderLayer")};
  {
    const auto model = b.open("model", parts.named(parts.model_class, "Model"));
    text_model(b, d, parts);
  }
  head(b, d, "lm_head", "model.embed_tokens.weight");
}

void text_model(Builder& b, const Decoder& d, const DecoderParts& parts) {
  b.mark_base();
  embedding(b, d, "embed_tokens", parts);
  decoder_layers(b, d, parts);
  b.norm("norm", parts.named(parts.norm_class, "RMSNorm"), d.hidden(), d.spec.final_norm, Role::kFinalNorm,
         Role::kFinalNormBias, parts.add_one);
  rotary_embedding(b, d, "rotary_emb", parts.named(parts.rotary_class, "RotaryEmbedding"));
}

void embedding(Builder& b, const Decoder& d, std::string_view name, const DecoderParts& parts) {
  const auto scope = b.open(name, parts.embedding_class);
  const int64_t width = d.spec.embedding_dim > 0 ? d.spec.embedding_dim : d.spec.hidden;
  b.parameter("weight", {d.spec.vocab_size, width});
  if (parts.embedding_class != "Embedding") b.buffer("embed_scale", {}, StoredAs::kModelDtype, false);
  b.want(Role::kEmbedding, TensorKind::kTable, "weight", d.vocab(),
         {width, d.spec.embedding_dim > 0 ? "word_embed_proj_dim" : std::string(d.keys.hidden)});
}

void layer_list(Builder& b, const Decoder& d, std::string_view name, std::string_view layer_class,
                const DecoderParts::LayerPart& fill) {
  const auto list = b.open(name, "ModuleList");
  b.mark_layers();
  for (size_t i = 0; i < d.spec.layers.size(); ++i) {
    b.layer(static_cast<int32_t>(i));
    const auto scope = b.open(std::to_string(i), layer_class);
    fill(b, d, d.spec.layers[i]);
  }
  b.layer(-1);
}

void decoder_layers(Builder& b, const Decoder& d, const DecoderParts& parts) {
  const std::string norm_class = parts.named(parts.norm_class, "RMSNorm");
  layer_list(b, d, "layers", parts.named(parts.layer_class, "DecoderLayer"),
             [&](Builder& builder, const Decoder& decoder, const LayerSpec& layer) {
               if (parts.attention) {
                 parts.attention(builder, decoder, layer);
               } else {
                 split_attention(builder, decoder, layer, parts.named(parts.attention_class, "Attention"), norm_class,
                                 parts.add_one);
               }
               if (parts.mlp) {
                 parts.mlp(builder, decoder, layer);
               } else {
                 gated_mlp(builder, decoder, "mlp", parts.named(parts.mlp_class, "MLP"), inner_dim(decoder, layer.mlp),
                           layer.mlp.bias);
               }
               layer_norms(builder, decoder, layer, parts);
               if (parts.layer_end) parts.layer_end(builder, decoder, layer);
             });
}

void rotary_embedding(Builder& b, const Decoder& d, std::string_view name, std::string_view class_name) {
  const auto scope = b.open(name, class_name);
  for (size_t i = 0; i < d.spec.ropes.size(); ++i) {
    const auto turns = [i](const LayerSpec& layer) { return layer.attention.rope == static_cast<int32_t>(i); };
    if (!d.rope_names.empty() && std::ranges::none_of(d.spec.layers, turns)) continue;  // no layer is of this type
    const std::string prefix = d.rope_names.empty() ? "" : d.rope_names[i] + "_";
    const Shape shape{d.spec.ropes[i].rotary_dim / 2};
    b.buffer(prefix + "inv_freq", shape, StoredAs::kF32, false);
    b.buffer(prefix + "original_inv_freq", shape, StoredAs::kF32, false);
  }
}

void head(Builder& b, const Decoder& d, std::string_view name, std::string_view table) {
  const auto scope = b.open(name, "Linear");
  const int64_t width = d.spec.embedding_dim > 0 ? d.spec.embedding_dim : d.spec.hidden;
  b.parameter("weight", {d.spec.vocab_size, width});
  b.want(Role::kHead, TensorKind::kMatrix, "weight", d.vocab(), {width, std::string(d.keys.hidden)});
  if (d.spec.head_bias) b.vector("bias", d.vocab(), Role::kHeadBias);
  if (d.spec.tied_head) b.tree().ties.emplace_back(b.path("weight"), std::string(table));
}

void attention_projections(Builder& b, const Decoder& d, const AttentionSpec& a) {
  b.linear("q_proj", query_dim(d, a), d.hidden(), a.qkv_bias, Role::kQ, Role::kQBias);
  b.linear("k_proj", key_dim(d, a), d.hidden(), a.qkv_bias, Role::kK, Role::kKBias);
  b.linear("v_proj", value_dim(d, a), d.hidden(), a.qkv_bias, Role::kV, Role::kVBias);
  b.linear("o_proj", d.hidden(), output_dim(d, a), a.output_bias, Role::kO, Role::kOBias);
}

void split_attention(Builder& b, const Decoder& d, const LayerSpec& layer, std::string_view class_name,
                     std::string_view norm_class, bool add_one) {
  const auto scope = b.open("self_attn", class_name);
  attention_projections(b, d, layer.attention);
  query_key_norms(b, d, layer.attention, norm_class, add_one);
}

void query_key_norms(Builder& b, const Decoder& d, const AttentionSpec& a, std::string_view norm_class, bool add_one) {
  if (a.qk_norm == QkNorm::kNone) return;
  const bool all = a.qk_norm == QkNorm::kAllHeads;
  const Dim head{a.head_dim, std::string(d.keys.head_dim)};
  b.norm("q_norm", norm_class, all ? query_dim(d, a) : head, a.q_norm, Role::kQNorm, Role::kQNormBias, add_one);
  b.norm("k_norm", norm_class, all ? key_dim(d, a) : head, a.k_norm, Role::kKNorm, Role::kKNormBias, add_one);
}

void gated_mlp(Builder& b, const Decoder& d, std::string_view name, std::string_view class_name, const Dim& inner,
               bool bias, const MlpRoles& roles, std::string_view act_name) {
  const auto scope = b.open(name, class_name);
  b.linear("gate_proj", inner, d.hidden(), bias, roles.gate, Role::kGateBias);
  b.linear("up_proj", inner, d.hidden(), bias, roles.up, Role::kUpBias);
  b.linear("down_proj", d.hidden(), inner, bias, roles.down, Role::kDownBias);
  b.leaf(act_name, activation_class(d.activation));
}

void other_linear(Builder& b, std::string_view name, std::string_view class_name, const Dim& rows, const Dim& cols,
                  bool bias, Role weight_role, Role bias_role, bool transposed) {
  const auto scope = b.open(name, class_name);
  const Shape stored = transposed ? Shape{cols.value, rows.value} : Shape{rows.value, cols.value};
  b.parameter("weight", stored);
  WantedTensor* w = b.want(weight_role, TensorKind::kMatrix, "weight", rows, cols);
  if (w != nullptr && transposed) w->forms = {{{{w->spec.name, stored, true}}, {}}};
  if (bias) b.vector("bias", rows, bias_role);
}

void plain_mlp(Builder& b, const Decoder& d, const MlpSpec& mlp, std::string_view up, std::string_view down,
               std::string_view linear_class, std::string_view between, std::string_view between_class) {
  const Dim inner = inner_dim(d, mlp);
  const bool transposed = linear_class == "Conv1D";
  other_linear(b, up, linear_class, inner, d.hidden(), mlp.bias, Role::kUp, Role::kUpBias, transposed);
  if (!between.empty()) b.leaf(between, between_class);
  other_linear(b, down, linear_class, d.hidden(), inner, mlp.bias, Role::kDown, Role::kDownBias, transposed);
}

void fused_experts(Builder& b, const Decoder& d, const MoeSpec& moe, const ExpertNames& names) {
  const int64_t experts = moe.experts, inner = moe.intermediate, hidden = d.spec.hidden;
  b.parameter("gate_up_proj", {experts, 2 * inner, hidden});
  b.parameter("down_proj", {experts, hidden, inner});
  if (!b.with_tensors()) return;

  // "model.layers.3" + ".block_sparse_moe.experts." + "7" + ".w1.weight"
  const std::string layer = b.layer_path();
  const auto one = [&](int64_t e, std::string_view part, Shape shape) {
    return WantedSource{fmt::format("{}.{}.{}.{}.weight", layer, names.block, e, part), std::move(shape)};
  };
  WantedForm gate_up, down;
  gate_up.sources.reserve(static_cast<size_t>(2 * experts));
  down.sources.reserve(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) {
    gate_up.sources.push_back(one(e, names.gate, {inner, hidden}));
    gate_up.sources.push_back(one(e, names.up, {inner, hidden}));
    down.sources.push_back(one(e, names.down, {hidden, inner}));
  }
  const auto bank = [&](Role role, std::string_view parameter, Dim rows, Dim cols, WantedForm separate) {
    WantedForm fused{{{b.path(parameter), {experts, rows.value, cols.value}}}, {}};
    WantedTensor* w =
        b.want(role, TensorKind::kBank, parameter, std::move(rows), std::move(cols), static_cast<int32_t>(experts));
    w->forms = {std::move(separate), std::move(fused)};
    if (names.fused_first) std::swap(w->forms[0], w->forms[1]);
  };
  bank(Role::kExpertsGateUp, "gate_up_proj", {2 * inner, "2 x " + std::string(names.inner_key)}, d.hidden(),
       std::move(gate_up));
  bank(Role::kExpertsDown, "down_proj", d.hidden(), {inner, std::string(names.inner_key)}, std::move(down));
}

void router_weight(Builder& b, const Decoder& d, const MoeSpec& moe, std::string_view disk, StoredAs as) {
  const Dim experts{moe.experts, "number of experts"};
  b.parameter("weight", {experts.value, d.spec.hidden}, as);
  b.want(Role::kRouter, TensorKind::kMatrix, "weight", experts, d.hidden());
  if (!disk.empty()) also_called(b, b.layer_path() + "." + std::string(disk));
}

void also_called(Builder& b, std::string name) {
  if (!b.with_tensors()) return;
  WantedTensor& w = b.wanted().back();
  const bool vector = w.spec.kind == TensorKind::kVector && w.rows.value == 1;
  const Shape shape = vector ? Shape{w.cols.value} : Shape{w.rows.value, w.cols.value};
  if (w.forms.empty()) w.forms.push_back({{{w.spec.name, shape}}, {}});
  w.forms.insert(w.forms.begin(), {{{std::move(name), shape}}, {}});
}

}  // namespace berth::arch
