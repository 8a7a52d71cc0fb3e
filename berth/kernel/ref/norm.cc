// kernel/ref/norm.cc — RMSNorm and LayerNorm, numerics.md 2.
#include "berth/kernel/norm.h"

#include <cmath>

#include "berth/kernel/ref/lanes.h"

namespace berth::kernel::BERTH_REF {

void rms_norm(const Context&, const float* x, int64_t x_stride, const float* w, float eps, int64_t rows, int64_t n,
              float* y, int64_t y_stride) {
  for (int64_t row = 0; row < rows; ++row, x += x_stride, y += y_stride) {
    const float ss = lane_dot_self(n, [&](int64_t i) { return x[i]; });
    const float r = 1.0f / std::sqrt(ss / static_cast<float>(n) + eps);
    for (int64_t i = 0; i < n; ++i) y[i] = w == nullptr ? x[i] * r : (x[i] * r) * w[i];
  }
}

void layer_norm(const Context&, const float* x, int64_t x_stride, const float* w, const float* b, float eps,
                int64_t rows, int64_t n, float* y, int64_t y_stride) {
  for (int64_t row = 0; row < rows; ++row, x += x_stride, y += y_stride) {
    const float mu = lane_sum(n, [&](int64_t i) { return x[i]; }) / static_cast<float>(n);
    const float ss = lane_dot_self(n, [&](int64_t i) { return x[i] - mu; });
    const float r = 1.0f / std::sqrt(ss / static_cast<float>(n) + eps);
    for (int64_t i = 0; i < n; ++i) {
      const float d = x[i] - mu;
      const float weight = w == nullptr ? 1.0f : w[i];
      y[i] = b == nullptr ? (d * r) * weight : std::fma(d * r, weight, b[i]);
    }
  }
}

}  // namespace berth::kernel::BERTH_REF
