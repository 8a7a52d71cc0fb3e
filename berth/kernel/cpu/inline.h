// kernel/cpu/inline.h — what the hand-written loops ask of a compiler: to inline a piece, to unroll a loop whose count
// is a constant (arrays of registers are registers only then).
#pragma once

#define BERTH_INLINE inline __attribute__((always_inline))
#define BERTH_FORCED __attribute__((always_inline))  // behind a lambda's parameters
#if defined(__clang__)
#define BERTH_UNROLL _Pragma("unroll")
#else
#define BERTH_UNROLL _Pragma("GCC unroll 16")
#endif
