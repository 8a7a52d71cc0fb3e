// kernel/attention.cc — checks arguments once, then the instruction set's kernel.
#include "berth/kernel/attention.h"

#include <algorithm>

#include "berth/base/check.h"
#include "berth/base/float_environment.h"
#include "berth/kernel/dispatch.h"
#include "berth/quant/scratch.h"

namespace berth::kernel {
namespace {

void check(const KvView& cache) {
  CHECK(cache.k != nullptr && cache.v != nullptr);
  CHECK(cache.dtype == DType::kF32 || cache.dtype == DType::kF16 || cache.dtype == DType::kBF16);
  CHECK(cache.capacity > 0 && cache.capacity % kAttentionBlock == 0);
  CHECK(cache.kv_heads > 0 && cache.head_dim > 0 && cache.v_head_dim > 0);
}

}  // namespace

void kv_write(const Context& context, const KvView& cache, int64_t position, int64_t rows, const float* k,
              int64_t k_stride, const float* v, int64_t v_stride) {
  if (rows == 0) return;
  check(cache);
  CHECK(position >= 0 && rows > 0 && rows <= cache.capacity);
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"kv_write"});
  operations(context.isa).kv_write(context, cache, position, rows, k, k_stride, v, v_stride);
}

void attention(const Context& context, const AttentionOptions& options, std::span<const AttentionJob> jobs,
               std::span<std::byte> scratch) {
  if (jobs.empty()) return;
  const int threads = context.pool == nullptr ? 1 : context.pool->size();
  int64_t rows = 0, longest = 0;
  for (const AttentionJob& job : jobs) {
    check(job.cache);
    CHECK(job.position >= 0 && job.rows >= 0);
    CHECK(options.heads > 0 && options.heads % job.cache.kv_heads == 0);
    CHECK(job.cache.head_dim == jobs[0].cache.head_dim && job.cache.v_head_dim == jobs[0].cache.v_head_dim);
    // Every visible position must still be in the ring.
    int64_t seen = job.position + job.rows;
    if (options.window > 0) seen = std::min(seen, options.window + job.rows - 1);
    if (options.chunk > 0) seen = std::min(seen, options.chunk + job.rows - 1);
    CHECK(seen <= job.cache.capacity);
    rows += job.rows;
    longest = std::max(longest, seen);
  }
  CHECK(scratch.size() >= quant::attention_scratch_bytes(options.heads, jobs[0].cache.head_dim,
                                                         jobs[0].cache.v_head_dim, rows, longest, threads));
  CHECK(reinterpret_cast<uintptr_t>(scratch.data()) % 64 == 0);
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"attention"});
  operations(context.isa).attention(context, options, jobs, scratch);
}

}  // namespace berth::kernel
