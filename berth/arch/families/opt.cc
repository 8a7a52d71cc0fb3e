// arch/families/opt.cc — OPT: learned positions from row 2 on, relu; opt-350m has norms after each half and a narrower
// embedding projected in and out.
#include <array>

#include "berth/arch/decoder_parts.h"

namespace berth::arch {
namespace {

constexpr double kEps = 1e-5;  // torch's default; there is no key

void read_opt(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 50272,
                              .hidden = 768,
                              .intermediate = 3072,
                              .layers = 12,
                              .heads = 12,
                              .max_position = 2048,
                              .eps = kEps,
                              .tied = true,
                              .activation = "relu"};
  TextKeys keys;
  keys.intermediate = "ffn_dim";
  keys.kv_heads = "(num_attention_heads)";
  keys.head_dim = "(hidden_size / num_attention_heads)";
  keys.eps = "(1e-5)";
  keys.activation = "activation_function";
  const TextConfig text = read_decoder(config, d, defaults, keys);
  const bool before = config.boolean("do_layer_norm_before", true), bias = config.boolean("enable_bias", true);
  const bool affine = config.boolean("layer_norm_elementwise_affine", true);
  NormSpec norm = layer_norm(kEps, affine);
  norm.has_weight = affine;
  const bool final_norm = before && !config.boolean("_remove_final_layer_norm", false);
  d.spec.final_norm = final_norm ? norm : NormSpec{};
  const int64_t width = config.integer("word_embed_proj_dim", text.hidden, kWidthRange);
  d.spec.embedding_dim = width == text.hidden ? 0 : static_cast<int32_t>(width);
  d.spec.position_offset = 2;
  d.spec.position_rows = static_cast<int32_t>(std::min<int64_t>(text.max_position, INT32_MAX - 2)) + 2;
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.rope = -1;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    layer.mlp.gated = false;
    layer.mlp.bias = bias;
    layer.norm_after_residual = !before;
    layer.input_norm = layer.mlp_norm = before ? norm : NormSpec{};
    layer.attention_out_norm = layer.mlp_out_norm = before ? NormSpec{} : norm;
  }
}

void decoder_layer(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  const bool after = layer.norm_after_residual;
  {
    const auto attention = b.open("self_attn", "OPTAttention");
    b.linear("k_proj", key_dim(d, a), d.hidden(), a.qkv_bias, Role::kK, Role::kKBias);
    b.linear("v_proj", value_dim(d, a), d.hidden(), a.qkv_bias, Role::kV, Role::kVBias);
    b.linear("q_proj", query_dim(d, a), d.hidden(), a.qkv_bias, Role::kQ, Role::kQBias);
    b.linear("out_proj", d.hidden(), query_dim(d, a), a.output_bias, Role::kO, Role::kOBias);
  }
  b.leaf("activation_fn", activation_class(d.activation));
  b.norm("self_attn_layer_norm", "LayerNorm", d.hidden(), after ? layer.attention_out_norm : layer.input_norm,
         after ? Role::kAttentionOutNorm : Role::kInputNorm,
         after ? Role::kAttentionOutNormBias : Role::kInputNormBias);
  plain_mlp(b, d, layer.mlp, "fc1", "fc2");
  b.norm("final_layer_norm", "LayerNorm", d.hidden(), after ? layer.mlp_out_norm : layer.mlp_norm,
         after ? Role::kMlpOutNorm : Role::kMlpNorm, after ? Role::kMlpOutNormBias : Role::kMlpNormBias);
}

void build_opt(const Decoder& d, Builder& b) {
  const Dim width{d.spec.embedding_dim, "word_embed_proj_dim"};
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"OPTDecoderLayer"};
  {
    const auto model = b.open("model", "OPTModel");
    const auto decoder = b.open("decoder", "OPTDecoder");
    b.mark_base();
    embedding(b, d, "embed_tokens", {});
    {
      const auto positions = b.open("embed_positions", "OPTLearnedPositionalEmbedding");
      b.parameter("weight", {d.spec.position_rows, d.spec.hidden});
      b.want(Role::kPositionEmbedding, TensorKind::kTable, "weight",
             {d.spec.position_rows, "max_position_embeddings + 2"}, d.hidden());
    }
    if (d.spec.embedding_dim > 0) {
      b.linear("project_out", width, d.hidden(), Role::kProjectOut);
      b.linear("project_in", d.hidden(), width, Role::kProjectIn);
    }
    if (d.spec.final_norm.present())
      b.norm("final_layer_norm", "LayerNorm", d.hidden(), d.spec.final_norm, Role::kFinalNorm, Role::kFinalNormBias);
    layer_list(b, d, "layers", "OPTDecoderLayer", decoder_layer);
  }
  head(b, d, "lm_head", "model.decoder.embed_tokens.weight");
}

constexpr std::array<std::string_view, 1> kClass{"OPTForCausalLM"};
constexpr std::array<Family, 1> kFamilies{{{"opt", "", kClass, read_opt, build_opt}}};

}  // namespace

std::span<const Family> opt_families() { return kFamilies; }

}  // namespace berth::arch
