// kernel/ref/streams.cc — altup's steps over several residual streams.
#include "berth/kernel/streams.h"

#include <algorithm>
#include <cmath>

#include "berth/kernel/family_operations.h"
#include "berth/kernel/ref/lanes.h"

namespace berth::kernel::BERTH_REF {

void predict_streams(float* x, int32_t inputs, int64_t rows, int64_t n, const float* coefs) {
  const int64_t plane = rows * n;
  float old[kMaxStreams];
  for (int64_t r = 0; r < rows; ++r) {
    const float* c = coefs + r * inputs * inputs;
    for (int64_t h = 0; h < n; ++h) {
      float* at = x + r * n + h;
      for (int32_t j = 0; j < inputs; ++j) old[j] = at[j * plane];
      for (int32_t i = 0; i < inputs; ++i) {
        float s = 0;
        for (int32_t j = 0; j < inputs; ++j) s = std::fma(c[i * inputs + j], old[j], s);
        at[i * plane] = old[i] + s;
      }
    }
  }
}

void correct_streams(float* x, int32_t inputs, int32_t active, int64_t rows, int64_t n, const float* f,
                     const float* coefs) {
  const int64_t plane = rows * n;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < n; ++h) {
      float* at = x + r * n + h;
      const float change = f[r * n + h] - at[active * plane];
      for (int32_t i = 0; i < inputs; ++i) at[i * plane] = at[i * plane] + change * (coefs[r * inputs + i] + 1.0f);
    }
  }
}

void match_magnitude(float* y, int64_t y_stride, const float* model, int64_t model_stride, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, y += y_stride, model += model_stride) {
    const float wanted = lane_dot_self(n, [&](int64_t i) { return model[i]; }) / static_cast<float>(n);
    const float own = lane_dot_self(n, [&](int64_t i) { return y[i]; }) / static_cast<float>(n);
    const float factor = std::sqrt(wanted) / std::sqrt(own < 1e-5f ? 1e-5f : own);
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] * factor;
  }
}

}  // namespace berth::kernel::BERTH_REF
