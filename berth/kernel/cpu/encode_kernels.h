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

inline constexpr uint32_t kInfinityBits = 0x7F800000u;
inline constexpr float kLeastDivisor = 1e-38f;  // bitsandbytes divides by no less

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

// Thresholds of one format for a binary search of bf16 or fp16 weights by their own 16 bits (AVX2). The key of a weight
// is the number of its magnitude (its bits without the sign), with the weight's sign: in order as 16-bit integers. A
// weight is above a threshold if its key is above the threshold's, which is the largest that is not above it.
//
// A threshold's key is sign[i] * (the number of absmax + a part that depends on the mantissa of absmax alone), unless
// fp16 has the threshold among its denormals. Rows of that part: first those of the numbers below `distinct`, then one
// for each mantissa.
struct alignas(32) KeyRow {
  int16_t key[16];  // thresholds 0, 2, 4 ... 14 and then 1, 3 ... 13 (kEvenThenOdd), as the steps look them up
};
inline constexpr int kEvenThenOdd[15] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13};
struct KeySearch {
  KeyRow sign;
  alignas(16) uint8_t code[16];  // of each place
  const KeyRow* rows;
  uint32_t distinct, mantissa;  // the latter's bits, all 1
  uint32_t least, end;          // there are keys for least <= absmax < end
};

// Thresholds for values in fp32 (AVX-512): the values from -1 to 1 are cut into 32 bins so narrow that each holds at
// most one threshold. Bin i has what is above (i - 1) / kBins and not above i / kBins; its numbers' low five bits tell
// the bins apart. The place of s is base[i] + (s > above[i]).
inline constexpr float kBins = 15.2f;
struct Bins {
  alignas(64) float above[32];
  alignas(64) int32_t base[32];
};

// What the loops over fp32 need to know about nf4 or fp4.
struct Book {
  Thresholds thresholds;
  Bins bins;
};

struct EncodeKernels {
  // out[i] = x[i] widened, rounded through `rounding`. `x` at any alignment.
  void (*widen)(SourceType type, const void* x, int64_t n, SourceType rounding, float* out);
  // out[i] = x[i] rounded to `rounding`: bf16 or fp16.
  void (*narrow)(SourceType type, const void* x, int64_t n, SourceType rounding, uint16_t* out);
  // Largest |x| as bits without the sign: NaN is the largest.
  uint32_t (*largest)(const float* x, int64_t n);
  // Codes of x[i] * reciprocal; n a multiple of 32. Two codes a byte, the first in the high half.
  void (*classify)(const Book& book, const float* x, int64_t n, float reciprocal, uint8_t* codes);
  // The largest of n 16-bit numbers without their highest bits: of bf16 or fp16 the largest magnitude, NaN above all.
  uint32_t (*largest_16)(const uint16_t* x, int64_t n);
  // codes[i] = rint(x[i] * scale), in -127..127, of bf16 (f16 false) or fp16 weights.
  void (*round_int8_16)(bool f16, const uint16_t* x, int64_t n, float scale, int8_t* codes);
  // Whole blocks of weights straight to codes; blocksize a multiple of 64. Returns how many blocks it did: it stops at
  // one whose absmax has no table or keys, is zero, below 1e-38 or not finite. Weights of 16 bits have either the first
  // (AVX2, for both types) or the next three (AVX-512).
  int64_t (*to_4bit_by_keys)(const KeySearch& keys, bool f16, const uint16_t* x, int64_t blocksize, int64_t blocks,
                             uint8_t* codes, float* absmax);
  int64_t (*bf16_to_nf4)(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                         float* absmax);
  int64_t (*bf16_to_fp4)(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                         float* absmax);
  int64_t (*f16_to_4bit)(const Book& book, const uint16_t* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                         float* absmax);
  int64_t (*f32_to_4bit)(const Book& book, const float* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                         float* absmax);
};

uint32_t largest_16_avx2(const uint16_t* x, int64_t n);
void round_int8_16_avx2(bool f16, const uint16_t* x, int64_t n, float scale, int8_t* codes);
int64_t to_4bit_by_keys_avx2(const KeySearch& keys, bool f16, const uint16_t* x, int64_t blocksize, int64_t blocks,
                             uint8_t* codes, float* absmax);

uint32_t largest_16_avx512(const uint16_t* x, int64_t n);
void round_int8_16_avx512(bool f16, const uint16_t* x, int64_t n, float scale, int8_t* codes);
int64_t bf16_to_nf4_avx512(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks,
                           uint8_t* codes, float* absmax);
int64_t bf16_to_fp4_avx512(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks,
                           uint8_t* codes, float* absmax);

extern const EncodeKernels kEncodeAvx2;
extern const EncodeKernels kEncodeAvx512;

}  // namespace berth::kernel::cpu
