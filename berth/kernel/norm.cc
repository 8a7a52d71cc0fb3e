// kernel/norm.cc — checks arguments once, then the instruction set's kernel.
#include "berth/kernel/norm.h"

#include "berth/base/check.h"
#include "berth/base/float_environment.h"
#include "berth/kernel/dispatch.h"

namespace berth::kernel {

void rms_norm(const Context& context, const float* x, int64_t x_stride, const float* w, float eps, int64_t rows,
              int64_t n, float* y, int64_t y_stride) {
  if (rows == 0 || n == 0) return;
  CHECK(rows > 0 && n > 0);
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"rms_norm"});
  operations(context.isa).rms_norm(context, x, x_stride, w, eps, rows, n, y, y_stride);
}

void layer_norm(const Context& context, const float* x, int64_t x_stride, const float* w, const float* b, float eps,
                int64_t rows, int64_t n, float* y, int64_t y_stride) {
  if (rows == 0 || n == 0) return;
  CHECK(rows > 0 && n > 0);
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"layer_norm"});
  operations(context.isa).layer_norm(context, x, x_stride, w, b, eps, rows, n, y, y_stride);
}

}  // namespace berth::kernel
