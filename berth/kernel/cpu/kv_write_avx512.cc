// kernel/cpu/kv_write_avx512.cc — kv_write-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx512-inl.h"
//
#include "berth/kernel/cpu/kv_write-inl.h"
