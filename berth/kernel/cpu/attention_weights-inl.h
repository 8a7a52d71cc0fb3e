// kernel/cpu/attention_weights-inl.h — raw scores of a block become weights.
//
// scale_scores: scale, softcap, alibi; hidden keys become -inf; m_B. weigh: e = exp(s - m_B), 0 for hidden keys, which
// adds nothing to the lanes; l_B.
#pragma once

#include <algorithm>
#include <cstdint>

#include "berth/kernel/attention.h"
#include "berth/kernel/cpu/attention_tile-inl.h"
#include "berth/kernel/cpu/lanes-inl.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Raw scores of one query, scaled; hidden keys become -inf. `seen`: the visible keys within the block. Returns the
// largest.
float scale_scores(const AttentionOptions& options, int64_t head, int64_t block_begin, Range seen, float* s) {
  const float slope = options.alibi_slopes == nullptr ? 0.0f : options.alibi_slopes[head];
  const auto to_bf16 = [](float x) { return bf16_to_f32(f32_to_bf16(x)); };
  if (options.alibi_slopes != nullptr && options.alibi_bf16_before_scale)
    for (int64_t p = seen.begin; p < seen.end; ++p)
      s[p] = s[p] + to_bf16(to_bf16(slope) * to_bf16(static_cast<float>(block_begin + p)));
  const F scale = F::of(options.scale), cap = F::of(options.softcap);
  F m[4] = {F::of(kMinusInfinity), F::of(kMinusInfinity), F::of(kMinusInfinity), F::of(kMinusInfinity)};
  if (seen.begin == 0 && seen.end == kAttentionBlock && options.softcap == 0 && options.alibi_slopes == nullptr) {
    for (int64_t p = 0; p < kAttentionBlock; p += 4 * F::kLanes) {
      for (int j = 0; j < 4; ++j) {
        const F v = F::load(s + p + j * F::kLanes) * scale;
        v.store(s + p + j * F::kLanes);
        m[j] = max(m[j], v);
      }
    }
    return largest(max(max(m[0], m[1]), max(m[2], m[3])));
  }
  const int64_t first = seen.begin / F::kLanes * F::kLanes;
  for (int64_t p = first; p < seen.end; p += F::kLanes) {
    F v = F::load(s + p) * scale;
    if (options.softcap != 0) v = cap * math::tanh(v / cap);
    v.store(s + p);
  }
  if (options.alibi_slopes != nullptr && !options.alibi_bf16_before_scale)
    for (int64_t p = seen.begin; p < seen.end; ++p) s[p] = s[p] + slope * static_cast<float>(block_begin + p);
  for (int64_t p = 0; p < seen.begin; ++p) s[p] = kMinusInfinity;
  for (int64_t p = seen.end; p < kAttentionBlock; ++p) s[p] = kMinusInfinity;
  for (int64_t p = 0; p < kAttentionBlock; p += 4 * F::kLanes)
    for (int j = 0; j < 4; ++j) m[j] = max(m[j], F::load(s + p + j * F::kLanes));
  return largest(max(max(m[0], m[1]), max(m[2], m[3])));
}

// Packs that go through a chain of operations side by side: one chain alone would wait for itself.
template <typename T>
struct Two {
  static constexpr int kLanes = 2 * T::kLanes;
  T a, b;
  static BERTH_MATH Two of(float value) { return {T::of(value), T::of(value)}; }
  static BERTH_MATH Two load(const float* p) { return {T::load(p), T::load(p + T::kLanes)}; }
  BERTH_MATH void store(float* p) const {
    a.store(p);
    b.store(p + T::kLanes);
  }
  friend BERTH_MATH Two operator+(Two x, Two y) { return {x.a + y.a, x.b + y.b}; }
  friend BERTH_MATH Two operator-(Two x, Two y) { return {x.a - y.a, x.b - y.b}; }
  friend BERTH_MATH Two operator*(Two x, Two y) { return {x.a * y.a, x.b * y.b}; }
  friend BERTH_MATH Two fma(Two x, Two y, Two z) { return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b)}; }
  friend BERTH_MATH Two at_least(Two x, float low) { return {at_least(x.a, low), at_least(x.b, low)}; }
  friend BERTH_MATH Two scale_by_power_of_two(Two p, Two n) {
    return {scale_by_power_of_two(p.a, n.a), scale_by_power_of_two(p.b, n.b)};
  }
};

// Scaled scores less their largest become weights. Returns l_B, to which hidden keys would add 0: packs of them are
// left out, and those within a pack get their 0 afterwards, since exp of -infinity passes through the denormals, which
// takes a processor a hundred times as long.
float weigh(float m, Range seen, float* s) {
  F sum[kAccumulators];
  for (F& a : sum) a = F::of(0.0f);
  if (seen.begin == 0 && seen.end == kAttentionBlock) {
    using Packs = Two<Two<F>>;
    for (int64_t p = 0; p < kAttentionBlock; p += Packs::kLanes) {
      const Packs e = math::exp<true>(Packs::load(s + p) - Packs::of(m));
      e.store(s + p);
      if constexpr (kAccumulators == 2) {
        sum[0] = (sum[0] + e.a.a) + e.b.a;
        sum[1] = (sum[1] + e.a.b) + e.b.b;
      } else {
        sum[0] = sum[0] + e.a.a;
        sum[1] = sum[1] + e.a.b;
        sum[2] = sum[2] + e.b.a;
        sum[3] = sum[3] + e.b.b;
      }
    }
    return finish(sum);
  }
  for (int64_t p = seen.begin / kLanes * kLanes; p < seen.end; p += kLanes) {
    for (int j = 0; j < kAccumulators; ++j) {
      const int64_t begin = p + j * F::kLanes, end = begin + F::kLanes;
      if (end <= seen.begin || begin >= seen.end) continue;
      if (begin >= seen.begin && end <= seen.end) {
        const F e = math::exp<true>(F::load(s + begin) - F::of(m));
        e.store(s + begin);
        sum[j] = sum[j] + e;
        continue;
      }
      const auto fill_hidden = [&](float value) {
        for (int64_t i = begin; i < seen.begin; ++i) s[i] = value;
        for (int64_t i = std::max(begin, seen.end); i < end; ++i) s[i] = value;
      };
      fill_hidden(m);
      math::exp<true>(F::load(s + begin) - F::of(m)).store(s + begin);
      fill_hidden(0);
      sum[j] = sum[j] + F::load(s + begin);
    }
  }
  return finish(sum);
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
