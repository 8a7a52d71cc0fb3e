// arch/model_spec.h — what the engine must compute, as a value: made from a Hugging Face config or GGUF metadata alike.
//
// `model`, `kernel`, `load` and `sizing` see this and never a config file. A family (families/NAME.cc) fills it; shared
// parts (rope kinds, norm kinds, attention kinds, MLP and expert kinds) are enumerated here so that adding a family
// adds no new mechanism unless it really has one. Scalars are doubles, rounded once to fp32 where they are used.
//
// Source of every field: the architecture's section in the published Transformers 5 code (docs/architectures.md).
// Start reading at: ModelSpec, then LayerSpec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/arch/tensor_recipe.h"
#include "berth/tensor/shape.h"

namespace berth::arch {

enum class NormKind {
  kNone,
  kRms,    // (x * r) * w; families with 1 + w add the one on load (TensorRecipe::add_one)
  kLayer,  // (x - mu) * r * w + b
};

struct NormSpec {
  NormKind kind = NormKind::kNone;
  double eps = 0;
  bool has_weight = true;
  bool has_bias = false;
  bool present() const { return kind != NormKind::kNone; }
  bool operator==(const NormSpec&) const = default;
};

enum class RopeScaling { kDefault, kLinear, kProportional, kLlama3, kYarn, kDynamic, kLongRope };
enum class RopeLayout {
  kHalves,         // pair (j, j + rotary_dim/2)
  kPairs,          // pair (2j, 2j+1), written back in place
  kPairsToHalves,  // pair (2j, 2j+1); outputs: all first parts, then all second parts (DeepSeek)
};

struct RopeSpec {
  RopeScaling scaling = RopeScaling::kDefault;
  RopeLayout layout = RopeLayout::kHalves;
  int32_t rotary_dim = 0;  // channels turned; the rest is copied
  int32_t head_dim = 0;    // denominator of proportional rope
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn
  double attention_scaling = 1;                      // multiplies cos and sin
  double partial_rotary_factor = 1;                  // proportional
  int64_t original_max_position = 0;                 // llama3, yarn, longrope, dynamic
  int64_t max_position = 0;
  std::vector<double> short_factor, long_factor;  // longrope, rotary_dim/2 entries each
  // longrope: keys of a sequence that grows beyond its border are computed anew with the long list (Phi-3); else they
  // keep the angles they have.
  bool renews = false;
  std::vector<float> frequency_divisors;  // GGUF rope_freqs: divides inv_freq per pair; empty otherwise
  bool operator==(const RopeSpec&) const = default;
};

enum class AttentionKind {
  kFull,
  kSliding,      // the last `window` keys including itself
  kChunked,      // Llama 4: keys of the same chunk of `window` positions
  kBlockSparse,  // MiniMax-M3: blocks chosen by an indexer
  kLatent,       // DeepSeek: low-rank K and V
  kDeltaNet,     // gated delta rule, recurrent
};

enum class QkNorm { kNone, kPerHead, kAllHeads };

// Attention of one layer. Shapes: q [heads*head_dim, H], k [kv_heads*head_dim, H], v [kv_heads*v_head_dim, H].
struct AttentionSpec {
  AttentionKind kind = AttentionKind::kFull;
  int32_t heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  int32_t window = 0;  // keys (sliding) or chunk (chunked); 0 none
  double scale = 1;    // scores are multiplied by it
  double softcap = 0;  // 0: none
  int32_t rope = -1;   // index into ModelSpec::ropes; -1: no rotation
  QkNorm qk_norm = QkNorm::kNone;
  NormSpec q_norm, k_norm, v_norm;  // per head or over all heads, before rope unless qk_norm_after_rope
  bool qk_norm_after_rope = false;
  bool qk_norm_own_weights = false;  // StableLM: kPerHead with a weight row for every head, [heads, head_dim]
  bool qkv_bias = false, output_bias = false;
  bool sinks = false;        // gpt-oss
  bool alibi = false;        // bloom, falcon-rw
  bool alibi_bf16 = false;   // falcon: slopes and biases rounded to bf16, added before scaling
  bool v_from_k = false;     // Gemma 4 full layers with attention_k_eq_v
  bool output_gate = false;  // Qwen3-Next: q_proj also holds a sigmoid gate, interleaved by head
  double query_temperature_floor = 0, query_temperature_scale = 0;  // Llama 4 layers without rope
  int32_t kv_source_layer = -1;  // >= 0: reads that layer's cache and computes only q (Gemma 3n/4)
  // Which tensors hold q, k and v: kQ, kK, kV (split), or one kQkv with these rows. Kept as the file has them, because
  // quantizers see the fused matrix.
  enum class Fused {
    kSplit,
    kQkvRows,      // all q, all k, all v (Phi-3, GPT-2, Falcon-7B)
    kQkvByKvHead,  // for each KV head: its queries, its key, its value (Falcon-40B)
    kQkvByHead,    // for each head: query, key, value (BLOOM, GPT-NeoX, Falcon-RW)
  } fused = Fused::kSplit;
  // kLatent
  int32_t q_lora_rank = 0, kv_lora_rank = 0, rope_head_dim = 0, nope_head_dim = 0;
  double latent_norm_eps = 1e-6;
  // kDeltaNet
  int32_t linear_key_heads = 0, linear_value_heads = 0, linear_key_dim = 0, linear_value_dim = 0, conv_kernel = 0;
  bool linear_fused = false;   // Qwen3-Next: kDeltaQkvz and kDeltaBa, grouped by key head; else kDeltaQkv, Z, B, A
  double linear_norm_eps = 0;  // of the gated norm per value head
  // kBlockSparse
  int32_t index_heads = 0, index_head_dim = 0, index_block = 0, index_top_k = 0, index_local_blocks = 0;
  bool operator==(const AttentionSpec&) const = default;
};

enum class Activation { kSilu, kGeluTanh, kGeluErf, kRelu, kClampedSwiglu };

enum class RouterKind {
  kSoftmaxThenTopK,  // softmax over all experts, then top-k
  kTopKThenSoftmax,  // gpt-oss
  kSigmoid,          // DeepSeek, MiniMax, Llama 4
};

struct MoeSpec {
  int32_t experts = 0, experts_per_token = 0, intermediate = 0;
  RouterKind router = RouterKind::kSoftmaxThenTopK;
  bool renormalize = false;
  double routed_scale = 1;
  bool selection_bias = false;               // e_score_correction_bias: chooses, does not weigh
  int32_t groups = 0, groups_per_token = 0;  // DeepSeek; 0: none
  int32_t shared_intermediate = 0;           // 0: no shared expert
  bool shared_gate = false;                  // Qwen2-MoE: sigmoid gate on the shared expert
  bool weight_on_input = false;              // Llama 4
  bool expert_bias = false, router_bias = false;
  bool gemma4_router = false;   // unweighted norm, scale vector, per-expert scale
  bool parallel_dense = false;  // Gemma 4: dense MLP beside the experts, with its own norms
  bool operator==(const MoeSpec&) const = default;
};

struct MlpSpec {
  bool present = true;
  bool gated = true;  // down(act(gate) * up); else down(act(up))
  int32_t intermediate = 0;
  Activation activation = Activation::kSilu;
  bool bias = false;
  bool fused_gate_up = false;  // one matrix kGateUp, gate rows first (Phi-3, MiniMax-M3); its shared expert likewise
  double swiglu_limit = 0, swiglu_alpha = 1.702;  // clamped swiglu
  std::optional<double> sparsity_icdf;            // Gemma 3n: cutoff in standard deviations from the mean
  std::optional<MoeSpec> moe;  // replaces the dense MLP (or stands beside it: MoeSpec::parallel_dense)
  bool operator==(const MlpSpec&) const = default;
};

// One decoder layer:
//   sequential: h += m * out_norm1(attention(in_norm(h)));  h += m * out_norm2(mlp(mlp_norm(h)))
//   parallel:   h += attention(in_norm(h)) + mlp(mlp_norm present ? mlp_norm(h) : in_norm(h)), in `parallel_order`
//   norm_after_residual (OPT-350m): h = out_norm1(h + attention(h));  h = out_norm2(h + mlp(h))
//   residual_from_norm (BLOOM with its flag): the h that is added to is in_norm(h), then mlp_norm(h)
struct LayerSpec {
  AttentionSpec attention;
  MlpSpec mlp;
  NormSpec input_norm;          // before attention
  NormSpec attention_out_norm;  // on the attention's output (Gemma 2+, OLMo 2)
  NormSpec mlp_norm;            // before the MLP
  NormSpec mlp_out_norm;        // on the MLP's output
  bool parallel = false;
  bool norm_after_residual = false;
  bool residual_from_norm = false;
  enum class ParallelOrder {
    kAttnMlpThenH,
    kMlpAttnThenH,
    kHMlpAttn,
    kHAttnThenMlp
  } parallel_order = ParallelOrder::kAttnMlpThenH;
  double residual_multiplier = 1;  // Granite
  bool layer_scalar = false;       // Gemma 4
  bool per_layer_embedding = false;
  bool operator==(const LayerSpec&) const = default;
};

// Gemma 3n / 4 per-layer embeddings.
struct PerLayerEmbeddingSpec {
  int32_t dim = 0;              // P; 0: the model has none
  int64_t vocab_rows = 0;       // rows of the table
  double table_scale = 1;       // sqrt(P)
  double projection_scale = 1;  // H^-0.5
  double combine_scale = 1;     // 2^-0.5
  NormSpec norm;
  bool operator==(const PerLayerEmbeddingSpec&) const = default;
};

// Gemma 3n.
struct AltUpSpec {
  int32_t inputs = 0;  // A; 0: none
  int32_t active = 0;
  bool correct_scale = true;
  int32_t laurel_rank = 0;
  bool operator==(const AltUpSpec&) const = default;
};

struct ModelSpec {
  std::string family;        // "llama": the registry's key
  std::string architecture;  // class as built: "LlamaForCausalLM"
  int64_t vocab_rows = 0;    // rows of the embedding
  int64_t vocab_size = 0;    // ids that may be produced: logits beyond it are masked (padding rows)
  int32_t hidden = 0;
  int64_t max_position = 0;
  int32_t embedding_dim = 0;  // != hidden: projected in and out (opt-350m)
  double embedding_scale = 1;
  NormSpec embedding_norm;                         // BLOOM
  int32_t position_rows = 0, position_offset = 0;  // learned positions (GPT-2, OPT); 0: none
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  NormSpec final_norm;
  bool tied_head = false;
  bool head_bias = false;
  double logits_multiplier = 1;  // Cohere
  double logits_divisor = 1;     // Granite
  double final_softcap = 0;
  PerLayerEmbeddingSpec per_layer_embedding;
  AltUpSpec altup;
  std::vector<TensorSpec> tensors;  // every tensor the forward pass reads, ties as aliases
  DType dtype = DType::kBF16;       // what unquantized weights are stored as, unless a tensor says otherwise
  // Not empty: the tree can be planned, the forward pass cannot run; says why ("attention kind delta net ...").
  std::string unsupported;
  std::vector<std::string> notes;  // "vision tower skipped: 431 tensors"...

  const TensorSpec* find(Role role, int32_t layer) const;
  bool operator==(const ModelSpec&) const = default;
};

}  // namespace berth::arch
