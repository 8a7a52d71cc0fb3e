// device/cpu/peak.h — loops that do nothing but fused multiply-adds in registers, one per instruction set.
#pragma once

#include <cstdint>

namespace berth::device {

// `rounds` rounds; returns the floating-point operations done (an fma is two). *sink gets a value that depends on all.
using PeakLoop = uint64_t (*)(uint64_t rounds, float* sink);
uint64_t peak_loop_ref(uint64_t rounds, float* sink);
uint64_t peak_loop_avx2(uint64_t rounds, float* sink);
uint64_t peak_loop_avx512(uint64_t rounds, float* sink);

}  // namespace berth::device
