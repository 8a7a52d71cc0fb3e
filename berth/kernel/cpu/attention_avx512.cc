// kernel/cpu/attention_avx512.cc — attention-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx512-inl.h"
//
#include "berth/kernel/cpu/attention-inl.h"
