// kernel/cpu/linear_few_exact_avx512.cc — y = W x in exact mode (numerics.md 1) with AVX-512, two inputs and more: a
// code is decoded once for all inputs.
//
// Lanes are the lanes, as in linear_exact_avx512.cc. Two rows' words are decoded into 16 registers (8 where words have
// four elements or fewer), which then meet one input after the other, whose sums wait in scratch: so odd numbers of
// inputs cost no more than even ones.
//
// Start reading at: few_half.
#include "berth/kernel/cpu/linear_exact_avx512-inl.h"
#include "berth/kernel/cpu/linear_groups-inl.h"

namespace berth::kernel::cpu {
namespace {

// Where the sums of four rows and all inputs stand: [input][row][half][16].
constexpr int64_t kFewSums = 4 * 32;

// The words 16 * kHalf .. of a step of the rows 2 * kPair and 2 * kPair + 1, all inputs. Each load of x serves both
// rows, and the inputs' next step is asked for by quarters: all inputs' steps pass through the first-level cache.
template <Kind kKind, bool kMin, Scale kScale, bool kTail, int kPair, int kHalf>
BERTH_INLINE void few_half(const Stream row[4], const StepScales scales[2], int64_t step, int64_t tail_bytes,
                           const RowsTask& task, const Operands& op, float* sums) {
  constexpr int kElements = word_elements(kKind), kTerms = terms(kKind);
  constexpr bool kChain = kScale == Scale::kNone;  // products go to the sums at once
  // From a term of a half step to that of the next one that is read.
  constexpr int64_t kNext = kHalf == 0 ? 16 * kElements : 32 * kTerms - 16 * kElements;
  __m512 a[kTerms], b[kTerms];
  decode_half<kKind, kTail, kHalf>(row[2 * kPair], step, tail_bytes, op, a);
  decode_half<kKind, kTail, kHalf>(row[2 * kPair + 1], step, tail_bytes, op, b);
  const __m512 sa = spread<kKind, kScale, kHalf>(scales[0].s), sb = spread<kKind, kScale, kHalf>(scales[1].s);
  const __m512 ma = spread<kKind, kScale, kHalf>(scales[0].m), mb = spread<kKind, kScale, kHalf>(scales[1].m);
  const int64_t at = 2 * step + kHalf, t_at = (task.w.k + 255) / 256 * 256 + at * 16;
  const int64_t x_bytes = task.x_bytes,
                inputs = task.m;  // (stores below might be to `task`, for all the compiler knows)
  const std::byte* input = task.x;
  float* to = sums + (2 * kPair) * 32 + kHalf * 16;
  for (int64_t m = 0; m < inputs; ++m, input += x_bytes, to += kFewSums) {
    const float* const x = reinterpret_cast<const float*>(input) + step * 32 * kTerms + kHalf * 16 * kElements;
    const auto term = [x](int e) { return x + e / kElements * 32 * kElements + e % kElements * 16; };
    // Of the half step after this one: this pair's half.
    for (int e = kPair * kTerms / 2; e < (kPair + 1) * kTerms / 2; ++e) _mm_prefetch(term(e) + kNext, _MM_HINT_T0);
    __m512 to_a = _mm512_load_ps(to), to_b = _mm512_load_ps(to + 32);
    const __m512 first = loaded(x);
    __m512 pa = kChain ? fma(a[0], first, to_a) : _mm512_mul_ps(a[0], first);
    __m512 pb = kChain ? fma(b[0], first, to_b) : _mm512_mul_ps(b[0], first);
#if defined(__clang__)
#pragma unroll
#else
#pragma GCC unroll 8
#endif
    for (int e = 1; e < kTerms; ++e) {
      const __m512 xe = loaded(term(e));
      pa = fma(a[e], xe, pa);
      pb = fma(b[e], xe, pb);
    }
    if (kChain) {
      to_a = pa;
      to_b = pb;
    } else {
      to_a = fma(pa, sa, to_a);
      to_b = fma(pb, sb, to_b);
      if (kMin) {
        const __m512 t = _mm512_load_ps(reinterpret_cast<const float*>(input) + t_at);
        to_a = fma(ma, t, to_a);
        to_b = fma(mb, t, to_b);
      }
    }
    _mm512_store_ps(to, to_a);
    _mm512_store_ps(to + 32, to_b);
  }
}

// One step of four rows: its first half for all of them, then the second, since the inputs' halves stay in the
// first-level cache for so long only.
template <Kind kKind, bool kMin, Scale kScale, bool kTail>
BERTH_INLINE void few_step(const Stream row[4], int64_t step, int64_t tail_bytes, const RowsTask& t, const Operands& op,
                           float* sums) {
  const int64_t words = tail_bytes / 4;
  const StepScales scales[4] = {step_scales<kKind, kMin, kScale, kTail>(row[0], step, op, words),
                                step_scales<kKind, kMin, kScale, kTail>(row[1], step, op, words),
                                step_scales<kKind, kMin, kScale, kTail>(row[2], step, op, words),
                                step_scales<kKind, kMin, kScale, kTail>(row[3], step, op, words)};
  few_half<kKind, kMin, kScale, kTail, 0, 0>(row, scales, step, tail_bytes, t, op, sums);
  few_half<kKind, kMin, kScale, kTail, 1, 0>(row, scales + 2, step, tail_bytes, t, op, sums);
  if (kTail && tail_bytes <= 64) return;
  few_half<kKind, kMin, kScale, kTail, 0, 1>(row, scales, step, tail_bytes, t, op, sums);
  few_half<kKind, kMin, kScale, kTail, 1, 1>(row, scales + 2, step, tail_bytes, t, op, sums);
}

// Four rows, all inputs: their sums. (Not inlined: 16 decoded vectors need all registers.)
template <Kind kKind, bool kMin, Scale kScale>
__attribute__((noinline)) void few_inputs(const Stream row[4], const RowsTask& t, const Operands& op, float* sums) {
  constexpr int kElements = word_elements(kKind);
  const int64_t steps = t.w.k / (32 * terms(kKind));
  for (int64_t i = 0; i < t.m * kFewSums; i += 16) _mm512_store_ps(sums + i, _mm512_setzero_ps());
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t one = step * steps_at_once(kKind); one < (step + 1) * steps_at_once(kKind); ++one)
      for (int r = 0; r < 4; ++r) prefetch<kKind>(row[r], one);
    few_step<kKind, kMin, kScale, false>(row, step, 0, t, op, sums);
  }
  if (const int64_t words = t.w.k % (32 * terms(kKind)) / kElements; words != 0) {
    few_step<kKind, kMin, kScale, true>(row, steps, words * 4, t, op, sums);
  }
}

