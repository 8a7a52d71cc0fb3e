// kernel/cpu/linear_exact_avx512.cc — y = W x in exact mode (numerics.md 1) with AVX-512, one input: lanes are the
// lanes.
//
// Two registers hold a row's 32 accumulators. A 64-byte load is 16 words, one per lane; x lies in scratch so that one
// load gives every lane the element of its word (InputLayout). Four rows at a time, a quarter of the task's rows apart
// (linear_int8_avx512.cc says why). How codes become floats: linear_exact_avx512-inl.h.
//
// Start reading at: book_products.
#include "berth/kernel/cpu/linear_exact_avx512-inl.h"

namespace berth::kernel::cpu {
namespace {

// --- E = 1 and 2: no scales ---

BERTH_INLINE void plain_step(const uint8_t* codes, const float* x, Accumulators& a) {
  const float* w = reinterpret_cast<const float*>(codes);
  a.half[0] = fma(_mm512_loadu_ps(w), _mm512_load_ps(x), a.half[0]);
  a.half[1] = fma(_mm512_loadu_ps(w + 16), _mm512_load_ps(x + 16), a.half[1]);
}

template <Kind kKind>
BERTH_INLINE __m512 pair_half(const uint8_t* codes, const float* x, __m512 a) {
  __m512 v[2];
  pair_codes<kKind>(_mm512_loadu_si512(codes), v);
  return fma(v[1], _mm512_load_ps(x + 16), fma(v[0], _mm512_load_ps(x), a));
}

// --- E = 4 ---

// 16 words of four bytes.
template <Kind kKind, Scale kScale, bool kTail, int kHalf>
BERTH_INLINE __m512 quad_half(const uint8_t* codes, int64_t bytes, const float* x, const StepScales& scales, __m512 a) {
  __m512i w = kKind == Kind::kQ8Block ? load_two_blocks<kTail>(codes, bytes) : load_codes<kTail>(codes, bytes);
  if (kKind != Kind::kFP8) w = _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(0x80)));
  if (kKind == Kind::kInt8) {
    a = fma(quad_code<kKind, 0>(w), _mm512_load_ps(x), a);
    a = fma(quad_code<kKind, 1>(w), _mm512_load_ps(x + 16), a);
    a = fma(quad_code<kKind, 2>(w), _mm512_load_ps(x + 32), a);
    return fma(quad_code<kKind, 3>(w), _mm512_load_ps(x + 48), a);
  }
  __m512 p = _mm512_mul_ps(quad_code<kKind, 0>(w), _mm512_load_ps(x));
  p = fma(quad_code<kKind, 1>(w), _mm512_load_ps(x + 16), p);
  p = fma(quad_code<kKind, 2>(w), _mm512_load_ps(x + 32), p);
  p = fma(quad_code<kKind, 3>(w), _mm512_load_ps(x + 48), p);
  return fma(p, spread<kKind, kScale, kHalf>(scales.s), a);
}

// --- E = 8 ---

// p = the run's sum over 16 words of 8 elements, each of its own lane.
template <Kind kKind, bool kTail>
BERTH_INLINE __m512 octet_products(const uint8_t* codes, int64_t bytes, const uint32_t* high, const float* x,
                                   __m512 offset) {
  __m512i hi, lo;
  octet_bytes<kKind, kTail>(codes, bytes, high, hi, lo);
  __m512 p = _mm512_mul_ps(byte_float<0>(lo, offset), _mm512_load_ps(x));
  p = fma(byte_float<0>(hi, offset), _mm512_load_ps(x + 16), p);
  p = fma(byte_float<1>(lo, offset), _mm512_load_ps(x + 32), p);
  p = fma(byte_float<1>(hi, offset), _mm512_load_ps(x + 48), p);
  p = fma(byte_float<2>(lo, offset), _mm512_load_ps(x + 64), p);
  p = fma(byte_float<2>(hi, offset), _mm512_load_ps(x + 80), p);
  p = fma(byte_float<3>(lo, offset), _mm512_load_ps(x + 96), p);
  return fma(byte_float<3>(hi, offset), _mm512_load_ps(x + 112), p);
}

