// kernel/cpu/pack_avx512-inl.h — makes the following NAME-inl.h the AVX-512 one.
#pragma once

#include "berth/kernel/cpu/math_avx512-inl.h"

#define BERTH_TARGET avx512
#define BERTH_PACK F32x16
