// quant/scratch.h — how much scratch memory an operation may ask for: upper bounds, the same for every instruction set.
//
// `sizing` lays the workspace out with these, `model` allocates it, kernels CHECK that they got it: no second formula.
// They live here because sizing sees no kernels. All grow with every argument; counts are those of real shapes (k and
// context below 2^31, m below 2^24), for which nothing overflows.
#pragma once

#include <algorithm>
#include <cstdint>

namespace berth::quant {

// linear() with M = m rows of K = k elements and `threads` threads: x prepared for the whole call (exact: laid out in
// lanes, with the sums that formats with a minimum need; int8: codes, scales and sums per word), and per thread one
// tile of decoded weights (64 outputs).
constexpr uint64_t linear_scratch_bytes(int64_t m, int64_t k, [[maybe_unused]] bool int8, int threads) {
  const uint64_t padded_k = (static_cast<uint64_t>(k) + 255) / 256 * 256;
  const uint64_t rows = (static_cast<uint64_t>(m) + 15) / 16 * 16;
  const uint64_t prepared = rows * (padded_k * 4 + padded_k / 2 + 256);  // fp32, one sum per 8 elements
  const uint64_t per_thread = padded_k * 4 * 64 + 65536;
  return prepared + per_thread * static_cast<uint64_t>(std::max(threads, 1)) + 4096;
}

// attention() over jobs of `rows` query rows altogether, the longest context `context` positions: per thread one tile
// of queries with its scores and sums; and, where few rows are decoded over a long context, the partial results of
// blocks of 128 positions that different threads computed and one merges in order.
inline constexpr int64_t kAttentionTileQueries = 32;    // query rows x heads that one task computes together
inline constexpr int64_t kAttentionPartialBlocks = 64;  // blocks per head whose partial results wait to be merged
inline constexpr int64_t kAttentionPartialRows = 8;     // query rows of a call that may be split by blocks
constexpr uint64_t attention_scratch_bytes(int64_t heads, int64_t head_dim, int64_t v_head_dim, int64_t rows,
                                           int64_t context, int threads) {
  const auto u = [](int64_t n) { return static_cast<uint64_t>(n); };
  const uint64_t v_padded = (u(v_head_dim) + 15) / 16 * 16;
  const uint64_t qk_padded = (u(head_dim) + 15) / 16 * 16;
  // q, the scores of a block, o, o_B, m and l per query of the tile; a block of K and V widened to fp32.
  const uint64_t per_query = qk_padded + 128 + 2 * v_padded + 64;
  const uint64_t per_thread = 4 * (u(kAttentionTileQueries) * per_query + 128 * (qk_padded + v_padded)) + 4096;
  const uint64_t blocks = std::min((u(context) + 127) / 128 + 1, u(kAttentionPartialBlocks));
  const uint64_t split = std::min(u(rows), u(kAttentionPartialRows)) * u(heads);
  const uint64_t partials = 4 * split * (blocks + 1) * (v_padded + 16);
  return per_thread * u(std::max(threads, 1)) + partials + 4096;
}

}  // namespace berth::quant
