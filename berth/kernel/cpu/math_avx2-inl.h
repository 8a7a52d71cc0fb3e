// kernel/cpu/math_avx2-inl.h — the pack of 8 floats for kernel/math.h and the kernels. Only for files built for AVX2.
//
// Everything is always inlined: no function of this header may survive in an object file, where a linker could pick it
// for a CPU without AVX2. Partial loads read nothing past n elements; the lanes beyond are +0.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "berth/kernel/math.h"
#include "berth/tensor/float16.h"

namespace berth::kernel {

struct F32x8 {
  using Mask = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;
  __m256 v;

  static BERTH_MATH F32x8 of(float value) { return {_mm256_set1_ps(value)}; }
  static BERTH_MATH F32x8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static BERTH_MATH __m256i first_lanes(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static BERTH_MATH F32x8 load_partial(const float* p, int64_t n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
  BERTH_MATH void store(float* p) const { _mm256_storeu_ps(p, v); }
  BERTH_MATH void store_partial(float* p, int64_t n) const { _mm256_maskstore_ps(p, first_lanes(n), v); }

  static BERTH_MATH F32x8 load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static BERTH_MATH F32x8 load_bf16(const uint16_t* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  }
  BERTH_MATH void store_f16(uint16_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  // The integer rounding of f32_to_bf16.
  BERTH_MATH void store_bf16(uint16_t* p) const {
    const __m256i u = _mm256_castps_si256(v);
    const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), lsb), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i r = _mm256_blendv_epi8(rounded, quiet, nan);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
  }

  friend BERTH_MATH F32x8 operator+(F32x8 a, F32x8 b) { return {_mm256_add_ps(a.v, b.v)}; }
  friend BERTH_MATH F32x8 operator-(F32x8 a, F32x8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
  friend BERTH_MATH F32x8 operator*(F32x8 a, F32x8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
  friend BERTH_MATH F32x8 operator/(F32x8 a, F32x8 b) { return {_mm256_div_ps(a.v, b.v)}; }
};

BERTH_MATH F32x8 fma(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
BERTH_MATH F32x8 sqrt(F32x8 a) { return {_mm256_sqrt_ps(a.v)}; }
// max and min return the second operand where one is NaN.
BERTH_MATH F32x8 at_least(F32x8 x, float low) { return {_mm256_max_ps(_mm256_set1_ps(low), x.v)}; }
BERTH_MATH F32x8 at_most(F32x8 x, float high) { return {_mm256_min_ps(_mm256_set1_ps(high), x.v)}; }
BERTH_MATH F32x8 max(F32x8 a, F32x8 b) { return {_mm256_max_ps(a.v, b.v)}; }
BERTH_MATH F32x8 abs(F32x8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
BERTH_MATH F32x8 copysign(F32x8 magnitude, F32x8 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.v), _mm256_and_ps(bit, sign.v))};
}
BERTH_MATH __m256 less(F32x8 a, F32x8 b) { return _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ); }
BERTH_MATH bool any_nan(F32x8 a) { return _mm256_movemask_ps(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)) != 0; }
BERTH_MATH bool any_equal(F32x8 a, F32x8 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)) != 0; }
BERTH_MATH F32x8 select(__m256 mask, F32x8 where_true, F32x8 where_false) {
  return {_mm256_blendv_ps(where_false.v, where_true.v, mask)};
}
BERTH_MATH F32x8 scale_by_power_of_two(F32x8 p, F32x8 n) {
  const __m256i i = _mm256_cvtps_epi32(n.v);
  const __m256i half = _mm256_srai_epi32(i, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23);
  return {_mm256_mul_ps(_mm256_mul_ps(p.v, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second))};
}
// The lanes' sum, lane i + lane i + h for h = 4, 2, 1; their maximum.
BERTH_MATH float sum_halves(F32x8 a) {
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_movehdup_ps(h2)));
}
BERTH_MATH float largest(F32x8 a) {
  const __m128 h4 = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 h2 = _mm_max_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_max_ss(h2, _mm_movehdup_ps(h2)));
}
struct F32x8Split {
  F32x8 m, e;
};
BERTH_MATH F32x8Split split_exponent(F32x8 x) {
  const __m256i root = _mm256_set1_epi32(0x3F3504F3);
  const __m256i bits = _mm256_sub_epi32(_mm256_castps_si256(x.v), root);
  const __m256i m = _mm256_add_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFF)), root);
  return {{_mm256_castsi256_ps(m)}, {_mm256_cvtepi32_ps(_mm256_srai_epi32(bits, 23))}};
}

}  // namespace berth::kernel
