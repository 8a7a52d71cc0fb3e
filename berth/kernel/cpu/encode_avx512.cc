// kernel/cpu/encode_avx512.cc — the encoders' loops for AVX-512, for fp16 and fp32 and for any source by way of them.
//
// 4 bit: a value's bin (Bins in encode_kernels.h) is one fma, rounded upwards; its bin tells the one threshold that it
// can be above and the place below that, each a permute of 32 numbers. bf16 weights, the common case, have loops of
// their own, which also look for the largest of fp16 rows and round them to int8 (encode_bf16_avx512.cc).
#include <immintrin.h>

#include <cstring>
#include <limits>

#include "berth/kernel/cpu/encode_kernels.h"
#include "berth/kernel/cpu/encode_stream-inl.h"

namespace berth::kernel::cpu {
namespace {

inline __m512 through_bf16(__m512 v) {
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
  return _mm512_castsi512_ps(_mm512_and_si512(kept, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

inline __m512 through(SourceType rounding, __m512 v) {
  if (rounding == SourceType::kBF16) return through_bf16(v);
  if (rounding == SourceType::kF16) return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  return v;
}

inline __m512 load16(SourceType type, const unsigned char* p, __mmask16 mask) {
  if (type == SourceType::kF32) return _mm512_maskz_loadu_ps(mask, p);
  const __m256i h = _mm256_maskz_loadu_epi16(mask, p);
  if (type == SourceType::kF16) return _mm512_cvtph_ps(h);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

inline __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }

// Whole vectors are stored without a mask: what a masked store wrote cannot be forwarded to the loads that follow.
void widen(SourceType type, const void* x, int64_t n, SourceType rounding, float* out) {
  const auto* p = static_cast<const unsigned char*>(x);
  const int64_t size = type == SourceType::kF32 ? 4 : 2;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(out + i, through(rounding, load16(type, p + i * size, 0xffff)));
  if (i < n) {
    const __mmask16 mask = first_lanes(n - i);
    _mm512_mask_storeu_ps(out + i, mask, through(rounding, load16(type, p + i * size, mask)));
  }
}

// bf16 or fp16 of 16 values.
inline __m256i to_16_bits(SourceType rounding, __m512 v) {
  if (rounding == SourceType::kF16) return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(through_bf16(v)), 16));
}

template <SourceType kFrom, SourceType kRounding>
inline void narrow_as(const void* x, int64_t n, uint16_t* out) {
  const auto* p = static_cast<const unsigned char*>(x);
  constexpr int64_t kSize = kFrom == SourceType::kF32 ? 4 : 2;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        to_16_bits(kRounding, load16(kFrom, p + i * kSize, 0xffff)));
  if (i < n) {
    const __mmask16 mask = first_lanes(n - i);
    _mm256_mask_storeu_epi16(out + i, mask, to_16_bits(kRounding, load16(kFrom, p + i * kSize, mask)));
  }
}

void narrow(SourceType type, const void* x, int64_t n, SourceType rounding, uint16_t* out) {
  using enum SourceType;
  if (rounding == kBF16) return type == kF32 ? narrow_as<kF32, kBF16>(x, n, out) : narrow_as<kF16, kBF16>(x, n, out);
  if (type == kF32) return narrow_as<kF32, kF16>(x, n, out);
  narrow_as<kBF16, kF16>(x, n, out);
}

uint32_t largest(const float* x, int64_t n) {
  const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) most = _mm512_max_epu32(most, _mm512_and_si512(no_sign, _mm512_loadu_si512(x + i)));
  if (i < n)
    most = _mm512_max_epu32(most, _mm512_and_si512(no_sign, _mm512_maskz_loadu_epi32(first_lanes(n - i), x + i)));
  return _mm512_reduce_max_epu32(most);
}

// Places of 16 values, and codes of 64.
struct Classifier {
  __m512 above_low, above_high;
  __m512i base_low, base_high, code_of_place;

  explicit Classifier(const Book& book)
      : above_low(_mm512_load_ps(book.bins.above)),
        above_high(_mm512_load_ps(book.bins.above + 16)),
        base_low(_mm512_load_si512(book.bins.base)),
        base_high(_mm512_load_si512(book.bins.base + 16)),
        code_of_place(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(book.thresholds.code)))) {
  }

  __m512i places(__m512 s) const {
    // The number of the bin, added to 1.5 * 2^23, is in the low bits of the sum.
    const __m512i bin = _mm512_castps_si512(_mm512_fmadd_round_ps(s, _mm512_set1_ps(kBins), _mm512_set1_ps(12582912.0f),
                                                                  _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC));
    const __m512i base = _mm512_permutex2var_epi32(base_low, bin, base_high);
    const __mmask16 above = _mm512_cmp_ps_mask(s, _mm512_permutex2var_ps(above_low, bin, above_high), _CMP_GT_OQ);
    return _mm512_mask_add_epi32(base, above, base, _mm512_set1_epi32(1));
  }

  // Two codes in a byte. `value(i)`: 16 values from the i-th on.
  template <typename Value>
  __m256i codes_of_64(const Value& value, __m512 reciprocal) const {
    const auto words = [&](int i) {
      return _mm512_packus_epi32(places(_mm512_mul_ps(value(i), reciprocal)),
                                 places(_mm512_mul_ps(value(i + 16), reciprocal)));
    };
    // Each 128 bits have four of each 16.
    const __m512i bytes = _mm512_shuffle_epi8(code_of_place, _mm512_packus_epi16(words(0), words(32)));
    const __m512i pairs = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(0x0110));
    alignas(64) static constexpr uint8_t kOrder[64] = {0, 2,  16, 18, 32, 34, 48, 50, 4,  6,  20, 22, 36, 38, 52, 54,
                                                       8, 10, 24, 26, 40, 42, 56, 58, 12, 14, 28, 30, 44, 46, 60, 62};
    return _mm512_castsi512_si256(_mm512_permutexvar_epi8(_mm512_load_si512(kOrder), pairs));
  }
};

