// kernel/cpu/linear_dispatch.h — the fast linear kernels' entry points, one per instruction set.
//
// Each has the signature and the contract of kernel::linear() (linear.h): it is called with arguments that linear() has
// checked (shapes, scratch at least quant::linear_scratch_bytes and 64-byte aligned), with M >= 1, at least one job,
// and K >= 1. It handles every codec of quant/codec.h, both numerics modes (context.numerics; formats without int8 mode
// run as in exact), every M and any row range, splits its work over context.pool by outputs, and equals ref::linear
// with ==.
//
// To add an instruction set: cpu/linear_NAME.cc with linear_NAME(), its line here and in dispatch.cc.
#pragma once

#include <cstddef>
#include <span>

#include "berth/kernel/linear.h"

namespace berth::kernel::cpu {

void linear_avx2(const Context& context, const LinearInput& input, std::span<const LinearJob> jobs,
                 std::span<std::byte> scratch);
void linear_avx512(const Context& context, const LinearInput& input, std::span<const LinearJob> jobs,
                   std::span<std::byte> scratch);

}  // namespace berth::kernel::cpu
