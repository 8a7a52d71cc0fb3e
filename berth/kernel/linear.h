// kernel/linear.h — y = W x for every storage format, in both numerics modes: the operation that decides speed.
//
// Follows numerics.md 1 (exact) and 5 (int8). `ref` defines the bits; every instruction set equals it with ==, for
// every M, thread count and split of the work. Work is split by outputs, never along K.
//
// Several matrices that read the same x (q, k, v; gate, up) go in one call: x is prepared once and there is one
// fork-join. Rows may be a range of a larger matrix (fused projections, one expert of a bank).
//
// Start reading at: LinearJob; ref/linear.cc is the definition.
#pragma once

#include <cstdint>
#include <span>

#include "berth/kernel/context.h"
#include "berth/quant/packed.h"

namespace berth::kernel {

struct LinearJob {
  const quant::PackedMatrix* weight = nullptr;  // [rows, K]
  int64_t row_begin = 0, row_count = 0;         // outputs computed: N = row_count
  const float* bias = nullptr;                  // [N] or null; added after the finish
  float* y = nullptr;                           // [M, N], row m at y + m * y_stride
  int64_t y_stride = 0;                         // >= N
};

struct LinearInput {
  const float* x = nullptr;  // [M, K], row m at x + m * x_stride; not aliased by any y
  int64_t m = 0, k = 0;
  int64_t x_stride = 0;  // >= K
};

// `scratch`: at least quant::linear_scratch_bytes(m, k, numerics, threads), 64-byte aligned; CHECKed.
// All weights of one call have `cols` == k; their formats may differ. In int8 mode formats to which it does not apply
// (fp32, bf16, fp16, fp8) run as in exact.
void linear(const Context& context, const LinearInput& input, std::span<const LinearJob> jobs,
            std::span<std::byte> scratch);

}  // namespace berth::kernel