struct FewInputs {
  template <Kind kKind, bool kMin, Scale kScale>
  static void rows_of_group(const RowsTask& t) {
    const Operands op = operands(t.w);
    float* const sums = reinterpret_cast<float*>(t.scratch + rows_scales_bytes(t.w.k));
    for (int64_t i = t.quad_begin; i < t.quad_end; ++i) {
      Quad quad;
      begin_quad<kKind, kMin, kScale>(t, i, quad);
      few_inputs<kKind, kMin, kScale>(quad.row, t, op, sums);
      for (int64_t m = 0; m < t.m; ++m) {
        const auto at = [&](int row) {
          const float* const of = sums + m * kFewSums + row * 32;
          return Accumulators{{_mm512_load_ps(of), _mm512_load_ps(of + 16)}};
        };
        put<kKind>(t, quad, m, finish(at(0), at(1), at(2), at(3)));
      }
    }
  }
  template <Kind kKind, bool kMin, Scale kScale>
  static void rows(const RowsTask& t) {
    by_groups(t, few_inputs_avx512(quant::codec_info(t.w.codec)), rows_of_group<kKind, kMin, kScale>);
  }
};

}  // namespace

RowsFn few_exact_avx512(const WeightView& w) { return form_of<FewInputs>(w); }

}  // namespace berth::kernel::cpu
