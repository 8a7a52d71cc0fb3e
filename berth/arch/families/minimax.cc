// arch/families/minimax.cc — MiniMax-M2 (one norm over all heads, sigmoid routing with a bias) and M3 (block-sparse
// attention chosen by an indexer, clamped swiglu, a shared expert), in its published wrapper with a vision tower.
#include <algorithm>
#include <array>

#include "berth/arch/families/moe.h"
#include "berth/arch/families/tower_config.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

constexpr ExpertNames kExperts{
    .block = "block_sparse_moe.experts", .gate = "w1", .up = "w3", .down = "w2", .inner_key = "intermediate_size"};

MoeSpec read_experts(ConfigReader& config, int64_t intermediate, int64_t experts, int64_t chosen) {
  MoeSpec moe;
  moe.experts = static_cast<int32_t>(config.integer({"num_local_experts", "num_experts"}, experts, kExpertRange));
  moe.experts_per_token = static_cast<int32_t>(config.integer("num_experts_per_tok", chosen, {1, moe.experts}));
  moe.intermediate = static_cast<int32_t>(intermediate);
  moe.router = RouterKind::kSigmoid;
  moe.renormalize = true;
  moe.selection_bias = true;
  return moe;
}

void selection_bias(Builder& b, const MoeSpec& moe) {
  const Dim experts{moe.experts, "num_local_experts"};
  b.buffer("e_score_correction_bias", {experts.value}, StoredAs::kModelDtype, true);
  b.want(Role::kSelectionBias, TensorKind::kVector, "e_score_correction_bias", {1, ""}, experts);
  also_called(b, b.layer_path() + ".block_sparse_moe.e_score_correction_bias");
}

// --- M2

void set_m2_layers(Decoder& d, double eps, const MoeSpec& moe) {
  for (LayerSpec& layer : d.spec.layers) {
    layer.attention.qk_norm = QkNorm::kAllHeads;
    layer.attention.q_norm = layer.attention.k_norm = rms_norm(eps);
    make_sparse(layer, moe);
  }
}

void read_m2(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 200064,
                              .hidden = 3072,
                              .intermediate = 1536,
                              .layers = 62,
                              .heads = 48,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .max_position = 196608};
  const TextConfig text = read_decoder(config, d, defaults);
  d.spec.ropes = {read_rope(config, {.theta = 5e6, .part = 1.0}, text.head_dim, text.max_position)};
  set_m2_layers(d, text.eps, read_experts(config, text.intermediate, 256, 8));
}

void read_gguf_m2(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "silu", 5e6);
  MoeSpec moe = read_gguf_experts(gguf, RouterKind::kSigmoid, true);
  moe.selection_bias = gguf.has_tensor("blk.0.exp_probs_b.bias");
  set_m2_layers(d, text.eps, moe);
}

void build_m2(const Decoder& d, Builder& b) {
  DecoderParts parts{.prefix = "MiniMaxM2"};
  parts.mlp = [](Builder& builder, const Decoder& decoder, const LayerSpec& layer) {
    const auto block = builder.open("mlp", "MiniMaxM2SparseMoeBlock");
    selection_bias(builder, *layer.mlp.moe);
    router_module(builder, decoder, *layer.mlp.moe, "gate", "MiniMaxM2TopKRouter", "block_sparse_moe.gate.weight");
    experts_module(builder, decoder, *layer.mlp.moe, "experts", "MiniMaxM2Experts", kExperts, decoder.activation);
  };
  causal_lm(b, d, parts);
}

// --- M3

// A list of 0 and 1 per layer; empty where absent.
std::vector<int64_t> read_flags(ConfigReader& config, std::string_view key, size_t layers) {
  std::vector<int64_t> flags = config.integers(std::string(key), {0, 1});
  if (!flags.empty() && flags.size() != layers) {
    config.fail(std::string(key), "one entry per layer");
    flags.clear();
  }
  return flags;
}

