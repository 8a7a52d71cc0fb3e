// kernel/cpu/attention_scores-inl.h — raw scores: queries times keys.
//
// Keys lie in the vector lanes (32 side by side in the cache), a few queries in registers; one chain over head_dim per
// key and query (numerics.md 2).
//
// Start reading at: score_block at the end.
#pragma once

#include <cstdint>

#include "berth/kernel/cpu/attention_ahead-inl.h"
#include "berth/kernel/cpu/attention_kv-inl.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

constexpr int kPacksPer32 = 32 / F::kLanes;

// Raw scores of kN queries against kKeyTiles times 32 keys. k: index of the first key tile's first element.
template <DType kType, int kN, int kKeyTiles>
BERTH_MATH void score_keys(const std::byte* plane, int64_t k, int64_t head_dim, const float* q, float* scores,
                           Ahead& values) {
  constexpr int kPacks = kKeyTiles * kPacksPer32;
  F s[kN][kPacks];
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kPacks; ++j) s[i][j] = F::of(0.0f);
  const auto channel = [&](int64_t d) __attribute__((always_inline)) {
    F keys[kPacks];
    for (int t = 0; t < kKeyTiles; ++t)
      for (int j = 0; j < kPacksPer32; ++j)
        keys[t * kPacksPer32 + j] = load_kv<kType>(plane, k + (t * head_dim + d) * 32 + j * F::kLanes);
    for (int i = 0; i < kN; ++i) {
      const F query = F::of(q[d * kN + i]);
      for (int j = 0; j < kPacks; ++j) s[i][j] = fma(query, keys[j], s[i][j]);
    }
  };
  Ahead ahead = values;  // in registers
  int64_t d = 0;
  for (; d + 4 <= head_dim; d += 4) {
    for (int t = 0; t < kKeyTiles; ++t)
      for (int i = 0; i < 4; ++i)
        prefetch_near(plane + (k + (t * head_dim + d + i + kKeysAhead) * 32) * kElementBytes<kType>);
    if (asks_now<kN>(d)) ahead.ask(kKeyTiles * kElementBytes<kType> / 2);
    channel(d);
    channel(d + 1);
    channel(d + 2);
    channel(d + 3);
  }
  for (; d < head_dim; ++d) channel(d);
  values = ahead;
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kPacks; ++j) s[i][j].store(scores + i * 128 + j * F::kLanes);
}

// Half of the 32 keys at a time where the registers do not hold all for kN queries.
template <DType kType, int kN>
BERTH_MATH void score_keys_halves(const std::byte* plane, int64_t k, int64_t head_dim, const float* q, float* scores,
                                  Ahead& values) {
  constexpr int kPacks = kPacksPer32 / 2;
  for (int half = 0; half < 2; ++half) {
    F s[kN][kPacks];
    for (int i = 0; i < kN; ++i)
      for (int j = 0; j < kPacks; ++j) s[i][j] = F::of(0.0f);
    const auto channel = [&](int64_t d) __attribute__((always_inline)) {
      F keys[kPacks];
      for (int j = 0; j < kPacks; ++j) keys[j] = load_kv<kType>(plane, k + d * 32 + half * 16 + j * F::kLanes);
      for (int i = 0; i < kN; ++i) {
        const F query = F::of(q[d * kN + i]);
        for (int j = 0; j < kPacks; ++j) s[i][j] = fma(query, keys[j], s[i][j]);
      }
    };
    Ahead ahead = values;  // in registers
    int64_t d = 0;
    for (; d + 4 <= head_dim; d += 4) {
      if (half == 0)
        for (int i = 0; i < 4; ++i) prefetch_near(plane + (k + (d + i + kKeysAhead) * 32) * kElementBytes<kType>);
      if (half == 0 && asks_now<kN>(d)) ahead.ask(kElementBytes<kType> / 2);
      channel(d);
      channel(d + 1);
      channel(d + 2);
      channel(d + 3);
    }
    for (; d < head_dim; ++d) channel(d);
    values = ahead;
    for (int i = 0; i < kN; ++i)
      for (int j = 0; j < kPacks; ++j) s[i][j].store(scores + i * 128 + half * 16 + j * F::kLanes);
  }
}

// Scores of kN queries against the key tiles [first, last) of a block.
template <DType kType, int kN>
void score_block(const KvView& cache, int64_t k, int64_t first, int64_t last, const float* q, float* scores,
                 Ahead& values) {
  const int64_t head_dim = cache.head_dim;
  int64_t t = first;
  // One or two queries alone would wait for their own chains: more keys at once.
  if constexpr (kN * kPacksPer32 <= 4) {
    constexpr int kMany = F::kRegisters >= 32 ? 4 : 2;
    for (; t + kMany <= last; t += kMany)
      score_keys<kType, kN, kMany>(cache.k, k + t * head_dim * 32, head_dim, q, scores + t * 32, values);
  }
  for (; t < last; ++t) {
    if constexpr (kN * kPacksPer32 + kPacksPer32 + 1 > F::kRegisters) {
      score_keys_halves<kType, kN>(cache.k, k + t * head_dim * 32, head_dim, q, scores + t * 32, values);
    } else {
      score_keys<kType, kN, 1>(cache.k, k + t * head_dim * 32, head_dim, q, scores + t * 32, values);
    }
  }
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
