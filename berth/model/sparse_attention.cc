// model/sparse_attention.cc — MiniMax-M3: an indexer of a few small heads chooses blocks of keys for each group of
// query heads. As long as a query's context has no more blocks than are chosen, it is ordinary attention.
#include "berth/kernel/sparse_attention.h"

#include <algorithm>

#include "berth/kernel/norm.h"
#include "berth/model/attention.h"

namespace berth::model {

using arch::Role;

void index_rows(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
                const Rotation& rotation) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  const int64_t dim = a.index_head_dim, width = a.index_heads * dim;
  float* q = on.at(layout.index_q);
  float* k = on.at(layout.index_k);
  Linears linears(pass);
  linears.add(pass.need(Role::kIndexQ, layer), nullptr, q, width);
  linears.add(pass.need(Role::kIndexK, layer), nullptr, k, dim);
  linears.run(on, layout, on.at(layout.normed), pass.rows, pass.spec.hidden);
  const auto eps = static_cast<float>(a.q_norm.eps);
  kernel::rms_norm(on.context, q, dim, pass.vector(Role::kIndexQNorm, layer), eps, pass.rows * a.index_heads, dim, q,
                   dim);
  kernel::rms_norm(on.context, k, dim, pass.vector(Role::kIndexKNorm, layer), eps, pass.rows, dim, k, dim);
  rotation.turn(q, width, a.index_heads, a.index_head_dim);
  rotation.turn(k, dim, 1, a.index_head_dim);
  for (const RowRange& range : pass.ranges)
    kernel::index_write(on.context, pass.kv.index_view(layer, range.sequence), range.position, range.rows,
                        k + range.first_row * dim, dim);
}

void attend_chosen_blocks(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout,
                          int32_t layer, const Rotation& rotation, const kernel::AttentionOptions& options) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  index_rows(pass, on, layout, layer, rotation);
  const kernel::BlockChoice choice{a.index_heads, a.index_block, a.index_top_k, a.index_local_blocks};
  const int64_t dense_positions = int64_t{a.index_block} * a.index_top_k;  // up to there every block is chosen
  const int64_t q_width = int64_t{a.index_heads} * a.index_head_dim;
  for (size_t i = 0, job = 0; i < pass.ranges.size(); ++i) {
    const RowRange& range = pass.ranges[i];
    if (range.rows == 0) continue;
    kernel::AttentionJob j = pass.attention_jobs[job++];
    const int64_t dense = std::clamp<int64_t>(dense_positions - j.position, 0, j.rows);
    if (dense > 0) {
      kernel::AttentionJob part = j;
      part.rows = dense;
      kernel::attention(on.context, options, std::span(&part, 1), on.scratch(layout));
    }
    if (dense == j.rows) continue;
    j.position += dense;
    j.rows -= dense;
    j.q += dense * j.q_stride;
    j.out += dense * j.out_stride;
    const float* index_q = on.at(layout.index_q) + (range.first_row + dense) * q_width;
    kernel::select_blocks(on.context, pass.kv.index_view(layer, range.sequence), choice, j.position, j.rows, index_q,
                          q_width, on.at(layout.index_scores), on.ids(layout.index_chosen));
    kernel::sparse_attention(on.context, options, j, choice, on.ids(layout.index_chosen), on.at(layout.scratch));
  }
}

}  // namespace berth::model
