// kernel/gated.h — element-wise steps that only some families have: clamped swiglu, products with a gate, factors by
// row, Gemma 3n's activation sparsity; and rows kept in the cache's dtype.
//
// Pointers: [rows, n] fp32 with row strides; outputs may be an input. Reductions are those of numerics.md 2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "berth/kernel/context.h"
#include "berth/tensor/dtype.h"

namespace berth::kernel {

// g = min(gate, limit); u = clamp(up, -limit, limit); y = ((u + 1) * g) * sigmoid(alpha * g).
void clamped_swiglu(const Context& context, const float* gate, int64_t gate_stride, const float* up, int64_t up_stride,
                    float limit, float alpha, int64_t rows, int64_t n, float* y, int64_t y_stride);

// y = y * x.
void multiply(const Context& context, float* y, int64_t y_stride, const float* x, int64_t x_stride, int64_t rows,
              int64_t n);

// y[m] = x[m] * factors[m].
void scale_rows(const Context& context, const float* x, int64_t x_stride, const float* factors, int64_t rows, int64_t n,
                float* y, int64_t y_stride);

// In place: relu(x - (mean + deviation * cutoff)); mean = lane sum / n, d = x - mean, deviation = sqrt(lane dot(d) / n).
void sparsify(const Context& context, float* x, int64_t stride, float cutoff, int64_t rows, int64_t n);

// fp32 rows rounded to `dtype` (kF32, kF16, kBF16) and back; in memory rows lie one after the other.
void store_rows(const Context& context, DType dtype, const float* x, int64_t x_stride, int64_t rows, int64_t n,
                std::byte* to);
void load_rows(const Context& context, DType dtype, const std::byte* from, int64_t rows, int64_t n, float* y,
               int64_t y_stride);

}  // namespace berth::kernel
