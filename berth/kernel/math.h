// kernel/math.h — exp, tanh, erf, log and the activations made of them, once for scalar, SIMD and CUDA code.
//
// numerics.md 3: no libm in a kernel; every operation below is one correctly rounded fp32 operation, so every machine
// has the same bits. The functions are templates over a pack F of floats: F32x1 here, F32x8 in cpu/math_avx2-inl.h,
// F32x16 in cpu/math_avx512-inl.h. math_test.cc walks the inputs, compares the packs and pins a hash of all outputs.
//
// Largest error over all inputs, in ulp (math_test.cc measures it against long double): exp 1.0, tanh 1.4, sigmoid 2.2,
// silu 2.3, erf 1.4, log 1.0, softplus 2.0. NaN in, NaN out (payloads differ between machines).
//
// Start reading at: math::exp. A pack offers + - * /, fma, sqrt, at_least, at_most, abs, copysign, less, select,
// scale_by_power_of_two and split_exponent, with the meaning that F32x1 gives them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define BERTH_MATH __host__ __device__ __forceinline__
#else
#define BERTH_MATH inline __attribute__((always_inline))
#endif

namespace berth::kernel {

struct F32x1 {
  using Mask = bool;
  static constexpr int kLanes = 1;
  float v;

  static BERTH_MATH F32x1 of(float value) { return {value}; }
  static BERTH_MATH F32x1 load(const float* p) { return {*p}; }
  BERTH_MATH void store(float* p) const { *p = v; }
  friend BERTH_MATH F32x1 operator+(F32x1 a, F32x1 b) { return {a.v + b.v}; }
  friend BERTH_MATH F32x1 operator-(F32x1 a, F32x1 b) { return {a.v - b.v}; }
  friend BERTH_MATH F32x1 operator*(F32x1 a, F32x1 b) { return {a.v * b.v}; }
  friend BERTH_MATH F32x1 operator/(F32x1 a, F32x1 b) { return {a.v / b.v}; }
};

BERTH_MATH F32x1 fma(F32x1 a, F32x1 b, F32x1 c) { return {std::fma(a.v, b.v, c.v)}; }
BERTH_MATH F32x1 sqrt(F32x1 a) { return {std::sqrt(a.v)}; }
BERTH_MATH F32x1 at_least(F32x1 x, float low) { return {x.v < low ? low : x.v}; }    // a NaN stays
BERTH_MATH F32x1 at_most(F32x1 x, float high) { return {x.v > high ? high : x.v}; }  // a NaN stays
BERTH_MATH F32x1 abs(F32x1 a) { return {std::bit_cast<float>(std::bit_cast<uint32_t>(a.v) & 0x7FFFFFFFu)}; }
BERTH_MATH F32x1 copysign(F32x1 magnitude, F32x1 sign) {
  return {std::bit_cast<float>((std::bit_cast<uint32_t>(magnitude.v) & 0x7FFFFFFFu) |
                               (std::bit_cast<uint32_t>(sign.v) & 0x80000000u))};
}
BERTH_MATH bool less(F32x1 a, F32x1 b) { return a.v < b.v; }  // false where either is NaN
BERTH_MATH F32x1 select(bool mask, F32x1 where_true, F32x1 where_false) { return mask ? where_true : where_false; }

// (p * 2^(n >> 1)) * 2^(n - (n >> 1)) for an integer-valued n of -252..254, in two roundings; anything where n is NaN.
BERTH_MATH F32x1 scale_by_power_of_two(F32x1 p, F32x1 n) {
  const int32_t i = n.v == n.v ? static_cast<int32_t>(n.v) : 0;
  const int32_t half = i >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((i - half + 127) << 23);
  return {(p.v * first) * second};
}

// For a finite normal x > 0: x = 2^e * m with sqrt(1/2) <= m < sqrt(2); e as a float.
struct F32x1Split {
  F32x1 m, e;
};
BERTH_MATH F32x1Split split_exponent(F32x1 x) {
  // 0x3F3504F3 is sqrt(1/2) rounded down
  const uint32_t bits = std::bit_cast<uint32_t>(x.v) - 0x3F3504F3u;
  const int32_t e = static_cast<int32_t>(bits) >> 23;
  return {{std::bit_cast<float>((bits & 0x7FFFFFu) + 0x3F3504F3u)}, {static_cast<float>(e)}};
}

namespace math {

// rint for |x| < 2^22: above 2^23 floats are the whole numbers, and ties go to the even one as rint's do. Two additions:
// the rounding instruction takes a core's one suitable port twice. (A zero's sign is lost, which n in exp does not show.)
template <typename F>
BERTH_MATH F rint_small(F x) {
  const F shift = F::of(12582912.0f);  // 1.5 * 2^23
  return (x + shift) - shift;
}

// kNegative: x <= 0 or NaN is known, which spares a comparison.
template <bool kNegative = false, typename F>
BERTH_MATH F exp(F x) {
  x = at_least(x, -104.0f);
  if constexpr (!kNegative) x = at_most(x, 88.8f);
  const F n = rint_small(x * F::of(1.44269504f));
  F r = fma(n, F::of(-0.693145752f), x);
  r = fma(n, F::of(-1.42860677e-6f), r);
  F p = F::of(1.98756918e-4f);
  p = fma(p, r, F::of(1.39819994e-3f));
  p = fma(p, r, F::of(8.33345205e-3f));
  p = fma(p, r, F::of(4.16657962e-2f));
  p = fma(p, r, F::of(1.66666657e-1f));
  p = fma(p, r, F::of(0.5f));
  p = fma(p, r * r, r) + F::of(1.0f);
  return scale_by_power_of_two(p, n);
}

template <typename F>
BERTH_MATH F tanh(F x) {
  const F a = abs(x);
  const F z = a * a;
  F p = F::of(-5.70498872745e-3f);
  p = fma(p, z, F::of(2.06390887954e-2f));
  p = fma(p, z, F::of(-5.37397155531e-2f));
  p = fma(p, z, F::of(1.33314422036e-1f));
  p = fma(p, z, F::of(-3.33332819422e-1f));
  const F small = fma(p * z, a, a);
  const F e = exp(at_most(a + a, 40.0f));
  const F large = F::of(1.0f) - F::of(2.0f) / (e + F::of(1.0f));
  return copysign(select(less(a, F::of(0.625f)), small, large), x);
}

template <typename F>
BERTH_MATH F negate(F x) {
  return F::of(-0.0f) - x;
}

template <typename F>
BERTH_MATH F sigmoid(F x) {
  return F::of(1.0f) / (F::of(1.0f) + exp(negate(x)));
}

template <typename F>
BERTH_MATH F silu(F x) {
  return x / (F::of(1.0f) + exp(negate(x)));
}

// erf, a = |x|: a < 0.9375: fma(p, a, a), p = Horner in a*a; else 1 - exp(-q), q = Horner in min(a, 4) fitted to
// -log(erfc); sign of x. Both polynomials are minimax fits of this project (error below 0.03 ulp before rounding).
template <typename F>
BERTH_MATH F erf(F x) {
  const F a = abs(x);
  const F z = a * a;
  F p = F::of(8.267171e-05f);
  p = fma(p, z, F::of(-0.00081179914f));
  p = fma(p, z, F::of(0.0051988205f));
  p = fma(p, z, F::of(-0.026858492f));
  p = fma(p, z, F::of(0.112836786f));
  p = fma(p, z, F::of(-0.37612632f));
  p = fma(p, z, F::of(0.12837917f));
  const F small = fma(p, a, a);
  const F b = at_most(a, 4.0f);
  F q = F::of(-0.00019295105f);
  q = fma(q, b, F::of(0.0030139522f));
  q = fma(q, b, F::of(-0.02211039f));
  q = fma(q, b, F::of(0.10369014f));
  q = fma(q, b, F::of(0.637457f));
  q = fma(q, b, F::of(1.1275127f));
  q = fma(q, b, F::of(0.00023506736f));
  const F large = F::of(1.0f) - exp(negate(q));
  return copysign(select(less(a, F::of(0.9375f)), small, large), x);
}

// (0.5 * x) * (1 + tanh((k * x) * fma(0.044715 * x, x, 1))), k = sqrt(2 / pi)
template <typename F>
BERTH_MATH F gelu_tanh(F x) {
  const F inner = (F::of(0.797884583f) * x) * fma(F::of(0.044715f) * x, x, F::of(1.0f));
  return (F::of(0.5f) * x) * (F::of(1.0f) + tanh(inner));
}

// (0.5 * x) * (1 + erf(x * sqrt(1/2)))
template <typename F>
BERTH_MATH F gelu_erf(F x) {
  return (F::of(0.5f) * x) * (F::of(1.0f) + erf(x * F::of(0.707106769f)));
}

// log(2^e * (1 + f)) for sqrt(1/2) <= 1 + f < sqrt(2): f - f*f/2 + f^3 * P(f) + e * ln 2, ln 2 in two parts (the first
// has 15 bits, so its product with e is exact). P is a minimax fit of this project.
template <typename F>
BERTH_MATH F log_of_split(F f, F e) {
  const F z = f * f;
  F p = F::of(0.06746601313352585f);
  p = fma(p, f, F::of(-0.11675640940666199f));
  p = fma(p, f, F::of(0.11888174712657928f));
  p = fma(p, f, F::of(-0.12405591458082199f));
  p = fma(p, f, F::of(0.14219550788402557f));
  p = fma(p, f, F::of(-0.1666799634695053f));
  p = fma(p, f, F::of(0.2000211924314499f));
  p = fma(p, f, F::of(-0.25000008940696716f));
  p = fma(p, f, F::of(0.3333331346511841f));
  F y = p * (f * z);
  y = fma(e, F::of(1.42860677e-6f), y);
  y = fma(z, F::of(-0.5f), y);
  return fma(e, F::of(0.693145752f), f + y);
}

// log(+-0) = -inf, log(x < 0) = NaN.
template <typename F>
BERTH_MATH F log(F x) {
  const F zero = F::of(0.0f);
  const auto tiny = less(x, F::of(1.17549435e-38f));
  const auto split = split_exponent(select(tiny, x * F::of(8388608.0f), x));
  const F e = split.e - select(tiny, F::of(23.0f), zero);
  F y = log_of_split(split.m - F::of(1.0f), e);
  const F infinity = F::of(std::bit_cast<float>(0x7F800000u));
  const F nan = F::of(std::bit_cast<float>(0x7FC00000u));
  y = select(less(x, infinity), y, x);  // +inf and NaN
  y = select(less(zero, x), y, select(less(x, zero), nan, select(less(abs(x), infinity), negate(infinity), x)));
  return y;
}

// max(x, 0) + log1p(exp(-|x|)).
template <typename F>
BERTH_MATH F softplus(F x) {
  const F y = exp(negate(abs(x)));  // 0..1
  const F one = F::of(1.0f);
  const auto low = less(one + y, F::of(1.41421354f));
  const F f = select(low, y, (y - one) * F::of(0.5f));  // 1 + y = 2^e * (1 + f)
  return at_least(x, 0.0f) + log_of_split(f, select(low, F::of(0.0f), one));
}

}  // namespace math

// The scalar functions.
inline float exp_f32(float x) { return math::exp(F32x1{x}).v; }
inline float tanh_f32(float x) { return math::tanh(F32x1{x}).v; }
inline float sigmoid_f32(float x) { return math::sigmoid(F32x1{x}).v; }
inline float silu_f32(float x) { return math::silu(F32x1{x}).v; }
inline float erf_f32(float x) { return math::erf(F32x1{x}).v; }
inline float gelu_tanh_f32(float x) { return math::gelu_tanh(F32x1{x}).v; }
inline float gelu_erf_f32(float x) { return math::gelu_erf(F32x1{x}).v; }
inline float log_f32(float x) { return math::log(F32x1{x}).v; }
inline float softplus_f32(float x) { return math::softplus(F32x1{x}).v; }

}  // namespace berth::kernel
