// kernel/ref/elementwise.cc — activations, residuals, scaling, softcap, softmax, row lookups; numerics.md 2 and 3.
#include "berth/kernel/elementwise.h"

#include <algorithm>

#include "berth/kernel/math.h"
#include "berth/kernel/ref/lanes.h"
#include "berth/quant/packed.h"

namespace berth::kernel::BERTH_REF {
namespace {

float function(Function f, float x) {
  switch (f) {
    case Function::kExp:
      return exp_f32(x);
    case Function::kTanh:
      return tanh_f32(x);
    case Function::kSigmoid:
      return sigmoid_f32(x);
    case Function::kErf:
      return erf_f32(x);
    case Function::kLog:
      return log_f32(x);
    case Function::kSoftplus:
      return softplus_f32(x);
    case Function::kSilu:
      return silu_f32(x);
    case Function::kGeluTanh:
      return gelu_tanh_f32(x);
    case Function::kGeluErf:
      return gelu_erf_f32(x);
    case Function::kRelu:
      return x < 0 ? 0.0f : x;
  }
  return x;
}

Function function_of(Activation act) {
  switch (act) {
    case Activation::kSilu:
      return Function::kSilu;
    case Activation::kGeluTanh:
      return Function::kGeluTanh;
    case Activation::kGeluErf:
      return Function::kGeluErf;
    case Activation::kRelu:
      return Function::kRelu;
  }
  return Function::kSilu;
}

template <typename F>
void each(float* x, int64_t stride, int64_t rows, int64_t n, F&& f) {
  for (int64_t row = 0; row < rows; ++row, x += stride)
    for (int64_t i = 0; i < n; ++i) x[i] = f(x[i]);
}

}  // namespace

void apply(const Context&, Function f, const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = function(f, x[i]);
}

void activate(const Context&, Activation act, const float* gate, int64_t gate_stride, const float* up,
              int64_t up_stride, int64_t rows, int64_t n, float* y, int64_t y_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < n; ++i) {
      const float a = function(function_of(act), gate[row * gate_stride + i]);
      y[row * y_stride + i] = up == nullptr ? a : a * up[row * up_stride + i];
    }
  }
}

void add_residual(const Context&, float* h, int64_t h_stride, const float* y, int64_t y_stride, float multiplier,
                  int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, h += h_stride, y += y_stride)
    for (int64_t i = 0; i < n; ++i) h[i] = h[i] + (multiplier == 1.0f ? y[i] : multiplier * y[i]);
}

void scale(const Context&, float* x, int64_t stride, float factor, int64_t rows, int64_t n) {
  each(x, stride, rows, n, [&](float v) { return v * factor; });
}
void divide(const Context&, float* x, int64_t stride, float divisor, int64_t rows, int64_t n) {
  each(x, stride, rows, n, [&](float v) { return v / divisor; });
}
void softcap(const Context&, float* x, int64_t stride, float cap, int64_t rows, int64_t n) {
  each(x, stride, rows, n, [&](float v) { return cap * tanh_f32(v / cap); });
}

void gather_rows(const Context&, const quant::PackedMatrix& table, std::span<const int32_t> ids, float* y,
                 int64_t y_stride) {
  for (size_t i = 0; i < ids.size(); ++i) quant::decode_row(table, ids[i], y + static_cast<int64_t>(i) * y_stride);
}

void softmax(const Context&, float* x, int64_t stride, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, x += stride) {
    const float m = *std::max_element(x, x + n);
    for (int64_t i = 0; i < n; ++i) x[i] = exp_f32(x[i] - m);
    const float sum = lane_sum(n, [&](int64_t i) { return x[i]; });
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] / sum;
  }
}

int64_t argmax(const float* x, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) return -1;
    if (best < 0 || x[i] > x[best]) best = i;
  }
  return best;
}

bool all_finite(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!(x[i] - x[i] == 0)) return false;
  return true;
}

}  // namespace berth::kernel::BERTH_REF
