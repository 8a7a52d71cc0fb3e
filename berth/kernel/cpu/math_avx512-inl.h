// kernel/cpu/math_avx512-inl.h — the pack of 16 floats for kernel/math.h and the kernels. Only for files built for
// AVX-512.
//
// Everything is always inlined: no function of this header may survive in an object file, where a linker could pick it
// for a CPU without AVX-512. Partial loads read nothing past n elements; the lanes beyond are +0.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "berth/kernel/math.h"
#include "berth/tensor/float16.h"

namespace berth::kernel {

struct F32x16 {
  using Mask = __mmask16;
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;
  __m512 v;

  static BERTH_MATH F32x16 of(float value) { return {_mm512_set1_ps(value)}; }
  static BERTH_MATH F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static BERTH_MATH __mmask16 first_lanes(int64_t n) {
    return n >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1u << n) - 1u);
  }
  static BERTH_MATH F32x16 load_partial(const float* p, int64_t n) {
    return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
  }
  BERTH_MATH void store(float* p) const { _mm512_storeu_ps(p, v); }
  BERTH_MATH void store_partial(float* p, int64_t n) const { _mm512_mask_storeu_ps(p, first_lanes(n), v); }

  static BERTH_MATH F32x16 load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static BERTH_MATH F32x16 load_bf16(const uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  BERTH_MATH void store_f16(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  // The integer rounding of f32_to_bf16.
  BERTH_MATH void store_bf16(uint16_t* p) const {
    const __m512i u = _mm512_castps_si512(v);
    const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), lsb), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i r = _mm512_mask_blend_epi32(nan, rounded, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(r));
  }

  friend BERTH_MATH F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend BERTH_MATH F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend BERTH_MATH F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend BERTH_MATH F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
};

BERTH_MATH F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
BERTH_MATH F32x16 sqrt(F32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
// max and min return the second operand where one is NaN.
BERTH_MATH F32x16 at_least(F32x16 x, float low) { return {_mm512_max_ps(_mm512_set1_ps(low), x.v)}; }
BERTH_MATH F32x16 at_most(F32x16 x, float high) { return {_mm512_min_ps(_mm512_set1_ps(high), x.v)}; }
BERTH_MATH F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
BERTH_MATH F32x16 abs(F32x16 a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
BERTH_MATH F32x16 copysign(F32x16 magnitude, F32x16 sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
}
BERTH_MATH __mmask16 less(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
BERTH_MATH bool any_nan(F32x16 a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q) != 0; }
BERTH_MATH bool any_equal(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ) != 0; }
BERTH_MATH F32x16 select(__mmask16 mask, F32x16 where_true, F32x16 where_false) {
  return {_mm512_mask_blend_ps(mask, where_false.v, where_true.v)};
}
// p * 2^n, rounded once; so does the pack of one, whose first product is exact where |p| is near 1.
BERTH_MATH F32x16 scale_by_power_of_two(F32x16 p, F32x16 n) { return {_mm512_scalef_ps(p.v, n.v)}; }
// The lanes' sum, lane i + lane i + h for h = 8, 4, 2, 1; their maximum.
BERTH_MATH __m256 upper_half(F32x16 a) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1)); }
BERTH_MATH float sum_halves(F32x16 a) {
  const __m256 h8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), upper_half(a));
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_movehdup_ps(h2)));
}
BERTH_MATH float largest(F32x16 a) {
  const __m256 h8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), upper_half(a));
  const __m128 h4 = _mm_max_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_max_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_max_ss(h2, _mm_movehdup_ps(h2)));
}
struct F32x16Split {
  F32x16 m, e;
};
BERTH_MATH F32x16Split split_exponent(F32x16 x) {
  const __m512i root = _mm512_set1_epi32(0x3F3504F3);
  const __m512i bits = _mm512_sub_epi32(_mm512_castps_si512(x.v), root);
  const __m512i m = _mm512_add_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFF)), root);
  return {{_mm512_castsi512_ps(m)}, {_mm512_cvtepi32_ps(_mm512_srai_epi32(bits, 23))}};
}

}  // namespace berth::kernel
