// kernel/cpu/rope-inl.h — the rotation over packs for halves; pairs element by element. ref/rope.cc is the definition.
#include <cmath>

#include "berth/kernel/cpu/lanes-inl.h"
#include "berth/kernel/cpu/split-inl.h"
#include "berth/kernel/cpu/targets.h"
#include "berth/kernel/rope.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

void turn_halves(float* h, int32_t half, const float* cos, const float* sin) {
  for (int64_t j = 0; j < half; j += F::kLanes) {
    const F a = load_at(h, j, half), b = load_at(h + half, j, half);
    const F c = load_at(cos, j, half), s = load_at(sin, j, half);
    const F turned_a = fma(a, c, math::negate(b * s));
    const F turned_b = fma(b, c, a * s);
    if (j + F::kLanes <= half) {
      turned_a.store(h + j);
      turned_b.store(h + half + j);
    } else {
      turned_a.store_partial(h + j, half - j);
      turned_b.store_partial(h + half + j, half - j);
    }
  }
}

void turn_pairs(float* h, int32_t half, const float* cos, const float* sin, bool to_halves) {
  float second[kMaxRotaryDim / 2];
  for (int32_t j = 0; j < half; ++j) {
    const float a = h[2 * j], b = h[2 * j + 1];
    const float turned_a = std::fma(a, cos[j], -(b * sin[j]));
    const float turned_b = std::fma(b, cos[j], a * sin[j]);
    // Writing [j] is behind the reads, which are at 2j.
    h[to_halves ? j : 2 * j] = turned_a;
    if (to_halves) {
      second[j] = turned_b;
    } else {
      h[2 * j + 1] = turned_b;
    }
  }
  if (to_halves)
    for (int32_t j = 0; j < half; ++j) h[half + j] = second[j];
}

}  // namespace

void rope(const Context& context, float* x, int64_t x_stride, int64_t rows, int32_t heads, int32_t head_dim,
          int32_t rotary_dim, RopeLayout layout, const float* cos, const float* sin) {
  const int32_t half = rotary_dim / 2;
  split(context, rows, 0.4 * heads * rotary_dim, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      for (int32_t head = 0; head < heads; ++head) {
        float* h = x + row * x_stride + static_cast<int64_t>(head) * head_dim;
        if (layout == RopeLayout::kHalves) {
          turn_halves(h, half, cos + row * half, sin + row * half);
        } else {
          turn_pairs(h, half, cos + row * half, sin + row * half, layout == RopeLayout::kPairsToHalves);
        }
      }
    }
  });
}

}  // namespace berth::kernel::BERTH_TARGET
