// kernel/cpu/rope_avx512.cc — rope-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx512-inl.h"
//
#include "berth/kernel/cpu/rope-inl.h"
