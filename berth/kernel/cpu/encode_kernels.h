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

// The codes of bf16 weights by their own 16 bits, for one mantissa of the block's absmax: neither the reciprocal nor a
// product is needed. Bits without the sign are a magnitude's number among all bf16 in ascending order, and within
// 1e-33 < absmax < 32768 the place of such a number relative to that of absmax depends on the mantissa of absmax alone:
// scaling both by a power of two changes no rounding.
//
// Numbers are cut into bins so narrow (32) that each holds at most one threshold: the place of number 32b + l is
// base[b] + (l >= above[b]).
//
// nf4: of the numbers w = g for what is positive, w = 2047 - g for what is negative, with g = how far the magnitude
// lies above that of number absmax - 1023, 0 if it is below: ascending with the value in each half. Places are codes.
//
// fp4: g above number absmax - 2047, both signs; places of magnitudes. A value on a threshold belongs to the lower of
// two places as a value, so that of negative ones `above_negative` has the bins' thresholds. code[place] is the code of
// what is positive, code[place + 8] of the rest.
struct Bf16Table {
  alignas(64) uint8_t base[64];
  alignas(64) uint8_t above[64];
  alignas(64) uint8_t above_negative[64];
};
inline constexpr int kNf4Reach = 1023, kFp4Reach = 2047;
// Of absmax, as bf16 bits: those the tables are for.
inline constexpr uint32_t kLeastTabled = 0x0900, kTabledEnd = 0x4700;
struct Bf16Tables {
  Bf16Table by_mantissa[128];
  alignas(64) uint8_t code[64];  // fp4; the 16 codes four times
};

struct EncodeKernels {
  // out[i] = x[i] widened, rounded through `rounding`. `x` at any alignment.
  void (*widen)(SourceType type, const void* x, int64_t n, SourceType rounding, float* out);
  // Largest |x| as bits without the sign: NaN is the largest.
  uint32_t (*largest)(const float* x, int64_t n);
  // Codes of x[i] * reciprocal, clamped to [-1, 1]; n a multiple of 32. Two codes a byte, the first in the high half.
  void (*classify)(const Thresholds& thresholds, const float* x, int64_t n, float reciprocal, uint8_t* codes);
  // codes[i] = rint(x[i] * scale), in -127..127.
  void (*round_int8)(const float* x, int64_t n, float scale, int8_t* codes);
  // The largest of n 16-bit numbers without their highest bits: of bf16 or fp16 the largest magnitude, NaN above all.
  uint32_t (*largest_16)(const uint16_t* x, int64_t n);
  // round_int8 of bf16 (f16 false) or fp16 weights as they are.
  void (*round_int8_16)(bool f16, const uint16_t* x, int64_t n, float scale, int8_t* codes);
  // Whole blocks of bf16 weights straight to codes; blocksize a multiple of 64. Returns how many blocks it did: it
  // stops at one whose absmax has no table. Null where there is no such loop.
  int64_t (*bf16_to_nf4)(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                         float* absmax);
  int64_t (*bf16_to_fp4)(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                         float* absmax);
};

uint32_t largest_16_avx512(const uint16_t* x, int64_t n);
void round_int8_16_avx512(bool f16, const uint16_t* x, int64_t n, float scale, int8_t* codes);
int64_t bf16_to_nf4_avx512(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks,
                           uint8_t* codes, float* absmax);
int64_t bf16_to_fp4_avx512(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks,
                           uint8_t* codes, float* absmax);

extern const EncodeKernels kEncodeAvx2;
extern const EncodeKernels kEncodeAvx512;

}  // namespace berth::kernel::cpu
