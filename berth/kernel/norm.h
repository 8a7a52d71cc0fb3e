// kernel/norm.h — RMSNorm and LayerNorm over rows (numerics.md 2).
#pragma once

#include <cstdint>

#include "berth/kernel/context.h"

namespace berth::kernel {

// y[m] = (x[m] * r) * w, r = 1 / sqrt(lane_dot(x, x) / n + eps); w null: x * r.
// x, y: [rows, n], row strides >= n; y may be x. eps is the fp32 rounding of the config's.
void rms_norm(const Context& context, const float* x, int64_t x_stride, const float* w, float eps, int64_t rows,
              int64_t n, float* y, int64_t y_stride);

// mu = lane_sum(x) / n; d = x - mu; y = fma(d * r, w, b), b null: (d * r) * w; w null: 1 in its place.
void layer_norm(const Context& context, const float* x, int64_t x_stride, const float* w, const float* b, float eps,
                int64_t rows, int64_t n, float* y, int64_t y_stride);

}  // namespace berth::kernel
