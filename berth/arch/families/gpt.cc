// arch/families/gpt.cc — GPT-2 (weights [in, out], learned positions), GPT-J (parallel, rope on pairs), GPT-NeoX
// (parallel with two norms, fused by head).
#include <array>
#include <cmath>

#include "berth/arch/decoder_parts.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

TextKeys gpt_keys() {
  TextKeys keys;
  keys.hidden = "n_embd";
  keys.intermediate = "n_inner";
  keys.layers = "n_layer";
  keys.heads = "n_head";
  keys.kv_heads = "(n_head)";
  keys.head_dim = "(n_embd / n_head)";
  keys.max_position = "n_positions";
  keys.eps = "layer_norm_epsilon";
  keys.activation = "activation_function";
  return keys;
}

int64_t four_times(ConfigReader& config, int64_t default_hidden) {
  return std::min<int64_t>(4 * config.integer("n_embd", default_hidden, kWidthRange), kWidthRange.max);
}

void set_layer_norms(ModelSpec& spec, double eps) {
  spec.final_norm = layer_norm(eps);
  for (LayerSpec& layer : spec.layers) {
    layer.input_norm = layer.mlp_norm = layer_norm(eps);
    layer.mlp.gated = false;
    layer.mlp.bias = true;
  }
}

void named_norm(Builder& b, const Decoder& d, std::string_view name, const NormSpec& norm, Role weight, Role bias) {
  b.norm(name, "LayerNorm", d.hidden(), norm, weight, bias);
}

// --- GPT-2

void read_gpt2(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 50257,
                              .hidden = 768,
                              .intermediate = four_times(config, 768),
                              .layers = 12,
                              .heads = 12,
                              .max_position = 1024,
                              .eps = 1e-5,
                              .tied = true,
                              .activation = "gelu_new"};
  const TextConfig text = read_decoder(config, d, defaults, gpt_keys());
  set_layer_norms(d.spec, text.eps);
  d.spec.position_rows = static_cast<int32_t>(text.max_position);
  const bool scaled = config.boolean("scale_attn_weights", true);
  const bool by_layer = config.boolean("scale_attn_by_inverse_layer_idx", false);
  for (size_t i = 0; i < d.spec.layers.size(); ++i) {
    AttentionSpec& a = d.spec.layers[i].attention;
    a.rope = -1;
    a.fused = AttentionSpec::Fused::kQkvRows;
    a.qkv_bias = a.output_bias = true;
    if (!scaled) a.scale = 1;
    if (by_layer) a.scale /= static_cast<double>(i + 1);
  }
}

void gpt2_block(Builder& b, const Decoder& d, const LayerSpec& layer) {
  named_norm(b, d, "ln_1", layer.input_norm, Role::kInputNorm, Role::kInputNormBias);
  {
    const auto attention = b.open("attn", "GPT2Attention");
    other_linear(b, "c_attn", "Conv1D", {3 * d.spec.hidden, "3 x n_embd"}, d.hidden(), true, Role::kQkv, Role::kQkvBias,
                 true);
    other_linear(b, "c_proj", "Conv1D", d.hidden(), d.hidden(), true, Role::kO, Role::kOBias, true);
    b.leaf("attn_dropout", "Dropout");
    b.leaf("resid_dropout", "Dropout");
  }
  named_norm(b, d, "ln_2", layer.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias);
  const auto mlp = b.open("mlp", "GPT2MLP");
  plain_mlp(b, d, layer.mlp, "c_fc", "c_proj", "Conv1D");
  b.leaf("act", activation_class(d.activation));
  b.leaf("dropout", "Dropout");
}

void build_gpt2(const Decoder& d, Builder& b) {
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"GPT2Block"};
  {
    const auto model = b.open("transformer", "GPT2Model");
    b.mark_base();
    embedding(b, d, "wte", {});
    {
      const auto positions = b.open("wpe", "Embedding");
      b.parameter("weight", {d.spec.position_rows, d.spec.hidden});
      b.want(Role::kPositionEmbedding, TensorKind::kTable, "weight", {d.spec.position_rows, "n_positions"}, d.hidden());
    }
    b.leaf("drop", "Dropout");
    layer_list(b, d, "h", "GPT2Block", gpt2_block);
    named_norm(b, d, "ln_f", d.spec.final_norm, Role::kFinalNorm, Role::kFinalNormBias);
  }
  head(b, d, "lm_head", "transformer.wte.weight");
}