// The same for four rows of 4-bit codes side by side, so that one load of x serves four rows (4 bits: `book`).
template <bool kTail>
BERTH_INLINE void book_products(const uint8_t* const codes[4], int64_t bytes, const float* x, __m512 book, __m512& pa,
                                __m512& pb, __m512& pc, __m512& pd) {
  __m512i a = load_codes<kTail>(codes[0], bytes), b = load_codes<kTail>(codes[1], bytes);
  __m512i c = load_codes<kTail>(codes[2], bytes), d = load_codes<kTail>(codes[3], bytes);
  const __m512 first = _mm512_load_ps(x);
  pa = _mm512_mul_ps(_mm512_permutexvar_ps(a, book), first);
  pb = _mm512_mul_ps(_mm512_permutexvar_ps(b, book), first);
  pc = _mm512_mul_ps(_mm512_permutexvar_ps(c, book), first);
  pd = _mm512_mul_ps(_mm512_permutexvar_ps(d, book), first);
#if defined(__clang__)
#pragma unroll
#else
#pragma GCC unroll 8
#endif
  for (int i = 1; i < 8; ++i) {
    const __m512 xi = _mm512_load_ps(x + 16 * i);
    a = _mm512_srli_epi32(a, 4);
    b = _mm512_srli_epi32(b, 4);
    c = _mm512_srli_epi32(c, 4);
    d = _mm512_srli_epi32(d, 4);
    pa = fma(_mm512_permutexvar_ps(a, book), xi, pa);
    pb = fma(_mm512_permutexvar_ps(b, book), xi, pb);
    pc = fma(_mm512_permutexvar_ps(c, book), xi, pc);
    pd = fma(_mm512_permutexvar_ps(d, book), xi, pd);
  }
}

// The runs' sums p of words 16 * kHalf .. , scaled into the lanes; `at` counts halves of steps.
template <Kind kKind, bool kMin, Scale kScale, int kHalf>
BERTH_INLINE __m512 add_runs(__m512 p, const StepScales& scales, const float* t, int64_t at, __m512 a) {
  a = fma(p, spread<kKind, kScale, kHalf>(scales.s), a);
  if (kMin) a = fma(spread<kKind, kScale, kHalf>(scales.m), _mm512_load_ps(t + at * 16), a);
  return a;
}

// One step of 32 words of one row of 5 or 6 bits.
template <Kind kKind, bool kMin, Scale kScale, bool kTail, int kHalf>
BERTH_INLINE __m512 octet_half(const Stream& row, int64_t step, int64_t tail_bytes, const float* x, const float* t,
                               __m512 offset, const StepScales& scales, __m512 a) {
  constexpr int64_t kHigh = kKind == Kind::kFive ? 4 : 8;  // words of the high plane
  const int64_t at = 2 * step + kHalf;
  const __m512 p = octet_products<kKind, kTail>(row.codes + at * 64, tail_bytes - kHalf * 64, row.high + at * kHigh,
                                                x + at * 128, offset);
  return add_runs<kKind, kMin, kScale, kHalf>(p, scales, t, at, a);
}

// --- the loop ---

// One step of 32 words of one row. `tail_bytes`: of its codes that exist.
template <Kind kKind, bool kMin, Scale kScale, bool kTail>
BERTH_INLINE void row_step(const Stream& row, int64_t step, int64_t tail_bytes, const float* x, const Operands& op,
                           Accumulators& a) {
  const uint8_t* codes = row.codes + step * step_bytes(kKind);
  if (kKind == Kind::kF32) {
    plain_step(codes, x + step * 32, a);
  } else if (kKind == Kind::kBF16 || kKind == Kind::kF16) {
    a.half[0] = pair_half<kKind>(codes, x + step * 64, a.half[0]);
    if (!kTail) a.half[1] = pair_half<kKind>(codes + 64, x + step * 64 + 32, a.half[1]);
  } else if (word_elements(kKind) == 4) {
    const StepScales scales = step_scales<kKind, kMin, kScale, kTail>(row, step, op, tail_bytes / 4);
    a.half[0] = quad_half<kKind, kScale, kTail, 0>(codes, tail_bytes, x + step * 128, scales, a.half[0]);
    a.half[1] = quad_half<kKind, kScale, kTail, 1>(codes + step_bytes(kKind) / 2, tail_bytes - 64, x + step * 128 + 64,
                                                   scales, a.half[1]);
  } else {
    const StepScales scales = step_scales<kKind, kMin, kScale, kTail>(row, step, op, tail_bytes / 4);
    a.half[0] = octet_half<kKind, kMin, kScale, kTail, 0>(row, step, tail_bytes, x, op.t, op.offset, scales, a.half[0]);
    a.half[1] = octet_half<kKind, kMin, kScale, kTail, 1>(row, step, tail_bytes, x, op.t, op.offset, scales, a.half[1]);
  }
}

