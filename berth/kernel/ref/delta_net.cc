// kernel/ref/delta_net.cc — short convolution and gated delta rule, numerics.md 2.
#include "berth/kernel/delta_net.h"

#include <cmath>

#include "berth/kernel/family_operations.h"
#include "berth/kernel/math.h"
#include "berth/kernel/ref/ref.h"

namespace berth::kernel::BERTH_REF {

void short_convolution(const float* x, int64_t rows, int64_t channels, int64_t begin, int64_t end, int32_t taps,
                       const float* w, float* state, float* y) {
  for (int64_t t = 0; t < rows; ++t) {
    // The state moves on first: its last row is this token's input.
    for (int32_t j = 0; j + 1 < taps; ++j)
      for (int64_t c = begin; c < end; ++c) state[j * channels + c] = state[(j + 1) * channels + c];
    for (int64_t c = begin; c < end; ++c) {
      state[(taps - 1) * channels + c] = x[t * channels + c];
      float s = 0;
      for (int32_t j = 0; j < taps; ++j) s = std::fma(w[c * taps + j], state[j * channels + c], s);
      y[t * channels + c] = s;
    }
  }
}

void delta_gates(const float* b, const float* a, const float* a_log, const float* dt_bias, int64_t rows, int64_t heads,
                 float* beta, float* decay) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      beta[r * heads + h] = sigmoid_f32(b[r * heads + h]);
      const float g = -exp_f32(a_log[h]) * softplus_f32(a[r * heads + h] + dt_bias[h]);
      decay[r * heads + h] = exp_f32(g);
    }
  }
}

void delta_rule_heads(const DeltaShape& shape, int32_t begin, int32_t end, float* state, const float* q, const float* k,
                      const float* v, int64_t stride, const float* beta, const float* decay, int64_t rows, float* out) {
  const int64_t dk = shape.key_dim, dv = shape.value_dim;
  const int32_t each = shape.value_heads / shape.key_heads;
  float e[kMaxDeltaValueDim];
  for (int32_t h = begin; h < end; ++h) {
    float* s = state + h * dk * dv;
    for (int64_t t = 0; t < rows; ++t) {
      const float* key = k + t * stride + h / each * dk;
      const float* query = q + t * stride + h / each * dk;
      const float* value = v + t * stride + h * dv;
      float* o = out + (t * shape.value_heads + h) * dv;
      const float keep = decay[t * shape.value_heads + h], rate = beta[t * shape.value_heads + h];
      for (int64_t j = 0; j < dv; ++j) e[j] = 0;
      for (int64_t i = 0; i < dk; ++i) {
        float* row = s + i * dv;
        const float factor = key[i];
        for (int64_t j = 0; j < dv; ++j) {
          row[j] = row[j] * keep;
          e[j] = std::fma(row[j], factor, e[j]);
        }
      }
      for (int64_t j = 0; j < dv; ++j) {
        e[j] = (value[j] - e[j]) * rate;
        o[j] = 0;
      }
      for (int64_t i = 0; i < dk; ++i) {
        float* row = s + i * dv;
        const float factor = key[i], asked = query[i];
        for (int64_t j = 0; j < dv; ++j) {
          row[j] = std::fma(factor, e[j], row[j]);
          o[j] = std::fma(row[j], asked, o[j]);
        }
      }
    }
  }
}

}  // namespace berth::kernel::BERTH_REF
