// kernel/linear.cc — checks arguments once, then the instruction set's kernel.
#include "berth/kernel/linear.h"

#include "berth/base/check.h"
#include "berth/base/float_environment.h"
#include "berth/kernel/dispatch.h"
#include "berth/quant/scratch.h"

namespace berth::kernel {
namespace {

Trace::Operation described(const LinearInput& input, std::span<const LinearJob> jobs) {
  Trace::Operation o{"linear", 0, input.k, 0};
  for (const LinearJob& job : jobs) {
    o.outputs += job.row_count;
    const auto bytes = quant::file_bytes(job.weight->format, job.row_count, input.k);
    if (bytes) o.bytes += static_cast<int64_t>(*bytes);
  }
  return o;
}

}  // namespace

void linear(const Context& context, const LinearInput& input, std::span<const LinearJob> jobs,
            std::span<std::byte> scratch) {
  if (input.m == 0 || jobs.empty()) return;
  CHECK(input.m > 0 && input.k > 0 && input.x_stride >= input.k);
  const int threads = context.pool == nullptr ? 1 : context.pool->size();
  CHECK(scratch.size() >= quant::linear_scratch_bytes(input.m, input.k, context.numerics == Numerics::kInt8, threads));
  CHECK(reinterpret_cast<uintptr_t>(scratch.data()) % 64 == 0);
  for (const LinearJob& job : jobs) {
    CHECK(job.weight != nullptr && job.weight->cols == input.k);
    CHECK(job.row_begin >= 0 && job.row_count >= 0 && job.row_begin + job.row_count <= job.weight->rows);
    CHECK(job.y_stride >= job.row_count);
  }
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), context.trace() == nullptr ? Trace::Operation{} : described(input, jobs));
  operations(context.isa).linear(context, input, jobs, scratch);
}

}  // namespace berth::kernel
