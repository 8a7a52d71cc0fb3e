// kernel/cpu/attention_avx2.cc — attention-inl.h for this instruction set.
#include "berth/kernel/cpu/pack_avx2-inl.h"
//
#include "berth/kernel/cpu/attention-inl.h"
