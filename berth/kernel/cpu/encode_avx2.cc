// kernel/cpu/encode_avx2.cc — the encoders' loops for AVX2, for fp32 and for any source by way of it.
//
// A value's place among 15 ascending thresholds is a binary search of four steps; the threshold to look at is permuted
// out of a register by the place so far. Weights of 16 bits have loops of their own (encode_16_avx2.cc).
#include <immintrin.h>

#include <cstring>

#include "berth/kernel/cpu/encode_kernels.h"
#include "berth/kernel/cpu/encode_stream-inl.h"

namespace berth::kernel::cpu {
namespace {

// fp32 to bf16 and back, to nearest even; NaN stays quiet.
inline __m256 through_bf16(__m256 v) {
  const __m256i u = _mm256_castps_si256(v), high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
  return _mm256_castsi256_ps(_mm256_and_si256(
      high, _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan))));
}

inline __m256 through(SourceType rounding, __m256 v) {
  if (rounding == SourceType::kBF16) return through_bf16(v);
  if (rounding == SourceType::kF16) return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  return v;
}

inline __m256 load8(SourceType type, const unsigned char* p) {
  if (type == SourceType::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  if (type == SourceType::kF16) return _mm256_cvtph_ps(h);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

void widen(SourceType type, const void* x, int64_t n, SourceType rounding, float* out) {
  const auto* p = static_cast<const unsigned char*>(x);
  const int64_t size = type == SourceType::kF32 ? 4 : 2;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, through(rounding, load8(type, p + i * size)));
  if (i < n) {
    alignas(32) unsigned char part[32] = {};
    alignas(32) float values[8];
    std::memcpy(part, p + i * size, static_cast<size_t>((n - i) * size));
    _mm256_store_ps(values, through(rounding, load8(type, part)));
    std::memcpy(out + i, values, static_cast<size_t>(n - i) * 4);
  }
}

// bf16 or fp16 of 8 values.
inline __m128i to_16_bits(SourceType rounding, __m256 v) {
  if (rounding == SourceType::kF16) return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  const __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(through_bf16(v)), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}

template <SourceType kFrom, SourceType kRounding>
inline void narrow_as(const void* x, int64_t n, uint16_t* out) {
  const auto* p = static_cast<const unsigned char*>(x);
  constexpr int64_t kSize = kFrom == SourceType::kF32 ? 4 : 2;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), to_16_bits(kRounding, load8(kFrom, p + i * kSize)));
  if (i < n) {
    alignas(32) unsigned char part[32] = {};
    alignas(16) uint16_t values[8];
    std::memcpy(part, p + i * kSize, static_cast<size_t>((n - i) * kSize));
    _mm_store_si128(reinterpret_cast<__m128i*>(values), to_16_bits(kRounding, load8(kFrom, part)));
    std::memcpy(out + i, values, static_cast<size_t>(n - i) * 2);
  }
}

void narrow(SourceType type, const void* x, int64_t n, SourceType rounding, uint16_t* out) {
  using enum SourceType;
  if (rounding == kBF16) return type == kF32 ? narrow_as<kF32, kBF16>(x, n, out) : narrow_as<kF16, kBF16>(x, n, out);
  if (type == kF32) return narrow_as<kF32, kF16>(x, n, out);
  narrow_as<kBF16, kF16>(x, n, out);
}

inline uint32_t largest(const float* x, int64_t n) {
  const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    most =
        _mm256_max_epu32(most, _mm256_and_si256(no_sign, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i))));
  __m128i half = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
  uint32_t result = static_cast<uint32_t>(_mm_cvtsi128_si32(half));
  for (; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7fffffffu;
    result = bits > result ? bits : result;
  }
  return result;
}

// Thresholds of each step of a binary search, permuted by the negative of the place so far: a comparison that holds is
// -1, so that doubling and adding keeps count, and a permute looks at the lowest bits of an index alone.
struct Search {
  __m256 first, second, third, fourth;

  explicit Search(const float (&v)[15])
      : first(_mm256_set1_ps(v[7])),
        second(_mm256_setr_ps(v[3], 0, 0, v[11], v[3], 0, 0, v[11])),                 // places 0, -, -, 1
        third(_mm256_setr_ps(v[1], v[13], v[9], v[5], v[1], v[13], v[9], v[5])),      // 0, 3, 2, 1
        fourth(_mm256_setr_ps(v[0], v[14], v[12], v[10], v[8], v[6], v[4], v[2])) {}  // 0, 7, 6 ... 1
};