// New files: index_* keys and "minimax_m3_sparse" in layer_types; old ones: sparse_attention_config.
void read_indexers(ConfigReader& config, Decoder& d) {
  ConfigReader old = config.nested("sparse_attention_config");
  const std::vector<int64_t> flags = read_flags(old, "sparse_attention_freq", d.spec.layers.size());
  const auto kinds = read_layer_kinds(config, static_cast<int64_t>(d.spec.layers.size()), [&](int64_t i) {
    return !flags.empty() && flags[static_cast<size_t>(i)] != 0 ? AttentionKind::kBlockSparse : AttentionKind::kFull;
  });
  const auto number = [&](std::string_view key, std::string_view old_key, int64_t fallback, int64_t least = 1) {
    const format::IntRange range{least, kPositionRange.max};
    return static_cast<int32_t>(config.integer(key, old.integer(old_key, fallback, range), range));
  };
  const int32_t heads = number("index_n_heads", "sparse_num_index_heads", 4);
  const int32_t head_dim = number("index_head_dim", "sparse_index_dim", 128);
  const int32_t block = number("index_block_size", "sparse_block_size", 128);
  const int32_t top_k = number("index_topk_blocks", "sparse_topk_blocks", 16);
  const int32_t local = number("index_local_blocks", "sparse_local_block", 1, 0);
  config.fail_if(old.status());
  const bool indexed = std::find(kinds.begin(), kinds.end(), AttentionKind::kBlockSparse) != kinds.end();
  if (indexed && d.spec.layers[0].attention.heads % heads != 0)
    config.fail(config.view().broken("num_attention_heads is no multiple of the indexer's number of heads"));
  if (indexed && head_dim < d.spec.ropes[0].rotary_dim)
    d.spec.unsupported = "indexer heads of fewer channels than turn with the position";
  for (size_t i = 0; i < kinds.size(); ++i) {
    AttentionSpec& a = d.spec.layers[i].attention;
    if (kinds[i] != AttentionKind::kBlockSparse) continue;
    a.kind = kinds[i];
    a.index_heads = heads;
    a.index_head_dim = head_dim;
    a.index_block = block;
    a.index_top_k = top_k;
    a.index_local_blocks = local;
  }
}

std::vector<bool> read_sparse_layers(ConfigReader& config, size_t layers) {
  std::vector<bool> sparse(layers, true);
  const std::vector<std::string> words = config.texts("mlp_layer_types");
  if (!words.empty()) {
    if (words.size() != layers) return config.fail("mlp_layer_types", "one entry per layer"), sparse;
    for (size_t i = 0; i < layers; ++i) sparse[i] = words[i] == "sparse";
    return sparse;
  }
  const std::vector<int64_t> flags = read_flags(config, "moe_layer_freq", layers);
  for (size_t i = 0; i < flags.size(); ++i) sparse[i] = flags[i] != 0;
  return sparse;
}

void read_m3(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 200064,
                              .hidden = 6144,
                              .intermediate = 3072,
                              .layers = 60,
                              .heads = 64,
                              .kv_heads = 4,
                              .head_dim = 128,
                              .max_position = 524288};
  TextConfig text = read_text_config(config, defaults);
  text.activation = "swigluoai";  // whatever hidden_act says
  d.keys = text.keys;
  d.activation = text.activation;
  d.spec = llama_spec(config, text);
  d.spec.ropes = {read_rope(config, {.theta = 5e6, .part = 0.5}, text.head_dim, text.max_position)};
  read_indexers(config, d);
  MoeSpec moe = read_experts(config, text.intermediate, 128, 4);
  moe.routed_scale = config.number("routed_scaling_factor", 2);
  moe.shared_intermediate = static_cast<int32_t>(config.integer("shared_intermediate_size", 3072, kWidthRange));
  const int64_t dense = config.integer("dense_intermediate_size", 12288, kWidthRange);
  const double limit = config.number("swiglu_limit", 7), alpha = config.number("swiglu_alpha", 1.702);
  const std::vector<bool> sparse = read_sparse_layers(config, d.spec.layers.size());
  for (size_t i = 0; i < d.spec.layers.size(); ++i) {
    LayerSpec& layer = d.spec.layers[i];
    layer.attention.qk_norm = QkNorm::kPerHead;
    layer.attention.q_norm = layer.attention.k_norm = rms_norm(text.eps);
    layer.mlp.intermediate = static_cast<int32_t>(dense);
    layer.mlp.fused_gate_up = true;
    layer.mlp.swiglu_limit = limit;
    layer.mlp.swiglu_alpha = alpha;
    if (sparse[i]) make_sparse(layer, moe);
  }
}

