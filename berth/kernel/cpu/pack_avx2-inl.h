// kernel/cpu/pack_avx2-inl.h — makes the following NAME-inl.h the AVX2 one.
#pragma once

#include "berth/kernel/cpu/math_avx2-inl.h"

#define BERTH_TARGET avx2
#define BERTH_PACK F32x8
