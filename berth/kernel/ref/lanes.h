// kernel/ref/lanes.h — the reduction orders of numerics.md 2: 32 lanes, then halves folded together.
#pragma once

#include <cmath>
#include <cstdint>

#include "berth/kernel/ref/ref.h"

namespace berth::kernel::BERTH_REF {

inline constexpr int kLanes = 32;

// h = lanes/2, ..., 2, 1: a[i] = a[i] + a[i+h], i < h; the result + 0, so that it is no negative zero.
inline float finish(float* a, int lanes) {
  for (int h = lanes / 2; h >= 1; h /= 2)
    for (int i = 0; i < h; ++i) a[i] = a[i] + a[i + h];
  return a[0] + 0.0f;
}

// Lane = index mod 32, plain adds, the finish. term(i) gives v[i].
template <typename Term>
float lane_sum(int64_t n, Term&& term) {
  float a[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) a[i % kLanes] = a[i % kLanes] + term(i);
  return finish(a, kLanes);
}

// The same of term(i) * term(i) with fma.
template <typename Term>
float lane_dot_self(int64_t n, Term&& term) {
  float a[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) {
    const float v = term(i);
    a[i % kLanes] = std::fma(v, v, a[i % kLanes]);
  }
  return finish(a, kLanes);
}

}  // namespace berth::kernel::BERTH_REF
