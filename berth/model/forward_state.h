// model/forward_state.h — what the computation of one unit gets: a device's workspace, and the pass it is part of.
// Private to model.
//
// The units of a decoder layer are functions over these: the residual stream is `layout.hidden`, and when a unit
// returns its contribution has been added to it. Views only: no files, no plans.
//
// Start reading at: ForwardState, then attention.h and mlp.h.
#pragma once

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/base/check.h"
#include "berth/base/function_ref.h"
#include "berth/device/device.h"
#include "berth/kernel/context.h"
#include "berth/kernel/elementwise.h"
#include "berth/kernel/linear.h"
#include "berth/load/unseen_weights.h"
#include "berth/load/weight_store.h"
#include "berth/load/weight_stream.h"
#include "berth/model/kv_cache.h"
#include "berth/sizing/workspace.h"

namespace berth::model {

// A device that computes: its workspace, and with what its kernels run.
struct DeviceState {
  device::Device* device = nullptr;
  device::Buffer workspace;
  kernel::Context context;

  float* at(const sizing::Slice& slice) const { return reinterpret_cast<float*>(workspace.data() + slice.offset); }
  int32_t* ids(const sizing::Slice& slice) const { return reinterpret_cast<int32_t*>(workspace.data() + slice.offset); }
  std::span<std::byte> scratch(const sizing::WorkspaceLayout& layout) const {
    return {workspace.data() + layout.scratch.offset, layout.scratch.bytes};
  }
};

// One sequence's rows of the current forward pass.
struct RowRange {
  int32_t sequence = 0;
  int64_t first_row = 0;  // in the workspace
  int64_t rows = 0;
  int64_t position = 0;  // of first_row in the sequence
};

// cos and sin rows of the current pass for one rope, on the host: [rows, rotary_dim/2] each.
struct RopeRows {
  std::vector<float> cos, sin;
};

// Sends new rows of `layer`'s cache, [rows, kv_heads, head_dim] each, to the devices that keep a copy.
using ShareRows = FunctionRef<Status(int32_t layer, const DeviceState& from, const float* k, const float* v)>;

struct ForwardState {
  const arch::ModelSpec& spec;
  const load::WeightStore& weights;
  const KvCache& kv;
  std::span<const RowRange> ranges;
  std::span<const RopeRows> ropes;
  std::span<const float> alibi_slopes;
  std::vector<kernel::AttentionJob>& attention_jobs;  // both reserved once
  std::vector<kernel::LinearJob>& linear_jobs;
  std::vector<const load::HeldTensor*>& linear_weights;  // of the jobs
  std::vector<load::StreamPiece>& expert_pieces;
  ShareRows share_rows;
  int64_t rows = 0;
  // Where the current unit's weights come from if they are stored elsewhere; null: they are in place.
  load::WeightStream* stream = nullptr;

  const arch::LayerSpec& layer(int32_t index) const { return spec.layers[static_cast<size_t>(index)]; }
  const load::HeldTensor* find(arch::Role role, int32_t index) const { return weights.find(role, index); }
  const load::HeldTensor& need(arch::Role role, int32_t index) const {
    const load::HeldTensor* t = weights.find(role, index);
    CHECK(t != nullptr);
    return *t;
  }
  const float* vector(arch::Role role, int32_t index) const {
    const load::HeldTensor* t = weights.find(role, index);
    if (t == nullptr) return nullptr;
    return stream != nullptr ? stream->vector(t->index) : t->as_vector();
  }
};

// Collects the matrices that read one input, then computes them: in one call, or as they arrive where they are
// streamed.
class Linears {
 public:
  explicit Linears(const ForwardState& pass) : pass_(pass), jobs_(pass.linear_jobs), weights_(pass.linear_weights) {
    jobs_.clear();
    weights_.clear();
  }

  void add(const load::HeldTensor& weight, const float* bias, float* y, int64_t y_stride) {
    add_rows(weight, bias, 0, weight.matrix.rows, y, y_stride);
  }
  // Outputs [begin, begin + count) of a matrix; `bias` is the whole matrix's.
  void add_rows(const load::HeldTensor& weight, const float* bias, int64_t begin, int64_t count, float* y,
                int64_t y_stride) {
    kernel::LinearJob j;
    j.weight = &weight.matrix;
    j.row_begin = begin;
    j.row_count = count;
    j.bias = bias == nullptr ? nullptr : bias + begin;
    j.y = y;
    j.y_stride = y_stride;
    jobs_.push_back(j);
    weights_.push_back(&weight);
  }
  // x: [rows, k], stride k where none is given.
  void run(DeviceState& on, const sizing::WorkspaceLayout& layout, const float* x, int64_t rows, int64_t k,
           int64_t x_stride = 0) {
    const kernel::LinearInput input{x, rows, k, x_stride == 0 ? k : x_stride};
    if (pass_.stream == nullptr) {
      kernel::linear(on.context, input, jobs_, on.scratch(layout));
      if (load::UnseenWeights* const unseen = pass_.weights.unseen(); unseen != nullptr && rows > 0) see(*unseen);
      return;
    }
    for (size_t i = 0; i < jobs_.size();) {
      // Jobs on one matrix are done while it is there; of a bank, each on its expert's.
      const load::HeldTensor& weight = *weights_[i];
      size_t end = i + 1;
      for (size_t j = end; j < jobs_.size() && !weight.bank; ++j) {
        if (weights_[j] != &weight) continue;
        std::swap(jobs_[j], jobs_[end]);
        std::swap(weights_[j], weights_[end]);
        ++end;
      }
      const load::StreamPiece piece = weight.bank
                                          ? load::StreamPiece{weight.index, jobs_[i].row_begin, jobs_[i].row_count}
                                          : load::StreamPiece{weight.index, 0, weight.matrix.rows};
      const load::StagedMatrix staged = pass_.stream->acquire(piece);
      for (size_t j = i; j < end; ++j) {
        jobs_[j].weight = staged.matrix;
        jobs_[j].row_begin -= staged.row_begin;
      }
      kernel::linear(on.context, input, std::span(jobs_).subspan(i, end - i), on.scratch(layout));
      i = end;
    }
  }

 private:
  // Any one input proves the weights of outputs that are finite: the first.
  void see(load::UnseenWeights& unseen) const {
    for (size_t i = 0; i < jobs_.size(); ++i)
      if (kernel::all_finite(jobs_[i].y, jobs_[i].row_count))
        unseen.seen(weights_[i]->index, jobs_[i].row_begin, jobs_[i].row_count);
  }

  const ForwardState& pass_;
  std::vector<kernel::LinearJob>& jobs_;
  std::vector<const load::HeldTensor*>& weights_;
};

// y = norm(x), [rows, n]; copies where the norm is absent.
void apply_norm(const kernel::Context& context, const arch::NormSpec& norm, const float* weight, const float* bias,
                const float* x, int64_t rows, int64_t n, float* y);
// The same with the weights of a layer.
inline void apply_norm(const ForwardState& pass, const DeviceState& on, const arch::NormSpec& norm, arch::Role weight,
                       arch::Role bias, int32_t layer, const float* x, float* y) {
  apply_norm(on.context, norm, pass.vector(weight, layer), norm.has_bias ? pass.vector(bias, layer) : nullptr, x,
             pass.rows, pass.spec.hidden, y);
}

}  // namespace berth::model
