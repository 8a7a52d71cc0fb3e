// kernel/ref/ref.h — the scalar reference of every operation: plain loops in the order of numerics.md. It defines the
// bits.
//
// Each .cc here is compiled twice: as namespace `ref` for any CPU, where std::fma is a library call (right and slow),
// and as `ref_fma` with the fma instruction. The same bits by definition of fma; a test compares them.
//
// Arguments are as in the public headers and already checked. Nothing here uses threads or tricks.
// Start reading at: linear.cc.
#pragma once

#include "berth/kernel/declare_operations.h"

#ifndef BERTH_REF
#define BERTH_REF ref
#endif

BERTH_DECLARE_OPERATIONS(ref)
BERTH_DECLARE_OPERATIONS(ref_fma)
