// model/mlp.h — the MLP of one decoder layer, its router and its experts, computed on one device: private to model.
//
// A layer with experts is two units. Its MLP unit routes, computes what is shared by all rows, and leaves the experts'
// input with ids and weights in the workspace; the bank, perhaps on another device, computes the weighted sum; then
// finish_experts() on the MLP's device adds it up. mlp.cc has the dense parts, experts.cc the others.
//
// Start reading at: run_mlp.
#pragma once

#include "berth/model/forward_state.h"

namespace berth::model {

// h += multiplier * out_norm(mlp(mlp_norm(h))), its variants, and what ends a layer (per-layer embedding, scalar).
// With experts: everything up to the bank.
void run_mlp(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);

// Where experts compute: `layout.expert_sum` of `layout.expert_input`, ids and weights.
void run_experts(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);
// On the MLP's device: the routed sum with what is shared, norms and residual.
void finish_experts(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);

// A parallel block: attention and MLP of the same h, added as the family does.
Status run_parallel(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);

// --- shared by the kinds

// The experts' input, ids and weights; the shared expert's or the dense MLP's output.
void route_experts(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);
// Adds an MLP's output y [rows, H] (overwritten) to the stream, with its norm, and ends the layer.
void add_mlp(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer, float* y);

// Which tensors of a layer make an MLP.
struct MlpRoles {
  arch::Role gate = arch::Role::kGate, up = arch::Role::kUp, gate_up = arch::Role::kGateUp, down = arch::Role::kDown;
  bool bias = true;  // the dense MLP's; a shared expert has none
};
// y = down(act(gate x) * up x); x, y: [rows, H], y may be x. `inner`: rows of up.
void gated_mlp(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
               const MlpRoles& roles, int64_t inner, const float* x, float* y);
// gate = act(gate) * up, in place; [rows, inner].
void activate_gated(const kernel::Context& context, const arch::MlpSpec& mlp, float* gate, int64_t gate_stride,
                    const float* up, int64_t up_stride, int64_t rows, int64_t inner);
// y = PLE gate and projection of x with the layer's per-layer embedding, normed: what is added to the stream.
void per_layer_branch(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
                      const float* x, float* y);

}  // namespace berth::model
