// kernel/cpu/norm-inl.h — RMSNorm and LayerNorm over packs; ref/norm.cc is the definition.
#include <cmath>

#include "berth/kernel/cpu/lanes-inl.h"
#include "berth/kernel/cpu/split-inl.h"
#include "berth/kernel/cpu/targets.h"
#include "berth/kernel/norm.h"

namespace berth::kernel::BERTH_TARGET {

void rms_norm(const Context& context, const float* x, int64_t x_stride, const float* w, float eps, int64_t rows,
              int64_t n, float* y, int64_t y_stride) {
  split(context, rows, 0.2 * static_cast<double>(n), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const float* in = x + row * x_stride;
      float* out = y + row * y_stride;
      const float ss = lane_reduce(
          n,
          [&](F a, int64_t i) {
            const F v = F::load(in + i);
            return fma(v, v, a);
          },
          [&](float a, int64_t i) { return std::fma(in[i], in[i], a); });
      const F r = F::of(1.0f / std::sqrt(ss / static_cast<float>(n) + eps));
      if (w == nullptr) {
        map(n, in, out, [&](F v, int64_t) { return v * r; });
      } else {
        map(n, in, out, [&](F v, int64_t i) { return (v * r) * load_at(w, i, n); });
      }
    }
  });
}

void layer_norm(const Context& context, const float* x, int64_t x_stride, const float* w, const float* b, float eps,
                int64_t rows, int64_t n, float* y, int64_t y_stride) {
  split(context, rows, 0.3 * static_cast<double>(n), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const float* in = x + row * x_stride;
      float* out = y + row * y_stride;
      const float sum = lane_reduce(
          n, [&](F a, int64_t i) { return a + F::load(in + i); }, [&](float a, int64_t i) { return a + in[i]; });
      const float mu = sum / static_cast<float>(n);
      const float ss = lane_reduce(
          n,
          [&](F a, int64_t i) {
            const F d = F::load(in + i) - F::of(mu);
            return fma(d, d, a);
          },
          [&](float a, int64_t i) { return std::fma(in[i] - mu, in[i] - mu, a); });
      const F r = F::of(1.0f / std::sqrt(ss / static_cast<float>(n) + eps));
      map(n, in, out, [&](F v, int64_t i) {
        const F d = (v - F::of(mu)) * r;
        const F weight = w == nullptr ? F::of(1.0f) : load_at(w, i, n);
        return b == nullptr ? d * weight : fma(d, weight, load_at(b, i, n));
      });
    }
  });
}

}  // namespace berth::kernel::BERTH_TARGET
