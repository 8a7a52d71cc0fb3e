// kernel/cpu/encode_avx512.cc — the encoders' loops for AVX-512, for any source.
//
// A value's place among 15 ascending thresholds is a binary search of four steps, as in encode_avx2.cc. bf16 weights,
// the common case, have loops of their own (encode_bf16_avx512.cc).
#include <immintrin.h>

#include <cstring>

#include "berth/kernel/cpu/encode_kernels.h"

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

uint32_t largest(const float* x, int64_t n) {
  const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) most = _mm512_max_epu32(most, _mm512_and_si512(no_sign, _mm512_loadu_si512(x + i)));
  if (i < n)
    most = _mm512_max_epu32(most, _mm512_and_si512(no_sign, _mm512_maskz_loadu_epi32(first_lanes(n - i), x + i)));
  return _mm512_reduce_max_epu32(most);
}

void classify(const Thresholds& t, const float* x, int64_t n, float reciprocal, uint8_t* codes) {
  const float* v = t.value;
  const __m512 first = _mm512_set1_ps(v[7]);
  const __m512 second = _mm512_setr_ps(v[3], v[11], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m512 third = _mm512_setr_ps(v[1], v[5], v[9], v[13], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m512 fourth = _mm512_setr_ps(v[0], v[2], v[4], v[6], v[8], v[10], v[12], v[14], 0, 0, 0, 0, 0, 0, 0, 0);
  const __m512 scale = _mm512_set1_ps(reciprocal), one_float = _mm512_set1_ps(1.0f);
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t.code)));
  const auto next = [&](__m512 thresholds, __m512i p, __m512 s) {
    const __mmask16 above = _mm512_cmp_ps_mask(s, _mm512_permutexvar_ps(p, thresholds), _CMP_GT_OQ);
    const __m512i doubled = _mm512_add_epi32(p, p);
    return _mm512_mask_add_epi32(doubled, above, doubled, one);
  };
  for (int64_t i = 0; i < n; i += 16) {
    __m512 s = _mm512_mul_ps(_mm512_loadu_ps(x + i), scale);
    s = _mm512_max_ps(_mm512_min_ps(s, one_float), _mm512_set1_ps(-1.0f));
    __m512i p = _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(s, first, _CMP_GT_OQ), one);
    p = next(fourth, next(third, next(second, p, s), s), s);
    const __m512i q = _mm512_permutexvar_epi32(p, code);
    const __m512i pairs = _mm512_or_si512(_mm512_slli_epi64(q, 4), _mm512_srli_epi64(q, 32));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + i / 2), _mm512_cvtepi64_epi8(pairs));
  }
}

void round_int8(const float* x, int64_t n, float scale, int8_t* codes) {
  const __m512 by = _mm512_set1_ps(scale);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), by));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtepi32_epi8(q));
  }
  if (i < n) {
    const __mmask16 mask = first_lanes(n - i);
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), by));
    _mm_mask_storeu_epi8(codes + i, mask, _mm512_cvtepi32_epi8(q));
  }
}

}  // namespace

const EncodeKernels kEncodeAvx512{widen,
                                  largest,
                                  classify,
                                  round_int8,
                                  largest_16_avx512,
                                  round_int8_16_avx512,
                                  bf16_to_nf4_avx512,
                                  bf16_to_fp4_avx512};

}  // namespace berth::kernel::cpu