void attention(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  const auto scope = b.open("self_attn", "MiniMaxM3VLAttention");
  attention_projections(b, d, a);
  query_key_norms(b, d, a, "MiniMaxM3VLRMSNorm", true);
  if (a.kind != AttentionKind::kBlockSparse) return;
  const auto indexer = b.open("indexer", "MiniMaxM3VLIndexer");
  const Dim head{a.index_head_dim, "index_head_dim"};
  const Dim heads{int64_t{a.index_heads} * a.index_head_dim, "index_n_heads x index_head_dim"};
  const std::string disk = b.layer_path() + ".self_attn.index_";
  b.linear("q_proj", heads, d.hidden(), Role::kIndexQ);
  also_called(b, disk + "q_proj.weight");
  b.linear("k_proj", head, d.hidden(), Role::kIndexK);
  also_called(b, disk + "k_proj.weight");
  const NormSpec norm = rms_norm(a.q_norm.eps);
  b.norm("q_norm", "MiniMaxM3VLRMSNorm", head, norm, Role::kIndexQNorm, Role::kIndexQNorm, true);
  also_called(b, disk + "q_norm.weight");
  b.norm("k_norm", "MiniMaxM3VLRMSNorm", head, norm, Role::kIndexKNorm, Role::kIndexKNorm, true);
  also_called(b, disk + "k_norm.weight");
}

// gate_up_proj in memory, gate_proj and up_proj on disk below `disk`.
void dense_mlp(Builder& b, const Decoder& d, std::string_view name, const Dim& inner, Role gate_up, Role down,
               const std::string& disk) {
  const auto scope = b.open(name, "MiniMaxM3VLDenseMLP");
  b.linear("gate_up_proj", {2 * inner.value, "2 x " + inner.keys}, d.hidden(), gate_up);
  if (b.with_tensors()) {
    WantedTensor& w = b.wanted().back();
    const Shape half{inner.value, d.spec.hidden};
    w.forms = {{{{disk + ".gate_proj.weight", half}, {disk + ".up_proj.weight", half}}, {}},
               {{{w.spec.name, {2 * inner.value, d.spec.hidden}}}, {}}};
  }
  b.linear("down_proj", d.hidden(), inner, down);
  if (disk != b.path()) also_called(b, disk + ".down_proj.weight");
}

void mlp(Builder& b, const Decoder& d, const LayerSpec& layer) {
  if (!layer.mlp.moe) {
    dense_mlp(b, d, "mlp", {layer.mlp.intermediate, "dense_intermediate_size"}, Role::kGateUp, Role::kDown,
              b.layer_path() + ".mlp");
    return;
  }
  const MoeSpec& moe = *layer.mlp.moe;
  const auto block = b.open("mlp", "MiniMaxM3VLSparseMoeBlock");
  {
    const auto gate = b.open("gate", "MiniMaxM3VLTopKRouter");
    router_weight(b, d, moe, "block_sparse_moe.gate.weight");
    selection_bias(b, moe);
  }
  experts_module(b, d, moe, "experts", "MiniMaxM3VLExperts", kExperts, "");
  dense_mlp(b, d, "shared_experts", {moe.shared_intermediate, "shared_intermediate_size"}, Role::kSharedGateUp,
            Role::kSharedDown, b.layer_path() + ".block_sparse_moe.shared_experts");
}

DecoderParts m3_parts() {
  DecoderParts parts{.prefix = "MiniMaxM3VL", .model_class = "MiniMaxM3VLTextModel", .add_one = true};
  parts.attention = attention;
  parts.mlp = mlp;
  return parts;
}

void build_m3_text(const Decoder& d, Builder& b) { causal_lm(b, d, m3_parts()); }

