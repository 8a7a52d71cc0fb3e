// kernel/cpu/linear_few_exact_avx2.cc — y = W x in exact mode (numerics.md 1) with AVX2, two inputs and more: a
// code is decoded once for all of them.
//
// Lanes are the lanes, as in linear_exact_avx2.cc. A group of 8 words of one row (E = 8) or of two rows (E = 4, 2, 1)
// is decoded into 8 registers, which then meet one input after the other, whose sums wait in scratch: so odd numbers of
// inputs cost no more than even ones. The chains of neighbouring inputs do not depend on each other and overlap. Four
// rows at a time share the inputs' group in the first-level cache.
//
// Start reading at: octet_inputs.
#include "berth/kernel/cpu/linear_exact_avx2-inl.h"
#include "berth/kernel/cpu/linear_groups-inl.h"

namespace berth::kernel::cpu {
namespace {

// Where the sums of four rows and all inputs stand: [input][row][32].
constexpr int64_t kFewSums = 4 * 32;

// A load that stays one: else it would be made again for the second row.
BERTH_INLINE __m256 loaded(const float* p) {
  __m256 v = _mm256_load_ps(p);
  __asm__("" : "+v"(v));
  return v;
}

// Group `group` of one row, all inputs; `to`: its sums of the first one. `part`: which quarter of the inputs' next
// group is asked for.
template <Kind kKind, bool kMin>
BERTH_INLINE void octet_inputs(const uint8_t* codes, const Stream& row, int64_t group, int part, const RowsTask& t,
                               const Operands& op, float* to) {
  constexpr int64_t kScales = kKind == Kind::kSix ? 4 : 2;  // scales per group
  constexpr int64_t kHigh = kKind == Kind::kSix ? 4 : 2;    // words of the high plane per group
  __m256 lo[4], hi[4];
  octet_codes<kKind>(load(codes), row.high + group * kHigh, op, lo, hi);
  const __m256 s = spread<kKind>(row.s + group * kScales);
  const __m256 least = kMin ? spread<kKind>(row.m + group * kScales) : s;
  const int64_t x_bytes = t.x_bytes, inputs = t.m;  // (stores below might be to `t`, for all the compiler knows)
  const int64_t sums_at = (t.w.k + 255) / 256 * 256 + group * 8;
  const std::byte* input = t.x;
  for (int64_t m = 0; m < inputs; ++m, input += x_bytes, to += kFewSums) {
    const float* const x = reinterpret_cast<const float*>(input) + group * 64;
    _mm_prefetch(reinterpret_cast<const char*>(x + 64 + 16 * part), _MM_HINT_T0);
    __m256 p = _mm256_mul_ps(lo[0], _mm256_load_ps(x));
    p = fma(hi[0], _mm256_load_ps(x + 8), p);
    p = fma(lo[1], _mm256_load_ps(x + 16), p);
    p = fma(hi[1], _mm256_load_ps(x + 24), p);
    p = fma(lo[2], _mm256_load_ps(x + 32), p);
    p = fma(hi[2], _mm256_load_ps(x + 40), p);
    p = fma(lo[3], _mm256_load_ps(x + 48), p);
    p = fma(hi[3], _mm256_load_ps(x + 56), p);
    __m256 a = fma(p, s, _mm256_load_ps(to));
    if (kMin) a = fma(least, _mm256_load_ps(reinterpret_cast<const float*>(input) + sums_at), a);
    _mm256_store_ps(to, a);
  }
}

// Words of one and two elements are taken four and two steps at a time, so that a sum is touched once per four
// elements.
constexpr int terms(Kind kind) { return word_elements(kind) == 8 ? 8 : 4; }
constexpr int64_t steps_at_once(Kind kind) { return terms(kind) / word_elements(kind); }

// Four terms of 8 words; those of further steps come 128 bytes later each.
template <Kind kKind>
BERTH_INLINE void four_terms(const uint8_t* codes, __m256 c[4]) {
  if constexpr (word_elements(kKind) == 1) {
    for (int e = 0; e < 4; ++e) c[e] = _mm256_castsi256_ps(load(codes + 128 * e));
  } else if constexpr (word_elements(kKind) == 2) {
    pair_codes<kKind>(codes, c);
    pair_codes<kKind>(codes + 128, c + 2);
  } else {
    quad_codes<kKind>(codes, c);
  }
}

// Group `group` of two rows, all inputs: a load of x serves both.
template <Kind kKind>
BERTH_INLINE void quad_inputs(const uint8_t* codes_a, const uint8_t* codes_b, const Stream& row_a, const Stream& row_b,
                              int64_t group, int part, const RowsTask& t, float* to) {
  constexpr int kElements = word_elements(kKind);
  constexpr bool kChain = kElements < 4 || kKind == Kind::kInt8;  // no scale: products go to the sums at once
  const int64_t x_at = group / 4 * 128 + group % 4 * 8 * kElements;
  __m256 a[4], b[4];
  four_terms<kKind>(codes_a, a);
  four_terms<kKind>(codes_b, b);
  const __m256 sa = kChain ? a[0] : _mm256_broadcast_ss(row_a.s + group);
  const __m256 sb = kChain ? b[0] : _mm256_broadcast_ss(row_b.s + group);
  const int64_t x_bytes = t.x_bytes, inputs = t.m;
  const std::byte* input = t.x;
  for (int64_t m = 0; m < inputs; ++m, input += x_bytes, to += kFewSums) {
    const float* const x = reinterpret_cast<const float*>(input) + x_at;
    const auto term = [x](int e) { return x + e / kElements * 32 * kElements + e % kElements * 8; };
    if (kElements == 4) {
      _mm_prefetch(reinterpret_cast<const char*>(x + 32 + 16 * part), _MM_HINT_T0);
    } else {  // lines 2g and 2g + 1 of the 8 that come next
      _mm_prefetch(reinterpret_cast<const char*>(x - group % 4 * 8 * kElements + 128 + group % 4 * 32 + 16 * part),
                   _MM_HINT_T0);
    }
    const __m256 x0 = loaded(term(0)), x1 = loaded(term(1)), x2 = loaded(term(2)), x3 = loaded(term(3));
    __m256 to_a = _mm256_load_ps(to), to_b = _mm256_load_ps(to + 32);
    __m256 pa = kChain ? fma(a[0], x0, to_a) : _mm256_mul_ps(a[0], x0);
    __m256 pb = kChain ? fma(b[0], x0, to_b) : _mm256_mul_ps(b[0], x0);
    pa = fma(a[1], x1, pa);
    pb = fma(b[1], x1, pb);
    pa = fma(a[2], x2, pa);
    pb = fma(b[2], x2, pb);
    pa = fma(a[3], x3, pa);
    pb = fma(b[3], x3, pb);
    to_a = kChain ? pa : fma(pa, sa, to_a);
    to_b = kChain ? pb : fma(pb, sb, to_b);
    _mm256_store_ps(to, to_a);
    _mm256_store_ps(to + 32, to_b);
  }
}

// Group `group` of four rows, all inputs; codes[r]: its 32 bytes.
template <Kind kKind, bool kMin>
BERTH_INLINE void group_inputs(const uint8_t* const codes[4], const Stream row[4], int64_t group, const RowsTask& t,
                               const Operands& op, float* sums) {
  if constexpr (word_elements(kKind) <= 4) {
    quad_inputs<kKind>(codes[0], codes[1], row[0], row[1], group, 0, t, sums);
    quad_inputs<kKind>(codes[2], codes[3], row[2], row[3], group, 1, t, sums + 64);
  } else {
    for (int r = 0; r < 4; ++r) octet_inputs<kKind, kMin>(codes[r], row[r], group, r, t, op, sums + r * 32);
  }
}

// Four rows, all inputs: their sums.
template <Kind kKind, bool kMin>
__attribute__((noinline)) void few_inputs(const Stream row[4], const RowsTask& t, const Operands& op, float* sums) {
  constexpr int64_t kGroup = group_bytes(kKind), kSteps = steps_at_once(kKind), kTerms = terms(kKind);
  const int64_t steps = t.w.k / (32 * kTerms);
  for (int64_t i = 0; i < t.m * kFewSums; i += 8) _mm256_store_ps(sums + i, _mm256_setzero_ps());
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t one = step * kSteps; one < (step + 1) * kSteps; ++one)
      for (int r = 0; r < 4; ++r) prefetch_step<kKind>(row[r].codes + one * 4 * kGroup);
    for (int64_t g = 0; g < 4; ++g) {
      const int64_t at = (4 * step * kSteps + g) * kGroup + group_codes(kKind);
      const uint8_t* const codes[4] = {row[0].codes + at, row[1].codes + at, row[2].codes + at, row[3].codes + at};
      group_inputs<kKind, kMin>(codes, row, 4 * step + g, t, op, sums + g * 8);
    }
  }
  const int64_t words = t.w.k % (32 * kTerms) / word_elements(kKind);
  if (words == 0) return;
  alignas(32) uint8_t tail[4][128 * kSteps] = {};
  for (int r = 0; r < 4; ++r) tail_codes<kKind>(row[r], steps * kSteps, words, tail[r]);
  for (int64_t g = 0; g < 4 && g * 8 < words; ++g) {
    const uint8_t* const codes[4] = {tail[0] + g * 32, tail[1] + g * 32, tail[2] + g * 32, tail[3] + g * 32};
    group_inputs<kKind, kMin>(codes, row, 4 * steps + g, t, op, sums + g * 8);
  }
}

