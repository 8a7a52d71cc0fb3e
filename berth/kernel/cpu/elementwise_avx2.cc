// kernel/cpu/elementwise_avx2.cc — elementwise-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx2-inl.h"
//
#include "berth/kernel/cpu/elementwise-inl.h"
