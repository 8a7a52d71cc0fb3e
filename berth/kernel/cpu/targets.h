// kernel/cpu/targets.h — the fast kernels' namespaces, one per instruction set.
//
// The code of an operation is written once, in NAME-inl.h, over a pack of floats (math_*-inl.h) and compiled once per
// instruction set: NAME_avx2.cc includes pack_avx2-inl.h and NAME-inl.h, NAME_avx512.cc their sisters. Everything in
// NAME-inl.h but the operations is in an unnamed namespace or always inlined, so no code for one CPU can be linked into
// the path of another.
#pragma once

#include "berth/kernel/declare_operations.h"

BERTH_DECLARE_OPERATIONS(avx2)
BERTH_DECLARE_OPERATIONS(avx512)