// --- GPT-J

void set_gptj_layers(Decoder& d) {
  d.spec.head_bias = true;
  for (LayerSpec& layer : d.spec.layers) {
    layer.parallel = true;
    layer.parallel_order = LayerSpec::ParallelOrder::kAttnMlpThenH;
    layer.mlp_norm = {};
  }
}

void read_gptj(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 50400,
                              .hidden = 4096,
                              .intermediate = four_times(config, 4096),
                              .layers = 28,
                              .heads = 16,
                              .max_position = 2048,
                              .eps = 1e-5,
                              .activation = "gelu_new"};
  const TextConfig text = read_decoder(config, d, defaults, gpt_keys());
  set_layer_norms(d.spec, text.eps);
  set_gptj_layers(d);
  RopeSpec rope = plain_rope(text.head_dim, 10000, text.max_position);  // theta has no key
  rope.layout = RopeLayout::kPairs;
  rope.rotary_dim = static_cast<int32_t>(
      config.is_null("rotary_dim") ? text.head_dim : config.integer("rotary_dim", 64, {2, kHeadRange.max}));
  if (rope.rotary_dim % 2 != 0 || rope.rotary_dim > text.head_dim)
    config.fail("rotary_dim", "an even number, at most a head's " + std::to_string(text.head_dim));
  d.spec.ropes = {rope};
}

void gptj_block(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  named_norm(b, d, "ln_1", layer.input_norm, Role::kInputNorm, Role::kInputNormBias);
  {
    const auto attention = b.open("attn", "GPTJAttention");
    b.leaf("resid_dropout", "Dropout");
    b.linear("k_proj", key_dim(d, a), d.hidden(), Role::kK);
    b.linear("v_proj", value_dim(d, a), d.hidden(), Role::kV);
    b.linear("q_proj", query_dim(d, a), d.hidden(), Role::kQ);
    b.linear("out_proj", d.hidden(), query_dim(d, a), Role::kO);
  }
  const auto mlp = b.open("mlp", "GPTJMLP");
  plain_mlp(b, d, layer.mlp, "fc_in", "fc_out");
  b.leaf("act", activation_class(d.activation));
  b.leaf("dropout", "Dropout");
}

void build_gptj(const Decoder& d, Builder& b) {
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"GPTJBlock"};
  {
    const auto model = b.open("transformer", "GPTJModel");
    b.mark_base();
    embedding(b, d, "wte", {});
    b.leaf("drop", "Dropout");
    layer_list(b, d, "h", "GPTJBlock", gptj_block);
    named_norm(b, d, "ln_f", d.spec.final_norm, Role::kFinalNorm, Role::kFinalNormBias);
    const auto rotary = b.open("rotary_emb", "GPTJRotaryEmbedding");
    b.buffer("embed_positions", {d.spec.max_position, d.spec.ropes.front().rotary_dim}, StoredAs::kF32, false);
  }
  head(b, d, "lm_head", "transformer.wte.weight");
}

// --- GPT-NeoX

void set_neox_layers(Decoder& d, AttentionSpec::Fused fused, bool parallel, bool bias) {
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.fused = fused;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    layer.parallel = parallel;
    if (parallel) layer.parallel_order = LayerSpec::ParallelOrder::kMlpAttnThenH;
  }
}

void read_neox(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 50432,
                              .hidden = 6144,
                              .intermediate = 24576,
                              .layers = 44,
                              .heads = 64,
                              .max_position = 2048,
                              .eps = 1e-5,
                              .activation = "gelu"};
  TextKeys keys;
  keys.eps = "layer_norm_eps";
  const TextConfig text = read_decoder(config, d, defaults, keys);
  set_layer_norms(d.spec, text.eps);
  d.spec.ropes = {read_rope(config, {.part = 0.25}, text.head_dim, text.max_position)};
  const bool parallel = config.boolean("use_parallel_residual", true), bias = config.boolean("attention_bias", true);
  set_neox_layers(d, AttentionSpec::Fused::kQkvByHead, parallel, bias);
}

