// kernel/cpu/norm_avx512.cc — norm-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx512-inl.h"
//
#include "berth/kernel/cpu/norm-inl.h"