// The negatives of how many thresholds lie below each of 8 values.
inline __m256i negative_places(const Search& t, __m256 s) {
  const auto above = [&](__m256 threshold) { return _mm256_castps_si256(_mm256_cmp_ps(s, threshold, _CMP_GT_OQ)); };
  const auto longer = [&](__m256i p, __m256 threshold) {
    return _mm256_add_epi32(_mm256_add_epi32(p, p), above(threshold));
  };
  __m256i p = above(t.first);
  p = longer(p, _mm256_permutevar_ps(t.second, p));
  p = longer(p, _mm256_permutevar_ps(t.third, p));
  return longer(p, _mm256_permutevar8x32_ps(t.fourth, p));
}

// The codes of 64 values, two in a byte.
inline __m256i codes_of_64(const Search& t, __m256i code_of_place, const float* x, __m256 reciprocal) {
  const auto pairs = [&](const float* at) {  // 32 values; 8 bytes of each 16 have four of each 8
    const auto words = [&](const float* v) {
      return _mm256_packs_epi32(negative_places(t, _mm256_mul_ps(_mm256_loadu_ps(v), reciprocal)),
                                negative_places(t, _mm256_mul_ps(_mm256_loadu_ps(v + 8), reciprocal)));
    };
    const __m256i place = _mm256_abs_epi8(_mm256_packs_epi16(words(at), words(at + 16)));
    return _mm256_maddubs_epi16(_mm256_shuffle_epi8(code_of_place, place), _mm256_set1_epi16(0x0110));
  };
  // In each half the words of all eight times 8 values, then in order.
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs(x), pairs(x + 32)), 0xd8);
  return _mm256_shuffle_epi8(
      halves, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15)));
}

inline __m256i codes_by_place(const Thresholds& t) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t.code)));
}

void classify(const Book& book, const float* x, int64_t n, float reciprocal, uint8_t* codes) {
  const Search search(book.thresholds.value);
  const __m256i code = codes_by_place(book.thresholds);
  const __m256 scale = _mm256_set1_ps(reciprocal);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) store_32(codes + i / 2, codes_of_64(search, code, x + i, scale));
  if (i == n) return;
  alignas(32) float rest[64] = {};
  std::memcpy(rest, x + i, 32 * sizeof(float));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i / 2),
                   _mm256_castsi256_si128(codes_of_64(search, code, rest, scale)));
}

// kBlocksize: 0, or what `any_blocksize` is.
template <int64_t kBlocksize>
int64_t encode(const Book& book, const float* x, int64_t any_blocksize, int64_t blocks, uint8_t* codes, float* absmax) {
  const int64_t blocksize = kBlocksize == 0 ? any_blocksize : kBlocksize;
  const Search search(book.thresholds.value);
  const __m256i code = codes_by_place(book.thresholds);
  CodeStore store(codes);
  return in_groups(
      blocksize, blocks,
      [&](int64_t block, int64_t) __attribute__((always_inline)) {
        const float* const at = x + block * blocksize;
        for (int64_t i = 0; i < blocksize; i += 32) fetch_128(at + i);
        const uint32_t bits = largest(at, blocksize);
        std::memcpy(absmax + block, &bits, 4);
        return absmax[block] >= kLeastDivisor && bits < kInfinityBits;
      },
      [&](int64_t block, int64_t) __attribute__((always_inline)) {
        const __m256 scale = _mm256_set1_ps(1.0f / absmax[block]);
        for (int64_t i = block * blocksize, end = i + blocksize; i < end; i += 64)
          store.put(codes + i / 2, codes_of_64(search, code, x + i, scale));
      });
}

int64_t f32_to_4bit(const Book& book, const float* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                    float* absmax) {
  return (blocksize == 64 ? encode<64> : encode<0>)(book, x, blocksize, blocks, codes, absmax);
}

}  // namespace

const EncodeKernels kEncodeAvx2{
    widen,   narrow,  largest, classify,   largest_16_avx2, round_int8_16_avx2, to_4bit_by_keys_avx2,
    nullptr, nullptr, nullptr, f32_to_4bit};

}  // namespace berth::kernel::cpu
