// sizing/workspace.h — the one workspace layout: every buffer alive while a unit runs, as offsets from the workspace's
// base.
//
// A device has one workspace, as large as the largest unit computed there needs; the model takes its buffers from these
// offsets and kernels CHECK the scratch they get, so that what was predicted is what is used. All buffers are fp32,
// rows of one forward pass (RunShape::rows) except where a slice says otherwise; every offset is a multiple of 64.
// Units after the last that writes a cache run for the wanted rows alone (RunShape::narrow_rows): so many rows have
// their own buffers, k and v excepted.
// `hidden` and the per-layer embeddings come first in every layout, so they stay where they are from unit to unit on
// one device.
//
// Kernel scratch bounds come from quant/scratch.h and are the same for every instruction set.
// Start reading at: WorkspaceLayout.
#pragma once

#include <cstdint>

#include "berth/arch/model_spec.h"
#include "berth/sizing/run_shape.h"

namespace berth::sizing {

struct Slice {
  uint64_t offset = 0, bytes = 0;
};

// Slices that a unit does not use are empty. Ids are int32 in place of fp32.
struct WorkspaceLayout {
  // What is alive from unit to unit, at the same place in every layout of a model's layers.
  Slice hidden;     // [streams, rows, H] residual stream; several streams with altup
  Slice per_layer;  // [layers, rows, P] per-layer embeddings

  // A unit's own.
  Slice normed;   // [rows, H] a unit's normed input; its output once the input is consumed
  Slice branch;   // [rows, H] parallel blocks: what attention gave; altup: laurel
  Slice scratch;  // kernels' own

  // Attention.
  Slice q;         // [rows, heads * head_dim]
  Slice k;         // [rows, kv_heads * head_dim]
  Slice v;         // [rows, kv_heads * v_head_dim]
  Slice attended;  // [rows, heads * v_head_dim]
  Slice rope;      // [rows, rotary_dim/2] cos, then the same of sin, for the layer's rope
  Slice gate_q;    // [rows, heads * v_head_dim] gate of the output
  // Block-sparse attention.
  Slice index_q, index_k;  // [rows, index_heads * index_dim], [rows, index_dim]
  Slice index_scores;      // [rows, blocks of the context]
  Slice index_chosen;      // ids [rows, index_heads, top_k]
  // Latent attention: `latent_heads` heads at once are expanded over the whole context.
  Slice latent_q;          // [rows, q_lora_rank]
  Slice latent;            // [rows, kv_lora_rank + rope_head_dim]
  Slice latent_rows;       // [context, kv_lora_rank] read back from the cache
  Slice latent_rope;       // [context, rope_head_dim]
  Slice expanded_k;        // [context, latent_heads * head_dim]
  Slice expanded_v;        // [context, latent_heads * v_head_dim]
  Slice cache_k, cache_v;  // the same as an attention cache in fp32
  int32_t latent_heads = 0;
  // Delta net.
  Slice mixed;             // [rows, channels] raw q | k | v
  Slice convolved;         // [rows, channels]
  Slice z;                 // [rows, value_heads * value_dim]
  Slice delta_b, delta_a;  // [rows, value_heads]
  Slice beta, decay;       // [rows, value_heads]

  // MLP.
  Slice gate;  // [rows, I]; fused: [rows, 2I]; PLE: [rows, P]
  Slice up;    // [rows, I]
  // Router and expert bank: `expert_input` to `shared` are at the same place in both layouts of a layer, so that a bank
  // on its MLP's device finds them and one elsewhere gets them there.
  Slice expert_input;    // [rows, H]
  Slice expert_ids;      // ids [rows, experts_per_token]
  Slice expert_weights;  // [rows, experts_per_token]
  Slice expert_sum;      // [rows, H] what the bank gives
  Slice shared;          // [rows, H] of the shared expert, or of the dense MLP beside the experts
  Slice router;          // [rows, experts]
  Slice shared_gate;     // [rows]
  Slice expert_order;    // ids [experts + 1 + rows * experts_per_token]: where each expert begins, rows by expert
  Slice expert_rows;     // [rows, H] input of one expert
  Slice expert_inner;    // [max(rows, experts_per_token), 2I]
  Slice expert_out;      // [rows, H]
  Slice expert_factors;  // [rows * experts_per_token] weights by expert

  // Altup.
  Slice laurel;        // [rows, laurel_rank]
  Slice modalities;    // [rows, streams]
  Slice coefficients;  // [rows, streams^2]

  // Before the first layer.
  Slice embedded;        // [rows, E] rows of a narrower embedding
  Slice positions;       // [rows, H] learned positions
  Slice per_layer_rows;  // [kPerLayerRows, layers * P] rows of the per-layer table, so many at once

  // Head.
  Slice merged;     // [logit_rows, H] before the final norm
  Slice stream;     // [logit_rows, H] one stream, unembedded
  Slice projected;  // [logit_rows, E]
  Slice logits;     // [logit_rows, V]

  uint64_t total_bytes = 0;
};

inline constexpr int64_t kPerLayerRows = 32;

// The first of the layers at the end that all read caches of earlier ones (Gemma 3n/4); the number of layers where the
// last has its own. From that layer on, and in the MLP before it, only rows whose logits are wanted are computed.
int32_t first_narrow_layer(const arch::ModelSpec& spec);
// Rows that a unit of the layer computes.
int64_t attention_rows(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape);  // and of whole layers
int64_t mlp_rows(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape);        // and of expert banks

// Attention of layer `layer`, with its norms and residual.
WorkspaceLayout attention_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape);
// Dense MLP of the layer (or router and shared expert), with its norms and residual.
WorkspaceLayout mlp_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape);
// The layer's expert bank.
WorkspaceLayout bank_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape);
// A layer that runs as one unit from one norm (parallel blocks) or with altup.
WorkspaceLayout layer_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape);
// What makes the first layer's input of the embedding's rows: computed where the first layer's first unit is.
WorkspaceLayout input_workspace(const arch::ModelSpec& spec, const RunShape& shape);
// Final norm and head.
WorkspaceLayout head_workspace(const arch::ModelSpec& spec, const RunShape& shape);
// A table's rows gathered where it is stored.
WorkspaceLayout table_workspace(const arch::ModelSpec& spec, const RunShape& shape);

}  // namespace berth::sizing
