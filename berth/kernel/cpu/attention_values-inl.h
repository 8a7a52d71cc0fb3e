// kernel/cpu/attention_values-inl.h — o_B: the sum of a block's values by their weights.
//
// Channels lie in the vector lanes; a chain over the keys that a query sees. Hidden keys are not read.
//
// Start reading at: add_values_of at the end.
#pragma once

#include <cmath>
#include <cstdint>

#include "berth/kernel/cpu/attention_ahead-inl.h"
#include "berth/kernel/cpu/attention_kv-inl.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

// o_B[i][channels] += e[i][p] * v[p][channels] for kN queries over the keys [begin, end) of a block and kPacks packs.
// `next`: what to ask for meanwhile.
template <DType kType, int kN, int kPacks>
BERTH_MATH void add_values(const std::byte* plane, int64_t v, int64_t v_head_dim, Range keys, const float* e, float* o,
                           int64_t o_stride, Ahead& next) {
  // As many bytes as a position has here.
  constexpr int64_t kLines = (kPacks * F::kLanes * kElementBytes<kType> + 63) / 64;
  F sum[kN][kPacks];
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kPacks; ++j) sum[i][j] = F::load(o + i * o_stride + j * F::kLanes);
  const auto position = [&](int64_t p) __attribute__((always_inline)) {
    F value[kPacks];
    for (int j = 0; j < kPacks; ++j) value[j] = load_kv<kType>(plane, v + p * v_head_dim + j * F::kLanes);
    for (int i = 0; i < kN; ++i) {
      const F weight = F::of(e[i * 128 + p]);
      for (int j = 0; j < kPacks; ++j) sum[i][j] = fma(weight, value[j], sum[i][j]);
    }
  };
  Ahead ahead = next;  // in registers
  int64_t p = keys.begin;
  for (; p + 4 <= keys.end; p += 4) {
    ahead.ask(kLines);
    position(p);
    position(p + 1);
    position(p + 2);
    position(p + 3);
  }
  for (; p < keys.end; ++p) position(p);
  next = ahead;
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kPacks; ++j) sum[i][j].store(o + i * o_stride + j * F::kLanes);
}

template <DType kType, int kN>
void add_values_of(const KvView& cache, int64_t v, Range keys, const float* e, float* o, int64_t o_stride,
                   Ahead& next) {
  if (keys.begin >= keys.end) return;
  // Packs of channels at once: enough sums to hide the chains' latency, few enough for the registers.
  constexpr bool kMany = F::kRegisters >= 32;
  constexpr int kWide = kN == 1 ? (kMany ? 4 : 8) : kN == 2 || (kN == 3 && kMany) ? 4 : 2;
  const int64_t n = cache.v_head_dim;
  int64_t d = 0;
  for (; d + kWide * F::kLanes <= n; d += kWide * F::kLanes)
    add_values<kType, kN, kWide>(cache.v, v + d, n, keys, e, o + d, o_stride, next);
  if constexpr (kWide > 2)
    for (; d + 2 * F::kLanes <= n; d += 2 * F::kLanes)
      add_values<kType, kN, 2>(cache.v, v + d, n, keys, e, o + d, o_stride, next);
  for (; d + F::kLanes <= n; d += F::kLanes)
    add_values<kType, kN, 1>(cache.v, v + d, n, keys, e, o + d, o_stride, next);
  for (; d < n; ++d)
    for (int i = 0; i < kN; ++i)
      for (int64_t p = keys.begin; p < keys.end; ++p)
        o[i * o_stride + d] = std::fma(e[i * 128 + p], load_kv_one<kType>(cache.v, v + p * n + d), o[i * o_stride + d]);
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
