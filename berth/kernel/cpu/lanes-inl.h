// kernel/cpu/lanes-inl.h — the 32 lanes of numerics.md 2 in packs.
#pragma once

#include <cmath>
#include <cstdint>

#include "berth/kernel/math.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

using F = BERTH_PACK;
constexpr int kLanes = 32;
constexpr int kAccumulators = kLanes / F::kLanes;

// h = 16, 8, 4, 2, 1: a[i] = a[i] + a[i + h]; + 0.
BERTH_MATH float finish(float* a) {
  for (int h = kLanes / 2; h >= 1; h /= 2)
    for (int i = 0; i < h; ++i) a[i] = a[i] + a[i + h];
  return a[0] + 0.0f;
}

// The same of 32 lanes in packs.
BERTH_MATH float finish(F (&a)[kAccumulators]) {
  for (int n = kAccumulators / 2; n >= 1; n /= 2)
    for (int i = 0; i < n; ++i) a[i] = a[i] + a[i + n];
  return sum_halves(a[0]) + 0.0f;
}

// The lane sum of step(a, pack of v[i..]) over v = term(packs), with term1 and step1 the same for one element. Elements
// past the last whole 32 are added to their lanes one by one.
template <typename Packs, typename One>
BERTH_MATH float lane_reduce(int64_t n, Packs&& packs, One&& one) {
  F a[kAccumulators];
  for (F& v : a) v = F::of(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kAccumulators; ++j) a[j] = packs(a[j], i + j * F::kLanes);
  if (i == n) return finish(a);
  alignas(64) float lanes[kLanes];
  for (int j = 0; j < kAccumulators; ++j) a[j].store(lanes + j * F::kLanes);
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] = one(lanes[lane], i);
  return finish(lanes);
}

// f(pack) -> pack over x[0..n) into y[0..n); the last pack is partial.
template <typename Map>
BERTH_MATH void map(int64_t n, const float* x, float* y, Map&& f) {
  int64_t i = 0;
  for (; i + F::kLanes <= n; i += F::kLanes) f(F::load(x + i), i).store(y + i);
  if (i < n) f(F::load_partial(x + i, n - i), i).store_partial(y + i, n - i);
}

// A pack of p[i..], of which only those below n are there.
BERTH_MATH F load_at(const float* p, int64_t i, int64_t n) {
  return i + F::kLanes <= n ? F::load(p + i) : F::load_partial(p + i, n - i);
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
