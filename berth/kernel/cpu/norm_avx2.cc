// kernel/cpu/norm_avx2.cc — norm-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx2-inl.h"
//
#include "berth/kernel/cpu/norm-inl.h"
