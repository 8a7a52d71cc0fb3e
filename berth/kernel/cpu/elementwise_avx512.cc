// kernel/cpu/elementwise_avx512.cc — elementwise-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx512-inl.h"
//
#include "berth/kernel/cpu/elementwise-inl.h"
