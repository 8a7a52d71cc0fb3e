// kernel/ref/rope.cc — the rotation of pairs, numerics.md 3.
#include "berth/kernel/rope.h"

#include <cmath>

#include "berth/kernel/ref/ref.h"

namespace berth::kernel::BERTH_REF {

void rope(const Context&, float* x, int64_t x_stride, int64_t rows, int32_t heads, int32_t head_dim, int32_t rotary_dim,
          RopeLayout layout, const float* cos, const float* sin) {
  const int32_t half = rotary_dim / 2;
  float turned[kMaxRotaryDim];
  for (int64_t row = 0; row < rows; ++row, x += x_stride, cos += half, sin += half) {
    for (int32_t head = 0; head < heads; ++head) {
      float* h = x + static_cast<int64_t>(head) * head_dim;
      for (int32_t j = 0; j < half; ++j) {
        const bool pairs_in = layout != RopeLayout::kHalves;
        const bool pairs_out = layout == RopeLayout::kPairs;
        const float a = h[pairs_in ? 2 * j : j];
        const float b = h[pairs_in ? 2 * j + 1 : j + half];
        turned[pairs_out ? 2 * j : j] = std::fma(a, cos[j], -(b * sin[j]));
        turned[pairs_out ? 2 * j + 1 : j + half] = std::fma(b, cos[j], a * sin[j]);
      }
      for (int32_t i = 0; i < rotary_dim; ++i) h[i] = turned[i];
    }
  }
}

}  // namespace berth::kernel::BERTH_REF
