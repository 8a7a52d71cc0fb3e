// kernel/ref/gated.cc — clamped swiglu, gates, factors by row, activation sparsity, rows in the cache's dtype.
#include "berth/kernel/gated.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "berth/kernel/family_operations.h"
#include "berth/kernel/math.h"
#include "berth/kernel/ref/lanes.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::BERTH_REF {

void clamped_swiglu(const float* gate, int64_t gate_stride, const float* up, int64_t up_stride, float limit,
                    float alpha, int64_t rows, int64_t n, float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; ++i) {
      const float a = gate[r * gate_stride + i], b = up[r * up_stride + i];
      const float g = a > limit ? limit : a;
      const float u = b > limit ? limit : b < -limit ? -limit : b;
      y[r * y_stride + i] = ((u + 1.0f) * g) * sigmoid_f32(alpha * g);
    }
  }
}

void multiply(float* y, int64_t y_stride, const float* x, int64_t x_stride, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, y += y_stride, x += x_stride)
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] * x[i];
}

void scale_rows(const float* x, int64_t x_stride, const float* factors, int64_t rows, int64_t n, float* y,
                int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r, y += y_stride, x += x_stride)
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factors[r];
}

void sparsify(float* x, int64_t stride, float cutoff, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    const float mean = lane_sum(n, [&](int64_t i) { return x[i]; }) / static_cast<float>(n);
    const float ss = lane_dot_self(n, [&](int64_t i) { return x[i] - mean; });
    const float border = mean + std::sqrt(ss / static_cast<float>(n)) * cutoff;
    for (int64_t i = 0; i < n; ++i) {
      const float d = x[i] - border;
      x[i] = d < 0 ? 0.0f : d;
    }
  }
}

void store_rows(DType dtype, const float* x, int64_t x_stride, int64_t rows, int64_t n, std::byte* to) {
  for (int64_t r = 0; r < rows; ++r, x += x_stride) {
    if (dtype == DType::kF32) {
      std::memcpy(reinterpret_cast<float*>(to) + r * n, x, static_cast<size_t>(n) * sizeof(float));
      continue;
    }
    uint16_t* half = reinterpret_cast<uint16_t*>(to) + r * n;
    for (int64_t i = 0; i < n; ++i) half[i] = dtype == DType::kF16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
  }
}

void load_rows(DType dtype, const std::byte* from, int64_t rows, int64_t n, float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r, y += y_stride) {
    if (dtype == DType::kF32) {
      std::memcpy(y, reinterpret_cast<const float*>(from) + r * n, static_cast<size_t>(n) * sizeof(float));
      continue;
    }
    const uint16_t* half = reinterpret_cast<const uint16_t*>(from) + r * n;
    for (int64_t i = 0; i < n; ++i) y[i] = dtype == DType::kF16 ? f16_to_f32(half[i]) : bf16_to_f32(half[i]);
  }
}

}  // namespace berth::kernel::BERTH_REF