// The most inputs whose groups the first-level cache holds beside the next ones. Measured at K = 4096
// (docs/kernel_figures.md).
template <Kind kKind, bool kMin>
constexpr int64_t kMost = word_elements(kKind) < 4 ? 24
                          : kMin                   ? 36
                                                   : 44;

// At most kMost inputs.
template <Kind kKind, bool kMin>
void rows_of_group(const RowsTask& t) {
  constexpr int kElements = word_elements(kKind);
  const Operands op = operands(t.w);
  const int64_t k = t.w.k, blocks = k / 32;
  const int64_t scale_stride = (blocks + 7) / 8 * 8 * (kKind == Kind::kSix ? 2 : 1);
  const int64_t high_words = kKind == Kind::kFive ? blocks : kKind == Kind::kSix ? 2 * blocks : 0;
  const int64_t row_bytes = k / kElements * group_bytes(kKind) / 8;
  float* const buffer = reinterpret_cast<float*>(t.scratch);
  float* const sums = reinterpret_cast<float*>(t.scratch + rows_scales_bytes(k));
  const int64_t quarter = RowsTask::quads(t.row_count);
  for (int64_t i = t.quad_begin; i < t.quad_end; ++i) {
    Stream stream[4];
    int64_t n[4];
    for (int r = 0; r < 4; ++r) {
      n[r] = i + r * quarter;
      if (n[r] >= t.row_count) n[r] = t.row_count - 1;  // again: the same bits to the same place
      const int64_t row = t.w.stored_row(t.row_begin + n[r]);
      float* s = buffer + r * scale_stride;
      float* m = buffer + (4 + r) * scale_stride;
      if (kElements >= 4 && kKind != Kind::kInt8) expand_scales_avx2(t.w, row, s, m);
      stream[r] = {t.w.codes + row * row_bytes, t.w.high + row * high_words, s, m};
    }
    few_inputs<kKind, kMin>(stream, t, op, sums);
    for (int64_t m = 0; m < t.m; ++m) {
      for (int r = 0; r < 4; ++r) {
        const float* const of = sums + m * kFewSums + r * 32;
        const Accumulators a{_mm256_load_ps(of), _mm256_load_ps(of + 8), _mm256_load_ps(of + 16),
                             _mm256_load_ps(of + 24)};
        t.y[m * t.y_stride + n[r]] = output<kKind>(t, n[r], finish(a));
      }
    }
  }
}

struct FewInputs {
  template <Kind kKind, bool kMin>
  static void rows(const RowsTask& t) {
    by_groups(t, kMost<kKind, kMin>, rows_of_group<kKind, kMin>);
  }
};

}  // namespace

RowsFn few_exact_avx2(const WeightView& w) { return form_of<FewInputs>(w); }

}  // namespace berth::kernel::cpu
