// model/attention.h — attention of one decoder layer, of every kind, computed on one device: private to model.
//
// attention.cc is the usual kind (full, sliding, chunked); latent_attention.cc, sparse_attention.cc and delta_net.cc
// the others. Start reading at: run_attention.
#pragma once

#include "berth/model/forward_state.h"

namespace berth::model {

// A sequential layer's attention unit: h += multiplier * out_norm(attention(input_norm(h))), and its variants.
Status run_attention(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);

// y = o_proj(attention(x)) of `layout.normed`; y may be `layout.normed`. [rows, H].
Status attend(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
              float* y);

// --- shared by the kinds

// q, k or v of the current rows: [rows, heads, head_dim], one row after the other.
struct Heads {
  float* data = nullptr;
  int32_t heads = 0, head_dim = 0;
  int64_t stride() const { return int64_t{heads} * head_dim; }
};

// Copies the layer's cos and sin rows to the workspace and turns `x`: `rotary_dim` channels of each head from the data
// pointer on.
class Rotation {
 public:
  Rotation(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout,
           const arch::AttentionSpec& attention);
  void turn(float* x, int64_t stride, int32_t heads, int32_t head_dim) const;

 private:
  const kernel::Context* context_ = nullptr;
  const arch::RopeSpec* rope_ = nullptr;  // null: no rotation
  const float* cos_ = nullptr;
  const float* sin_ = nullptr;
  int64_t rows_ = 0;
};

// The kinds: each leaves [rows, heads * v_head_dim] in `layout.attended`.
void attend_latent(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);
void attend_delta_net(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);
// Block-sparse: the indexer's choice and the attention over it, q, k and v being in place and in the cache.
void attend_chosen_blocks(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout,
                          int32_t layer, const Rotation& rotation, const kernel::AttentionOptions& options);
// The indexer's projections; before `layout.normed` is overwritten.
void index_rows(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
                const Rotation& rotation);

}  // namespace berth::model
