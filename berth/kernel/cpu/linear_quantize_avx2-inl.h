// kernel/cpu/linear_quantize_avx2-inl.h — one word of x to int8 (numerics.md 5). For files compiled for AVX2 or more.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace berth::kernel::cpu {
namespace {

struct Int8Word {
  float dx = 0;
  int32_t half_sum[2] = {0, 0};  // of q, elements 0..15 and 16..31
};

// q: 32 bytes in order. m = max|x| as bit patterns; below 2^-100 all is 0; Inf or NaN gives dx = NaN.
inline Int8Word quantize_word(const float* x, __m256i& q) {
  const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
  __m256 v[4];
  __m256i most = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    most = _mm256_max_epu32(most, _mm256_and_si256(no_sign, _mm256_castps_si256(v[i])));
  }
  __m128i h = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0x4e));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0xb1));
  const uint32_t bits = static_cast<uint32_t>(_mm_cvtsi128_si32(h));
  Int8Word word;
  q = _mm256_setzero_si256();
  if (bits >= 0x7f800000u) {
    const uint32_t nan = 0x7fc00000u;
    std::memcpy(&word.dx, &nan, 4);
    return word;
  }
  float m;
  std::memcpy(&m, &bits, 4);
  if (m < 0x1p-100f) return word;
  word.dx = m / 127.0f;
  const __m256 id = _mm256_set1_ps(127.0f / m);
  __m256i i[4];
  for (int n = 0; n < 4; ++n) i[n] = _mm256_cvtps_epi32(_mm256_mul_ps(v[n], id));
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(i[0], i[1]), _mm256_packs_epi32(i[2], i[3]));
  q = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
  __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
  word.half_sum[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(sums));
  word.half_sum[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
  return word;
}

// 32 bytes: the even elements, then the odd ones.
inline __m256i even_odd(__m256i q) {
  const __m256i within = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,  //
                                          0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(q, within), 0xd8);
}

}  // namespace
}  // namespace berth::kernel::cpu
