// kernel/cpu/attention_block-inl.h — one block of 128 keys for all queries of a tile: scores, weights, values.
//
// Start reading at: block_of_tile.
#pragma once

#include <algorithm>
#include <cstdint>

#include "berth/kernel/cpu/attention_ahead-inl.h"
#include "berth/kernel/cpu/attention_scores-inl.h"
#include "berth/kernel/cpu/attention_tile-inl.h"
#include "berth/kernel/cpu/attention_values-inl.h"
#include "berth/kernel/cpu/attention_weights-inl.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

// m_B, l_B and o_B of every query of the tile for the block that begins at position `begin`. Where a query sees nothing
// of the block, its l_block is kNothingSeen and the rest undefined. `next`: keys to ask for.
template <DType kType>
void block_of_tile(const AttentionOptions& options, const Tile& tile, const Shape& shape, int64_t begin, Ahead next,
                   const Workspace& w) {
  const KvView& cache = tile.job->cache;
  const int64_t slot = begin % cache.capacity;
  const int64_t k = (tile.kv_head * cache.capacity + slot) * cache.head_dim;
  const int64_t v = (tile.kv_head * cache.capacity + slot) * cache.v_head_dim;
  const auto seen_by = [&](int64_t i) {
    const Range all = visible(options, tile.position(i));
    return Range{std::clamp<int64_t>(all.begin - begin, 0, kAttentionBlock),
                 std::clamp<int64_t>(all.end - begin, 0, kAttentionBlock)};
  };
  const int64_t v_end = std::clamp<int64_t>(tile.position(tile.count - 1) + 1 - begin, 0, kAttentionBlock);
  // Every query sees all of it: so it is for most blocks, and most of what follows is spared.
  const bool whole = seen_by(0).begin == 0 && seen_by(0).end == kAttentionBlock && seen_by(tile.count - 1).begin == 0;
  Ahead values(cache.v + v * kElementBytes<kType>, v_end * cache.v_head_dim * kElementBytes<kType>);
  for (int64_t first = 0; first < tile.count; first += kQueries) {
    const int64_t n = std::min<int64_t>(kQueries, tile.count - first);
    Range seen[kQueries];
    Range any{kAttentionBlock, 0}, all{0, kAttentionBlock};
    for (int64_t i = 0; i < n; ++i) {
      seen[i] = whole ? Range{0, kAttentionBlock} : seen_by(first + i);
      w.l_block[first + i] = kNothingSeen;
      if (seen[i].begin >= seen[i].end) seen[i] = {kAttentionBlock, kAttentionBlock};
      if (seen[i].begin < seen[i].end) any = {std::min(any.begin, seen[i].begin), std::max(any.end, seen[i].end)};
      all = {std::max(all.begin, seen[i].begin), std::min(all.end, seen[i].end)};
    }
    if (any.begin >= any.end) continue;
    float* scores = w.scores + first * 128;
    float* o = w.o_block + first * shape.v_padded;
    with_count(n, [&]<int kN>() {
      score_block<kType, kN>(cache, k, any.begin / 32, (any.end + 31) / 32, w.q + first * shape.head_dim, scores,
                             values);
    });
    for (int64_t i = 0; i < n; ++i)
      if (seen[i].begin < seen[i].end)
        w.m_block[first + i] = scale_scores(options, tile.head(first + i), begin, seen[i], scores + i * 128);
    const int64_t rest = (values.left() + n - 1) / n;  // of the values, asked for meanwhile
    for (int64_t i = 0; i < n; ++i) {
      if (seen[i].begin < seen[i].end) w.l_block[first + i] = weigh(w.m_block[first + i], seen[i], scores + i * 128);
      values.ask(rest);
      for (int64_t d = 0; d < shape.v_padded; d += F::kLanes) F::of(0.0f).store(o + i * shape.v_padded + d);
    }
    // Keys that all of them see together; what lies before and after, for each alone.
    if (all.begin >= all.end) all = {kAttentionBlock, kAttentionBlock};
    for (int64_t i = 0; i < n; ++i)
      add_values_of<kType, 1>(cache, v, {seen[i].begin, std::min(all.begin, seen[i].end)}, scores + i * 128,
                              o + i * shape.v_padded, shape.v_padded, next);
    with_count(n, [&]<int kN>() { add_values_of<kType, kN>(cache, v, all, scores, o, shape.v_padded, next); });
    for (int64_t i = 0; i < n; ++i)
      add_values_of<kType, 1>(cache, v, {std::max(all.end, seen[i].begin), seen[i].end}, scores + i * 128,
                              o + i * shape.v_padded, shape.v_padded, next);
  }
}

void block_of_tile(const AttentionOptions& options, const Tile& tile, const Shape& shape, int64_t begin, Ahead next,
                   const Workspace& w) {
  switch (tile.job->cache.dtype) {
    case DType::kF16:
      return block_of_tile<DType::kF16>(options, tile, shape, begin, next, w);
    case DType::kBF16:
      return block_of_tile<DType::kBF16>(options, tile, shape, begin, next, w);
    default:
      return block_of_tile<DType::kF32>(options, tile, shape, begin, next, w);
  }
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
