// kernel/cpu/rope_avx2.cc — rope-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx2-inl.h"
//
#include "berth/kernel/cpu/rope-inl.h"
