// kernel/cpu/kv_write_avx2.cc — kv_write-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx2-inl.h"
//
#include "berth/kernel/cpu/kv_write-inl.h"
