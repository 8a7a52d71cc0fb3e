// kernel/elementwise.cc — checks arguments once, then the instruction set's kernel.
#include "berth/kernel/elementwise.h"

#include "berth/base/check.h"
#include "berth/base/float_environment.h"
#include "berth/kernel/dispatch.h"

namespace berth::kernel {

void apply(const Context& context, Function f, const float* x, float* y, int64_t n) {
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"apply"});
  operations(context.isa).apply(context, f, x, y, n);
}

void activate(const Context& context, Activation act, const float* gate, int64_t gate_stride, const float* up,
              int64_t up_stride, int64_t rows, int64_t n, float* y, int64_t y_stride) {
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"activate"});
  operations(context.isa).activate(context, act, gate, gate_stride, up, up_stride, rows, n, y, y_stride);
}

void add_residual(const Context& context, float* h, int64_t h_stride, const float* y, int64_t y_stride,
                  float multiplier, int64_t rows, int64_t n) {
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"add_residual"});
  operations(context.isa).add_residual(context, h, h_stride, y, y_stride, multiplier, rows, n);
}

void scale(const Context& context, float* x, int64_t stride, float factor, int64_t rows, int64_t n) {
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"scale"});
  operations(context.isa).scale(context, x, stride, factor, rows, n);
}

void divide(const Context& context, float* x, int64_t stride, float divisor, int64_t rows, int64_t n) {
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"divide"});
  operations(context.isa).divide(context, x, stride, divisor, rows, n);
}

void softcap(const Context& context, float* x, int64_t stride, float cap, int64_t rows, int64_t n) {
  CHECK(cap != 0);
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"softcap"});
  operations(context.isa).softcap(context, x, stride, cap, rows, n);
}

void gather_rows(const Context& context, const quant::PackedMatrix& table, std::span<const int32_t> ids, float* y,
                 int64_t y_stride) {
  for (const int32_t id : ids) CHECK(id >= 0 && id < table.rows);
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"gather_rows"});
  operations(context.isa).gather_rows(context, table, ids, y, y_stride);
}

void softmax(const Context& context, float* x, int64_t stride, int64_t rows, int64_t n) {
  if (rows == 0 || n == 0) return;
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"softmax"});
  operations(context.isa).softmax(context, x, stride, rows, n);
}

int64_t argmax(const float* x, int64_t n) { return operations(best_isa()).argmax(x, n); }
bool all_finite(const float* x, int64_t n) { return operations(best_isa()).all_finite(x, n); }

}  // namespace berth::kernel
