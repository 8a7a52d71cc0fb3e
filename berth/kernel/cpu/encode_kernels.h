// kernel/cpu/encode_kernels.h — private to kernel/encode.cc and cpu/encode_*: the loops of each instruction set.
#pragma once

#include <cstdint>

namespace berth::kernel::cpu {

// What the loops need of a code book: 15 ascending thresholds (a value's place is how many lie below it), and the code
// of each place.
struct Thresholds {
  float value[15];
  uint8_t code[16];
};

enum class SourceType : uint8_t { kF32, kBF16, kF16 };

struct EncodeKernels {
  // out[i] = x[i] widened, rounded through `rounding`. `x` at any alignment.
  void (*widen)(SourceType type, const void* x, int64_t n, SourceType rounding, float* out);
  // Largest |x| as bits without the sign: NaN is the largest.
  uint32_t (*largest)(const float* x, int64_t n);
  // Codes of x[i] * reciprocal, clamped to [-1, 1]; n a multiple of 32. Two codes a byte, the first in the high half.
  void (*classify)(const Thresholds& thresholds, const float* x, int64_t n, float reciprocal, uint8_t* codes);
  // codes[i] = rint(x[i] * scale), in -127..127.
  void (*round_int8)(const float* x, int64_t n, float scale, int8_t* codes);
  // Whole blocks of bf16 weights straight to nf4; blocksize a multiple of 64. Returns how many blocks it did: it stops
  // at one whose absmax is not finite or below `least`. Null where there is no such loop.
  int64_t (*bf16_to_nf4)(const Thresholds& thresholds, const uint16_t* x, int64_t blocksize, int64_t blocks,
                         float least, uint8_t* codes, float* absmax);
};

extern const EncodeKernels kEncodeAvx2;
extern const EncodeKernels kEncodeAvx512;

}  // namespace berth::kernel::cpu