void vision_layer(Builder& b, int64_t index, int64_t hidden, int64_t inner, std::string_view activation) {
  const auto layer = b.open(std::to_string(index), "MiniMaxM3VLVisionEncoderLayer");
  {
    const auto self = b.open("self_attn", "MiniMaxM3VLVisionAttention");
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) b.linear(name, hidden, hidden, true);
  }
  b.layer_norm("layer_norm1", hidden);
  {
    const auto feed = b.open("mlp", "MiniMaxM3VLVisionMLP");
    b.leaf("activation_fn", activation_class(activation));
    b.linear("fc1", inner, hidden, true);
    b.linear("fc2", hidden, inner, true);
  }
  b.layer_norm("layer_norm2", hidden);
}

void vision_tower(const TowerConfig& config, int64_t hidden, int64_t temporal, Builder& b) {
  const int64_t inner = config.integer("intermediate_size", 5120), patch = config.integer("patch_size", 14);
  const int64_t heads = std::max<int64_t>(1, config.integer("num_attention_heads", 16));
  const auto tower = b.open("vision_tower", "MiniMaxM3VLVisionModel");
  {
    const auto embeddings = b.open("embeddings", "MiniMaxM3VLVisionEmbeddings");
    const auto conv = b.open("proj", "Conv3d");
    b.parameter("weight", {hidden, config.integer("num_channels", 3), temporal, patch, patch});
  }
  b.layer_norm("pre_layrnorm", hidden);
  {
    const auto layers = b.open("layers", "ModuleList");
    const std::string activation = config.text("hidden_act", "gelu");
    for (int64_t i = 0; i < config.layers("num_hidden_layers", 32); ++i) vision_layer(b, i, hidden, inner, activation);
  }
  const auto rotary = b.open("rotary_emb", "MiniMaxM3VLVisionRotaryEmbedding");
  // Three axes share a head's channels: whole pairs for each.
  const int64_t per_axis = 2 * (hidden / heads / 2 / 3);
  for (const char* name : {"inv_freq", "original_inv_freq"}) b.buffer(name, {per_axis / 2}, StoredAs::kF32, false);
}

void build_m3(const Decoder& d, Builder& b) {
  const TowerConfig vision(d.config, "vision_config");
  const TowerConfig compression(vision.view(), "img_token_compression_config");
  const TowerConfig outer{d.config};
  const int64_t hidden = vision.integer("hidden_size", 1280);
  const int64_t merge = vision.integer("spatial_merge_size", compression.integer("spatial_merge_size", 2));
  const int64_t temporal = vision.integer("temporal_patch_size", compression.integer("temporal_patch_size", 2));
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"MiniMaxM3VLDecoderLayer", "MiniMaxM3VLVisionEncoderLayer"};
  {
    const auto model = b.open("model", "MiniMaxM3VLModel");
    vision_tower(vision, hidden, temporal, b);
    {
      const auto projector = b.open("multi_modal_projector", "MiniMaxM3VLMultiModalProjector");
      const int64_t middle = outer.integer("projector_hidden_size", d.spec.hidden), text = d.spec.hidden;
      const bool bias = outer.boolean("multimodal_projector_bias", true);
      const std::string activation = activation_class(outer.text("projector_hidden_act", "gelu"));
      b.linear("linear_1", middle, hidden, bias);
      b.leaf("act", activation);
      b.linear("linear_2", text, middle, bias);
      b.linear("merge_linear_1", middle, text * merge * merge, bias);
      b.leaf("merge_act", activation);
      b.linear("merge_linear_2", text, middle, bias);
    }
    const auto language = b.open("language_model", "MiniMaxM3VLTextModel");
    text_model(b, d, m3_parts());
  }
  head(b, d, "lm_head", "model.language_model.embed_tokens.weight");
}

constexpr std::array<std::string_view, 1> kM2Class{"MiniMaxM2ForCausalLM"}, kM2Gguf{"minimax-m2"},
    kM3Class{"MiniMaxM3SparseForConditionalGeneration"}, kM3TextClass{"MiniMaxM3VLForCausalLM"};
constexpr std::array<Family, 3> kFamilies{{
    {"minimax_m2", "", kM2Class, read_m2, build_m2, kM2Gguf, read_gguf_m2},
    {"minimax_m3_vl", "text_config", kM3Class, read_m3, build_m3},
    {"minimax_m3_vl_text", "", kM3TextClass, read_m3, build_m3_text},
}};

}  // namespace

std::span<const Family> minimax_families() { return kFamilies; }

}  // namespace berth::arch