void classify(const Book& book, const float* x, int64_t n, float reciprocal, uint8_t* codes) {
  const Classifier classifier(book);
  const __m512 scale = _mm512_set1_ps(reciprocal);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64)
    store_32(codes + i / 2, classifier.codes_of_64([&](int j) { return _mm512_loadu_ps(x + i + j); }, scale));
  if (i == n) return;
  const __m256i last =
      classifier.codes_of_64([&](int j) { return j < 32 ? _mm512_loadu_ps(x + i + j) : _mm512_setzero_ps(); }, scale);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i / 2), _mm256_castsi256_si128(last));
}

// What the loop over blocks has to know of a type: the largest magnitude of a block as a float (anything for NaN that
// is not finite), and 16 values.
struct FromF32 {
  using Element = float;
  static float largest_of(const float* x, int64_t n) {
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 32) {
      fetch_128(x + i);
      const __m512i a = _mm512_and_si512(no_sign, _mm512_loadu_si512(x + i));
      most = _mm512_max_epu32(most, _mm512_max_epu32(a, _mm512_and_si512(no_sign, _mm512_loadu_si512(x + i + 16))));
    }
    const uint32_t bits = _mm512_reduce_max_epu32(most);
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  static __m512 values(const float* x) { return _mm512_loadu_ps(x); }
};

struct FromF16 {
  using Element = uint16_t;
  static float largest_of(const uint16_t* x, int64_t n) {
    const __m512i no_sign = _mm512_set1_epi16(0x7fff);
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 64) {
      fetch_128(x + i);
      const __m512i a = _mm512_and_si512(no_sign, _mm512_loadu_si512(x + i));
      most = _mm512_max_epu16(most, _mm512_max_epu16(a, _mm512_and_si512(no_sign, _mm512_loadu_si512(x + i + 32))));
    }
    const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    const __m128i quarter = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const __m128i all = _mm_set1_epi16(-1);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_xor_si128(_mm_minpos_epu16(_mm_xor_si128(quarter, all)), all)));
  }
  static __m512 values(const uint16_t* x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
};

// kBlocksize: 0, or what `any_blocksize` is.
template <typename From, int64_t kBlocksize>
int64_t encode(const Book& book, const typename From::Element* x, int64_t any_blocksize, int64_t blocks, uint8_t* codes,
               float* absmax) {
  const int64_t blocksize = kBlocksize == 0 ? any_blocksize : kBlocksize;
  const Classifier classifier(book);
  CodeStore store(codes);
  return in_groups(
      blocksize, blocks,
      [&](int64_t block, int64_t) __attribute__((always_inline)) {
        absmax[block] = From::largest_of(x + block * blocksize, blocksize);
        return absmax[block] >= kLeastDivisor && absmax[block] <= std::numeric_limits<float>::max();
      },
      [&](int64_t block, int64_t) __attribute__((always_inline)) {
        const __m512 scale = _mm512_set1_ps(1.0f / absmax[block]);
        for (int64_t i = block * blocksize, end = i + blocksize; i < end; i += 64)
          store.put(codes + i / 2, classifier.codes_of_64([&](int j) { return From::values(x + i + j); }, scale));
      });
}

int64_t f16_to_4bit(const Book& book, const uint16_t* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                    float* absmax) {
  return (blocksize == 64 ? encode<FromF16, 64> : encode<FromF16, 0>)(book, x, blocksize, blocks, codes, absmax);
}
int64_t f32_to_4bit(const Book& book, const float* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                    float* absmax) {
  return (blocksize == 64 ? encode<FromF32, 64> : encode<FromF32, 0>)(book, x, blocksize, blocks, codes, absmax);
}

}  // namespace

const EncodeKernels kEncodeAvx512{widen,
                                  narrow,
                                  largest,
                                  classify,
                                  largest_16_avx512,
                                  round_int8_16_avx512,
                                  nullptr,
                                  bf16_to_nf4_avx512,
                                  bf16_to_fp4_avx512,
                                  f16_to_4bit,
                                  f32_to_4bit};

}  // namespace berth::kernel::cpu
