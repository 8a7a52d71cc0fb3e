// kernel/sparse_attention.h — block-sparse attention (MiniMax-M3): an indexer scores keys, pools them by blocks, and each
// of its heads chooses blocks for its query heads; attention then sees the keys of those blocks only.
//
// Index keys of one sequence: [capacity / 32][dim][32] in the cache's dtype, position p in slot p mod capacity.
// Start reading at: select_blocks(), then sparse_attention().
#pragma once

#include <cstddef>
#include <cstdint>

#include "berth/kernel/attention.h"
#include "berth/kernel/context.h"

namespace berth::kernel {

struct IndexView {
  std::byte* keys = nullptr;
  DType dtype = DType::kF32;
  int64_t capacity = 0;  // a multiple of 32, at least every position seen
  int32_t dim = 0;
};

// Stores `rows` index keys, the first at `position`. k: [rows, dim].
void index_write(const Context& context, const IndexView& index, int64_t position, int64_t rows, const float* k,
                 int64_t k_stride);

struct BlockChoice {
  int32_t heads = 0;         // of the indexer
  int32_t block = 0;         // positions per block, by absolute position
  int32_t top_k = 0;         // blocks chosen, the query's own among them
  int32_t local_blocks = 0;  // the last ones up to the query's own always count as best
};

// The blocks each row and index head chooses, ascending, -1 where there are fewer: chosen [rows, heads, top_k].
// Scores: one chain over dim; a block's is the largest of its visible keys'. q: [rows, heads, dim]. `pooled`:
// [rows, blocks] fp32 scratch, blocks = (position + rows - 1) / block + 1.
void select_blocks(const Context& context, const IndexView& index, const BlockChoice& choice, int64_t position,
                   int64_t rows, const float* q, int64_t q_stride, float* pooled, int32_t* chosen);

// attention() of one job restricted to the chosen blocks: query head h follows index head h / (heads / choice.heads).
// options: heads and scale only. `scratch`: [rows, v_head_dim] fp32.
void sparse_attention(const Context& context, const AttentionOptions& options, const AttentionJob& job,
                      const BlockChoice& choice, const int32_t* chosen, float* scratch);

}  // namespace berth::kernel
