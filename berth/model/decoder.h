// model/decoder.h — the units of a decoder layer, computed on one device: private to model.
//
// Each function works on a DeviceState's workspace: the residual stream is `layout.hidden`, and when it returns the
// unit's contribution has been added to it. Views only: no files, no plans.
#pragma once

#include <span>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/device/device.h"
#include "berth/kernel/context.h"
#include "berth/kernel/linear.h"
#include "berth/load/weight_store.h"
#include "berth/model/kv_cache.h"
#include "berth/sizing/workspace.h"

namespace berth::model {

// A device that computes: its workspace, and with what its kernels run.
struct DeviceState {
  device::Device* device = nullptr;
  device::Buffer workspace;
  kernel::Context context;

  float* at(const sizing::Slice& slice) const { return reinterpret_cast<float*>(workspace.data() + slice.offset); }
  std::span<std::byte> scratch(const sizing::WorkspaceLayout& layout) const {
    return {workspace.data() + layout.scratch.offset, layout.scratch.bytes};
  }
};

// One sequence's rows of the current forward pass.
struct RowRange {
  int32_t sequence = 0;
  int64_t first_row = 0;  // in the workspace
  int64_t rows = 0;
  int64_t position = 0;   // of first_row in the sequence
};

// cos and sin rows of the current pass for one rope, on the host: [rows, rotary_dim/2] each.
struct RopeRows {
  std::vector<float> cos, sin;
};

struct ForwardState {
  const arch::ModelSpec& spec;
  const load::WeightStore& weights;
  const KvCache& kv;
  std::span<const RowRange> ranges;
  std::span<const RopeRows> ropes;
  std::vector<kernel::AttentionJob>& attention_jobs;  // reserved once
  int64_t rows = 0;
};

// h += multiplier * out_norm(attention(input_norm(h))).
void run_attention(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);
// h += multiplier * out_norm(mlp(mlp_norm(h))).
void run_mlp(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);

// y = norm(x), [rows, n]; copies where the norm is absent.
void apply_norm(const kernel::Context& context, const arch::NormSpec& norm, const load::HeldTensor* weight,
                const load::HeldTensor* bias, const float* x, int64_t rows, int64_t n, float* y);

}  // namespace berth::model
