// arch/families/falcon.cc — Falcon: one class, three layouts of the fused projection, three shapes of the block, rope
// or alibi. Its linear layers are a class of their own, which bitsandbytes does not replace.
#include <array>
#include <cmath>

#include "berth/arch/decoder_parts.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

// `newer_default`: what new_decoder_architecture is where the config is silent.
void read(ConfigReader& config, Decoder& d, bool newer_default, const TextKeys& keys) {
  const int64_t hidden = config.integer("hidden_size", 4544, kWidthRange);
  const TextDefaults defaults{.vocab = 65024,
                              .hidden = 4544,
                              .intermediate = std::min<int64_t>(4 * hidden, kWidthRange.max),
                              .layers = 32,
                              .heads = 71,
                              .max_position = 2048,
                              .eps = 1e-5,
                              .tied = true,
                              .activation = "gelu"};
  const TextConfig text = read_decoder(config, d, defaults, keys);
  const bool newer = config.boolean("new_decoder_architecture", newer_default);
  const bool multi_query = config.boolean("multi_query", true), alibi = config.boolean("alibi", false);
  const bool parallel = config.boolean("parallel_attn", true), bias = config.boolean("bias", false);
  const int64_t norms = config.integer("num_ln_in_parallel_attn", newer ? 2 : 1, {1, 2});
  // Such a model can be built, saved and quantized, not run: Transformers' forward misses a norm that its constructor
  // left out.
  if (newer && !parallel)
    d.spec.unsupported = "new_decoder_architecture with parallel_attn = false (no library runs such a block)";
  if (!newer && parallel && norms == 2)
    d.spec.unsupported = "num_ln_in_parallel_attn = 2 without new_decoder_architecture (no library runs such a block)";
  d.spec.ropes = {read_rope(config, {}, text.head_dim, text.max_position)};
  d.spec.final_norm = layer_norm(text.eps);
  for (LayerSpec& layer : d.spec.layers) {
    AttentionSpec& a = layer.attention;
    a.kv_heads = static_cast<int32_t>(newer ? text.kv_heads : multi_query ? 1 : text.heads);
    a.fused = newer         ? AttentionSpec::Fused::kQkvByKvHead
              : multi_query ? AttentionSpec::Fused::kQkvRows
                            : AttentionSpec::Fused::kQkvByHead;
    a.qkv_bias = a.output_bias = bias;
    if (alibi) {
      a.rope = -1;
      a.alibi = a.alibi_bf16 = true;
    }
    layer.input_norm = layer_norm(text.eps);
    layer.parallel = parallel;
    if (parallel) layer.parallel_order = LayerSpec::ParallelOrder::kMlpAttnThenH;
    const bool second = !parallel || norms == 2;
    layer.mlp_norm = second ? layer_norm(text.eps) : NormSpec{};
    layer.mlp.gated = false;
    layer.mlp.bias = bias;
  }
}

TextKeys falcon_keys() {
  TextKeys keys;
  keys.intermediate = "ffn_hidden_size";
  keys.kv_heads = "num_kv_heads";
  keys.head_dim = "(hidden_size / num_attention_heads)";
  keys.eps = "layer_norm_epsilon";
  keys.activation = "activation";
  return keys;
}

// Configs from before Transformers had the class, when the code came with the checkpoint.
TextKeys refined_web_keys() {
  TextKeys keys = falcon_keys();
  keys.layers = "n_layer";
  keys.heads = "n_head";
  keys.kv_heads = "n_head_kv";
  keys.head_dim = "(hidden_size / n_head)";
  return keys;
}

void read_falcon(ConfigReader& config, Decoder& d) { read(config, d, false, falcon_keys()); }
// 40B: keys and values by groups of heads, two norms.
void read_refined_web(ConfigReader& config, Decoder& d) { read(config, d, true, refined_web_keys()); }
// 7B and the -rw- models: one norm before both halves, or one after the other.
void read_refined_web_model(ConfigReader& config, Decoder& d) { read(config, d, false, refined_web_keys()); }

void attention(Builder& b, const Decoder& d, const AttentionSpec& a) {
  const auto scope = b.open("self_attention", "FalconAttention");
  const Dim q = query_dim(d, a), k = key_dim(d, a);
  other_linear(b, "query_key_value", "FalconLinear", {q.value + 2 * k.value, q.keys + " + 2 x keys"}, d.hidden(),
               a.qkv_bias, Role::kQkv, Role::kQkvBias);
  other_linear(b, "dense", "FalconLinear", d.hidden(), q, a.output_bias, Role::kO, Role::kOBias);
  b.leaf("attention_dropout", "Dropout");
}

void decoder_layer(Builder& b, const Decoder& d, const LayerSpec& layer) {
  attention(b, d, layer.attention);
  {
    const auto mlp = b.open("mlp", "FalconMLP");
    plain_mlp(b, d, layer.mlp, "dense_h_to_4h", "dense_4h_to_h", "FalconLinear", "act", activation_class(d.activation));
  }
  const auto norm = [&](std::string_view name, const NormSpec& spec, Role weight, Role bias) {
    b.norm(name, "LayerNorm", d.hidden(), spec, weight, bias);
  };
  if (layer.parallel && layer.mlp_norm.present()) {
    norm("ln_attn", layer.input_norm, Role::kInputNorm, Role::kInputNormBias);
    norm("ln_mlp", layer.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias);
    return;
  }
  if (!layer.parallel) norm("post_attention_layernorm", layer.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias);
  norm("input_layernorm", layer.input_norm, Role::kInputNorm, Role::kInputNormBias);
}

void build_falcon(const Decoder& d, Builder& b) {
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"FalconDecoderLayer"};
  {
    const auto model = b.open("transformer", "FalconModel");
    b.mark_base();
    embedding(b, d, "word_embeddings", {});
    layer_list(b, d, "h", "FalconDecoderLayer", decoder_layer);
    b.norm("ln_f", "LayerNorm", d.hidden(), d.spec.final_norm, Role::kFinalNorm, Role::kFinalNormBias);
    rotary_embedding(b, d, "rotary_emb", "FalconRotaryEmbedding");
  }
  head(b, d, "lm_head", "transformer.word_embeddings.weight");
}

// GGUF: parallel blocks with rope only (the metadata has no word for Falcon-RW's alibi); the fused rows are all
// queries, all keys, all values.
void read_gguf_falcon(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "gelu", 10000);
  d.spec.final_norm = layer_norm(text.eps);
  if (gguf.has_tensor("blk.0.attn_qkv.bias") || gguf.has_tensor("blk.0.ffn_norm.weight"))
    d.spec.unsupported = "Falcon-RW in GGUF (its metadata does not tell alibi from rope)";
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.fused = AttentionSpec::Fused::kQkvRows;
    layer.input_norm = layer_norm(text.eps);
    layer.mlp_norm = gguf.has_tensor("blk.0.attn_norm_2.weight") ? layer_norm(text.eps) : NormSpec{};
    layer.parallel = true;
    layer.parallel_order = LayerSpec::ParallelOrder::kMlpAttnThenH;
    layer.mlp.gated = false;
  }
}

constexpr std::array<std::string_view, 1> kClass{"FalconForCausalLM"}, kGguf{"falcon"};
constexpr std::array<Family, 3> kFamilies{{{"falcon", "", kClass, read_falcon, build_falcon, kGguf, read_gguf_falcon},
                                           {"RefinedWeb", "", kClass, read_refined_web, build_falcon},
                                           {"RefinedWebModel", "", kClass, read_refined_web_model, build_falcon}}};

}  // namespace

std::span<const Family> falcon_families() { return kFamilies; }

}  // namespace berth::arch
