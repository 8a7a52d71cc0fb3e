// kernel/context.h — with what an operation runs: instruction set, numerics mode, threads.
//
// A Context belongs to a device: an emulated device has its own instruction set. Operations are free functions that
// dispatch once at the top on context.isa; they split their work over context.pool themselves, or run in the caller's
// thread where the work is too small. Nothing here allocates.
#pragma once

#include "berth/base/isa.h"
#include "berth/base/thread_pool.h"

namespace berth::kernel {

enum class Numerics { kExact, kInt8 };

struct Context {
  Isa isa = Isa::kRef;
  Numerics numerics = Numerics::kExact;
  ThreadPool* pool = nullptr;  // null: the calling thread alone

  Trace* trace() const { return pool == nullptr ? nullptr : pool->trace(); }
};

}  // namespace berth::kernel
