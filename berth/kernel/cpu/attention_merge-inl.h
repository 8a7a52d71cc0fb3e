// kernel/cpu/attention_merge-inl.h — blocks' m_B, l_B and o_B merged into m, l and o, in block order (numerics.md 2).
//
// A query's result: begin_query, then merge block by block or merge_partials for several, then end_query.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "berth/kernel/attention.h"
#include "berth/kernel/cpu/attention_tile-inl.h"
#include "berth/kernel/cpu/attention_weights-inl.h"
#include "berth/quant/scratch.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

// Adds a block's (m_B, l_B, o_B) to (m, l, o), whose new m is `m`, with al and be of numerics.md 2; o_B null: all +0.
BERTH_MATH void merge(float al, float be, float l_block, const float* o_block, int64_t n, float* l, float* o) {
  *l = std::fma(*l, al, l_block * be);
  for (int64_t d = 0; d < n; d += F::kLanes) {
    const F block = o_block == nullptr ? F::of(0.0f) : F::load(o_block + d);
    fma(F::load(o + d), F::of(al), block * F::of(be)).store(o + d);
  }
}

// exp(old_m[i] - new_m[i]) and exp(m_block[i] - new_m[i]); places up to a multiple of 16 may be written.
BERTH_MATH void merge_weights(int64_t n, const float* old_m, const float* m_block, const float* new_m, float* al,
                              float* be) {
  for (int64_t i = 0; i < n; i += F::kLanes) {
    const F m = F::load(new_m + i);
    math::exp(F::load(old_m + i) - m).store(al + i);
    math::exp(F::load(m_block + i) - m).store(be + i);
  }
}

// Merges `n` blocks' partial results, each m, l and from 16 on o, into `to`.
void merge_partials(const float* from, int64_t n, int64_t record, int64_t v_padded, float* to) {
  constexpr int64_t kMost = quant::kAttentionPartialBlocks;
  // Blocks of which the query sees something, and m before and after each.
  alignas(64) float old_m[kMost], m_block[kMost], new_m[kMost], al[kMost], be[kMost];
  const float* o[kMost];
  int64_t seen = 0;
  float m = to[0], l = to[1];
  for (int64_t i = 0; i < n; ++i) {
    const float* block = from + i * record;
    if (block[1] == kNothingSeen) continue;
    old_m[seen] = m;
    m_block[seen] = block[0];
    new_m[seen] = m = std::max(m, block[0]);
    o[seen++] = block + 16;
  }
  for (int64_t i = seen; i % F::kLanes != 0; ++i) old_m[i] = m_block[i] = new_m[i] = 0;
  merge_weights(seen, old_m, m_block, new_m, al, be);
  for (int64_t i = 0; i < seen; ++i) l = std::fma(l, al[i], o[i][1 - 16] * be[i]);
  const auto add = [&]<int kPacks>(int64_t d) {
    F sum[kPacks];
    for (int j = 0; j < kPacks; ++j) sum[j] = F::load(to + 16 + d + j * F::kLanes);
    for (int64_t i = 0; i < seen; ++i)
      for (int j = 0; j < kPacks; ++j)
        sum[j] = fma(sum[j], F::of(al[i]), F::load(o[i] + d + j * F::kLanes) * F::of(be[i]));
    for (int j = 0; j < kPacks; ++j) sum[j].store(to + 16 + d + j * F::kLanes);
  };
  int64_t d = 0;
  for (; d + 4 * F::kLanes <= v_padded; d += 4 * F::kLanes) add.template operator()<4>(d);
  for (; d < v_padded; d += F::kLanes) add.template operator()<1>(d);
  to[0] = m;
  to[1] = l;
}

void begin_query(int64_t n, float* m, float* l, float* o) {
  *m = kMinusInfinity;
  *l = 0;
  for (int64_t d = 0; d < n; ++d) o[d] = 0;
}

void end_query(const AttentionOptions& options, const Tile& tile, const Shape& shape, int64_t i, float* m, float* l,
               float* o) {
  if (options.sinks != nullptr) {
    const float sink = options.sinks[tile.head(i)], new_m = std::max(*m, sink);
    merge(math::exp(F32x1{*m - new_m}).v, math::exp(F32x1{sink - new_m}).v, 1.0f, nullptr, shape.v_padded, l, o);
  }
  map(shape.v_head_dim, o, tile.out(i), [&](F a, int64_t) { return a / F::of(*l); });
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
