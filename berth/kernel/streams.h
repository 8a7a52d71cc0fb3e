// kernel/streams.h — several residual streams side by side (Gemma 3n's altup): predict, correct, equal magnitudes, mean.
//
// Streams: [inputs][rows][n] fp32, one after the other. Sums over the few streams are plain, ascending.
#pragma once

#include <cstdint>

#include "berth/kernel/context.h"

namespace berth::kernel {

inline constexpr int32_t kMaxStreams = 64;

// x_i = x_i + s_i, s_i = chain of fma(coefs[row][i][j], x_j) from +0, ascending j. coefs: [rows, inputs, inputs].
void predict_streams(const Context& context, float* x, int32_t inputs, int64_t rows, int64_t n, const float* coefs);

// x_i = x_i + (f - x_active) * (coefs[row][i] + 1), x_active as it was before. coefs: [rows, inputs]; f: [rows, n].
void correct_streams(const Context& context, float* x, int32_t inputs, int32_t active, int64_t rows, int64_t n,
                     const float* f, const float* coefs);

// y = y * (sqrt(ss(model) / n) / sqrt(max(ss(y) / n, 1e-5))), ss: lane dot with itself.
void match_magnitude(const Context& context, float* y, int64_t y_stride, const float* model, int64_t model_stride,
                     int64_t rows, int64_t n);

}  // namespace berth::kernel