void neox_layer(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  named_norm(b, d, "input_layernorm", layer.input_norm, Role::kInputNorm, Role::kInputNormBias);
  named_norm(b, d, "post_attention_layernorm", layer.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias);
  b.leaf("post_attention_dropout", "Dropout");
  b.leaf("post_mlp_dropout", "Dropout");
  {
    const auto attention = b.open("attention", "GPTNeoXAttention");
    b.linear("query_key_value", {3 * d.spec.hidden, "3 x hidden_size"}, d.hidden(), a.qkv_bias, Role::kQkv,
             Role::kQkvBias);
    b.linear("dense", d.hidden(), d.hidden(), a.output_bias, Role::kO, Role::kOBias);
  }
  const auto mlp = b.open("mlp", "GPTNeoXMLP");
  plain_mlp(b, d, layer.mlp, "dense_h_to_4h", "dense_4h_to_h");
  b.leaf("act", activation_class(d.activation));
}

void build_neox(const Decoder& d, Builder& b) {
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"GPTNeoXLayer"};
  {
    const auto model = b.open("gpt_neox", "GPTNeoXModel");
    b.mark_base();
    embedding(b, d, "embed_in", {});
    b.leaf("emb_dropout", "Dropout");
    layer_list(b, d, "layers", "GPTNeoXLayer", neox_layer);
    named_norm(b, d, "final_layer_norm", d.spec.final_norm, Role::kFinalNorm, Role::kFinalNormBias);
    rotary_embedding(b, d, "rotary_emb", "GPTNeoXRotaryEmbedding");
  }
  head(b, d, "lm_head", "gpt_neox.embed_in.weight");
  also_called(b, "embed_out.weight");
}

// --- GGUF: weights of GPT-2 lie [out, in], GPT-NeoX's fused rows are all queries, all keys, all values.

void read_gguf_gpt2(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "gelu_new", 10000);
  set_layer_norms(d.spec, text.eps);
  d.spec.position_rows = static_cast<int32_t>(text.max_position);
  d.spec.ropes.clear();
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.rope = -1;
    layer.attention.fused = AttentionSpec::Fused::kQkvRows;
    layer.attention.qkv_bias = layer.attention.output_bias = true;
  }
}

void read_gguf_gptj(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "gelu_new", 10000);
  set_layer_norms(d.spec, text.eps);
  set_gptj_layers(d);
  d.spec.ropes.front().layout = RopeLayout::kPairs;
}

void read_gguf_neox(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "gelu", 10000);
  set_layer_norms(d.spec, text.eps);
  set_neox_layers(d, AttentionSpec::Fused::kQkvRows, gguf.boolean("use_parallel_residual", true),
                  gguf.has_tensor("blk.0.attn_qkv.bias"));
}

constexpr std::array<std::string_view, 1> kGpt2Gguf{"gpt2"}, kGptJGguf{"gptj"}, kNeoXGguf{"gptneox"};
constexpr std::array<std::string_view, 1> kGpt2Class{"GPT2LMHeadModel"}, kGptJClass{"GPTJForCausalLM"},
    kNeoXClass{"GPTNeoXForCausalLM"};
constexpr std::array<Family, 3> kFamilies{{
    {"gpt2", "", kGpt2Class, read_gpt2, build_gpt2, kGpt2Gguf, read_gguf_gpt2},
    {"gptj", "", kGptJClass, read_gptj, build_gptj, kGptJGguf, read_gguf_gptj},
    {"gpt_neox", "", kNeoXClass, read_neox, build_neox, kNeoXGguf, read_gguf_neox},
}};

}  // namespace

std::span<const Family> gpt_families() { return kFamilies; }

}  // namespace berth::arch