// Words 16 * kHalf .. of a step, of four rows of 4-bit codes.
template <bool kMin, Scale kScale, bool kTail, int kHalf>
BERTH_INLINE void book_half(const Stream row[4], const StepScales scales[4], int64_t step, int64_t tail_bytes,
                            const float* x, const Operands& op, Accumulators& a, Accumulators& b, Accumulators& c,
                            Accumulators& d) {
  const int64_t at = 2 * step + kHalf;
  const uint8_t* codes[4] = {row[0].codes + at * 64, row[1].codes + at * 64, row[2].codes + at * 64,
                             row[3].codes + at * 64};
  __m512 pa, pb, pc, pd;
  book_products<kTail>(codes, tail_bytes - kHalf * 64, x + at * 128, op.book, pa, pb, pc, pd);
  a.half[kHalf] = add_runs<Kind::kBook, kMin, kScale, kHalf>(pa, scales[0], op.t, at, a.half[kHalf]);
  b.half[kHalf] = add_runs<Kind::kBook, kMin, kScale, kHalf>(pb, scales[1], op.t, at, b.half[kHalf]);
  c.half[kHalf] = add_runs<Kind::kBook, kMin, kScale, kHalf>(pc, scales[2], op.t, at, c.half[kHalf]);
  d.half[kHalf] = add_runs<Kind::kBook, kMin, kScale, kHalf>(pd, scales[3], op.t, at, d.half[kHalf]);
}

// One step of 32 words of four rows.
template <Kind kKind, bool kMin, Scale kScale, bool kTail>
BERTH_INLINE void step_of_four(const Stream row[4], int64_t step, int64_t tail_bytes, const float* x,
                               const Operands& op, Accumulators& a, Accumulators& b, Accumulators& c, Accumulators& d) {
  if (kKind == Kind::kBook) {
    const int64_t words = tail_bytes / 4;
    const StepScales scales[4] = {step_scales<kKind, kMin, kScale, kTail>(row[0], step, op, words),
                                  step_scales<kKind, kMin, kScale, kTail>(row[1], step, op, words),
                                  step_scales<kKind, kMin, kScale, kTail>(row[2], step, op, words),
                                  step_scales<kKind, kMin, kScale, kTail>(row[3], step, op, words)};
    book_half<kMin, kScale, kTail, 0>(row, scales, step, tail_bytes, x, op, a, b, c, d);
    if (!kTail || tail_bytes > 64) book_half<kMin, kScale, kTail, 1>(row, scales, step, tail_bytes, x, op, a, b, c, d);
    return;
  }
  row_step<kKind, kMin, kScale, kTail>(row[0], step, tail_bytes, x, op, a);
  row_step<kKind, kMin, kScale, kTail>(row[1], step, tail_bytes, x, op, b);
  row_step<kKind, kMin, kScale, kTail>(row[2], step, tail_bytes, x, op, c);
  row_step<kKind, kMin, kScale, kTail>(row[3], step, tail_bytes, x, op, d);
}

template <Kind kKind, bool kMin, Scale kScale>
__m128 tile(const Stream row[4], const float* x, int64_t k, Operands op) {
  constexpr int kElements = word_elements(kKind);
  const int64_t steps = k / (32 * kElements);
  const Stream a = row[0], b = row[1], c = row[2], d = row[3];
  Accumulators aa{{_mm512_setzero_ps(), _mm512_setzero_ps()}}, ab = aa, ac = aa, ad = aa;
  op.t = x + (k + 255) / 256 * 256;
  for (int64_t step = 0; step < steps; ++step) {
    prefetch<kKind>(a, step);
    prefetch<kKind>(b, step);
    prefetch<kKind>(c, step);
    prefetch<kKind>(d, step);
    step_of_four<kKind, kMin, kScale, false>(row, step, 0, x, op, aa, ab, ac, ad);
  }
  if (const int64_t words = k % (32 * kElements) / kElements; words != 0) {
    step_of_four<kKind, kMin, kScale, true>(row, steps, words * 4, x, op, aa, ab, ac, ad);
  }
  return finish(aa, ab, ac, ad);
}

struct OneInput {
  template <Kind kKind, bool kMin, Scale kScale>
  static void rows(const RowsTask& t) {
    const Operands op = operands(t.w);
    for (int64_t i = t.quad_begin; i < t.quad_end; ++i) {
      Quad quad;
      begin_quad<kKind, kMin, kScale>(t, i, quad);
      for (int64_t m = 0; m < t.m; ++m) {
        const float* const x = reinterpret_cast<const float*>(t.x + m * t.x_bytes);
        put<kKind>(t, quad, m, tile<kKind, kMin, kScale>(quad.row, x, t.w.k, op));
      }
    }
  }
};

}  // namespace

RowsFn rows_exact_avx512(const WeightView& w) { return form_of<OneInput>(w); }

}  // namespace berth::kernel::cpu
