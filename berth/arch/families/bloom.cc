// arch/families/bloom.cc — BLOOM: alibi, a norm after the embedding, projections fused by head, MLP four times as wide.
#include <array>

#include "berth/arch/decoder_parts.h"

namespace berth::arch {
namespace {

void set_layers(Decoder& d, double eps, AttentionSpec::Fused fused) {
  d.spec.embedding_norm = d.spec.final_norm = layer_norm(eps);
  for (LayerSpec& layer : d.spec.layers) {
    layer.input_norm = layer.mlp_norm = layer_norm(eps);
    layer.attention.rope = -1;
    layer.attention.alibi = true;
    layer.attention.fused = fused;
    layer.attention.qkv_bias = layer.attention.output_bias = true;
    layer.mlp.gated = false;
    layer.mlp.bias = true;
  }
}

// Either spelling of each key; the first is the library's.
void read_bloom(ConfigReader& config, Decoder& d) {
  TextKeys keys;
  keys.hidden = config.has("hidden_size") ? "hidden_size" : "n_embed";
  keys.layers = config.has("n_layer") ? "n_layer" : "num_hidden_layers";
  keys.heads = config.has("n_head") ? "n_head" : "num_attention_heads";
  keys.intermediate = "(4 x hidden_size)";
  keys.kv_heads = "(n_head)";
  keys.head_dim = "(hidden_size / n_head)";
  keys.max_position = "seq_length";
  keys.eps = "layer_norm_epsilon";
  keys.activation = "(gelu)";
  const int64_t hidden = config.integer(keys.hidden, 64, kWidthRange);
  const TextDefaults defaults{.vocab = 250880,
                              .hidden = 64,
                              .intermediate = std::min<int64_t>(4 * hidden, kWidthRange.max),
                              .layers = 2,
                              .heads = 8,
                              .max_position = 2048,
                              .eps = 1e-5,
                              .tied = true,
                              .activation = "gelu_new"};
  const TextConfig text = read_decoder(config, d, defaults, keys);
  set_layers(d, text.eps, AttentionSpec::Fused::kQkvByHead);
  // Transformers computes these products in slices, to no other end, and forgets their biases (modeling_bloom.py 5.24).
  if (config.boolean("slow_but_exact", false) && config.integer("pretraining_tp", 1, {1, kWidthRange.max}) > 1)
    d.spec.unsupported = "slow_but_exact with pretraining_tp above 1, where Transformers leaves biases out";
  const bool from_norm = config.boolean("apply_residual_connection_post_layernorm", false);
  for (LayerSpec& layer : d.spec.layers) layer.residual_from_norm = from_norm;
}

void block(Builder& b, const Decoder& d, const LayerSpec& layer) {
  b.norm("input_layernorm", "LayerNorm", d.hidden(), layer.input_norm, Role::kInputNorm, Role::kInputNormBias);
  {
    const auto attention = b.open("self_attention", "BloomAttention");
    b.linear("query_key_value", {int64_t{3} * d.spec.hidden, "3 x hidden_size"}, d.hidden(), true, Role::kQkv,
             Role::kQkvBias);
    b.linear("dense", d.hidden(), d.hidden(), true, Role::kO, Role::kOBias);
    b.leaf("attention_dropout", "Dropout");
  }
  b.norm("post_attention_layernorm", "LayerNorm", d.hidden(), layer.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias);
  const auto mlp = b.open("mlp", "BloomMLP");
  plain_mlp(b, d, layer.mlp, "dense_h_to_4h", "dense_4h_to_h", "Linear", "gelu_impl", "BloomGelu");
}

void build_bloom(const Decoder& d, Builder& b) {
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"BloomBlock"};
  {
    const auto model = b.open("transformer", "BloomModel");
    b.mark_base();
    embedding(b, d, "word_embeddings", {});
    b.norm("word_embeddings_layernorm", "LayerNorm", d.hidden(), d.spec.embedding_norm, Role::kEmbeddingNorm,
           Role::kEmbeddingNormBias);
    layer_list(b, d, "h", "BloomBlock", block);
    b.norm("ln_f", "LayerNorm", d.hidden(), d.spec.final_norm, Role::kFinalNorm, Role::kFinalNormBias);
  }
  head(b, d, "lm_head", "transformer.word_embeddings.weight");
}

// GGUF: the fused rows are all queries, all keys, all values.
void read_gguf_bloom(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "gelu_new", 10000);
  d.spec.ropes.clear();
  set_layers(d, text.eps, AttentionSpec::Fused::kQkvRows);
}

constexpr std::array<std::string_view, 1> kClass{"BloomForCausalLM"}, kGguf{"bloom"};
constexpr std::array<Family, 1> kFamilies{{{"bloom", "", kClass, read_bloom, build_bloom, kGguf, read_gguf_bloom}}};

}  // namespace

std::span<const Family> bloom_families() { return kFamilies; }

}  // namespace berth::arch
