// sizing/workspace.h — the one workspace layout: every buffer alive while a unit runs, as offsets from the workspace's base.
//
// A device has one workspace, as large as the largest unit computed there needs; the model takes its buffers from these
// offsets and kernels CHECK the scratch they get, so that what was predicted is what is used. All buffers are fp32, rows
// of one forward pass (RunShape::rows) except logits; every offset is a multiple of 64. `hidden` comes first in every
// layout, so the residual stream stays where it is from unit to unit on one device.
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

struct WorkspaceLayout {
  Slice hidden;     // [rows, H] residual stream
  Slice normed;     // [rows, H] a unit's normed input; its output once the input is consumed
  Slice q;          // [rows, heads * head_dim]; fused projections: [rows, all of q, k, v]
  Slice k;          // [rows, kv_heads * head_dim]
  Slice v;          // [rows, kv_heads * v_head_dim]
  Slice attended;   // [rows, heads * v_head_dim]
  Slice rope;       // [rows, rotary_dim/2] cos, then the same of sin, for the layer's rope
  Slice gate;       // [rows, I]; fused: [rows, 2I]
  Slice up;         // [rows, I]
  Slice logits;     // [logit_rows, V]
  Slice scratch;    // kernels' own
  uint64_t total_bytes = 0;
};

// Attention of layer `layer`, with its norms and residual.
WorkspaceLayout attention_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape);
// Dense MLP of the layer (or router and shared expert), with its norms and residual.
WorkspaceLayout mlp_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape);
// The layer's expert bank.
WorkspaceLayout bank_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape);
// Final norm and head.
WorkspaceLayout head_workspace(const arch::ModelSpec& spec, const RunShape& shape);
// A table's rows gathered where it is stored.
WorkspaceLayout table_workspace(const arch::ModelSpec& spec, const RunShape& shape);

}  // namespace berth::sizing
