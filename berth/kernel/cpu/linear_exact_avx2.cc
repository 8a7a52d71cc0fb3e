// kernel/cpu/linear_exact_avx2.cc — y = W x in exact mode (numerics.md 1) with AVX2, one input (or few, where words are
// one or two elements): lanes are the lanes.
//
// Four registers hold a row's 32 accumulators; a group is 8 words, one per lane of one register. Two rows at a time,
// half of the task's rows apart. x lies in scratch so that one load gives every lane the element of its word
// (InputLayout). How codes become floats: linear_exact_avx2-inl.h.
//
// Start reading at: octet_group.
#include "berth/kernel/cpu/linear_exact_avx2-inl.h"

namespace berth::kernel::cpu {
namespace {

// 8 words of two elements.
template <Kind kKind>
BERTH_INLINE __m256 pair_group(const uint8_t* codes, const float* x, __m256 a) {
  __m256 c[2];
  pair_codes<kKind>(codes, c);
  return fma(c[1], _mm256_load_ps(x + 8), fma(c[0], _mm256_load_ps(x), a));
}

// 8 words of four bytes, i.e. one block of 32.
template <Kind kKind>
BERTH_INLINE __m256 quad_group(const uint8_t* codes, const float* x, const float* s, __m256 a) {
  __m256 c[4];
  quad_codes<kKind>(codes, c);
  if (kKind == Kind::kInt8) {
    a = fma(c[1], _mm256_load_ps(x + 8), fma(c[0], _mm256_load_ps(x), a));
    return fma(c[3], _mm256_load_ps(x + 24), fma(c[2], _mm256_load_ps(x + 16), a));
  }
  __m256 p = fma(c[1], _mm256_load_ps(x + 8), _mm256_mul_ps(c[0], _mm256_load_ps(x)));
  p = fma(c[3], _mm256_load_ps(x + 24), fma(c[2], _mm256_load_ps(x + 16), p));
  return fma(p, _mm256_broadcast_ss(s), a);
}

// 8 words of 8 elements of one row.
template <Kind kKind, bool kMin>
BERTH_INLINE __m256 octet_group(const uint8_t* codes, const Stream& row, int64_t group, const float* x,
                                const Operands& op, __m256 a) {
  constexpr int64_t kScales = kKind == Kind::kSix ? 4 : 2;  // scales per group
  constexpr int64_t kHigh = kKind == Kind::kSix ? 4 : 2;    // words of the high plane per group
  __m256 lo[4], hi[4];
  octet_codes<kKind>(load(codes), row.high + group * kHigh, op, lo, hi);
  __m256 p = _mm256_mul_ps(lo[0], _mm256_load_ps(x));
  p = fma(hi[0], _mm256_load_ps(x + 8), p);
  p = fma(lo[1], _mm256_load_ps(x + 16), p);
  p = fma(hi[1], _mm256_load_ps(x + 24), p);
  p = fma(lo[2], _mm256_load_ps(x + 32), p);
  p = fma(hi[2], _mm256_load_ps(x + 40), p);
  p = fma(lo[3], _mm256_load_ps(x + 48), p);
  p = fma(hi[3], _mm256_load_ps(x + 56), p);
  a = fma(p, spread<kKind>(row.s + group * kScales), a);
  if (kMin) a = fma(spread<kKind>(row.m + group * kScales), _mm256_load_ps(op.t + group * 8), a);
  return a;
}

// Group `group` of 8 words of one row; `codes`: its 32 bytes.
template <Kind kKind, bool kMin>
BERTH_INLINE __m256 group_of(const uint8_t* codes, const Stream& row, int64_t group, const float* x, const Operands& op,
                             __m256 a) {
  const float* xg = x + group * 8 * word_elements(kKind);
  if (kKind == Kind::kF32) return fma(_mm256_loadu_ps(reinterpret_cast<const float*>(codes)), _mm256_load_ps(xg), a);
  if (word_elements(kKind) == 2) return pair_group<kKind>(codes, xg, a);
  if (word_elements(kKind) == 4) return quad_group<kKind>(codes, xg, row.s + group, a);
  return octet_group<kKind, kMin>(codes, row, group, xg, op, a);
}

// One step of 32 words.
template <Kind kKind, bool kMin>
BERTH_INLINE void row_step(const Stream& row, int64_t step, const float* x, const Operands& op, Accumulators& a) {
  constexpr int64_t kGroup = group_bytes(kKind);
  const uint8_t* codes = row.codes + step * 4 * kGroup + group_codes(kKind);
  prefetch_step<kKind>(codes);
  a.a0 = group_of<kKind, kMin>(codes, row, 4 * step, x, op, a.a0);
  a.a1 = group_of<kKind, kMin>(codes + kGroup, row, 4 * step + 1, x, op, a.a1);
  a.a2 = group_of<kKind, kMin>(codes + 2 * kGroup, row, 4 * step + 2, x, op, a.a2);
  a.a3 = group_of<kKind, kMin>(codes + 3 * kGroup, row, 4 * step + 3, x, op, a.a3);
}

// What is left after the last whole step: `words` of 32. Absent words have x = 0, their codes are 0.
template <Kind kKind, bool kMin>
BERTH_INLINE void row_tail(const Stream& row, int64_t step, int64_t words, const float* x, const Operands& op,
                           Accumulators& a) {
  alignas(32) uint8_t codes[128] = {};
  tail_codes<kKind>(row, step, words, codes);
  a.a0 = group_of<kKind, kMin>(codes, row, 4 * step, x, op, a.a0);
  if (words > 8) a.a1 = group_of<kKind, kMin>(codes + 32, row, 4 * step + 1, x, op, a.a1);
  if (words > 16) a.a2 = group_of<kKind, kMin>(codes + 64, row, 4 * step + 2, x, op, a.a2);
  if (words > 24) a.a3 = group_of<kKind, kMin>(codes + 96, row, 4 * step + 3, x, op, a.a3);
}

template <Kind kKind, bool kMin>
void tile(const Stream row[2], const float* x, int64_t k, Operands op, float y[2]) {
  constexpr int kElements = word_elements(kKind);
  const int64_t steps = k / (32 * kElements), words = k % (32 * kElements) / kElements;
  const Stream a = row[0], b = row[1];
  const __m256 zero = _mm256_setzero_ps();
  Accumulators ya{zero, zero, zero, zero}, yb = ya;
  op.t = x + (k + 255) / 256 * 256;
  for (int64_t step = 0; step < steps; ++step) {
    row_step<kKind, kMin>(a, step, x, op, ya);
    row_step<kKind, kMin>(b, step, x, op, yb);
  }
  if (words != 0) {
    row_tail<kKind, kMin>(a, steps, words, x, op, ya);
    row_tail<kKind, kMin>(b, steps, words, x, op, yb);
  }
  y[0] = finish(ya);
  y[1] = finish(yb);
}

template <Kind kKind, bool kMin>
void one_input(const RowsTask& t) {
  constexpr int kElements = word_elements(kKind);
  const Operands op = operands(t.w);
  const int64_t k = t.w.k, blocks = k / 32;
  const int64_t scale_stride = (blocks + 7) / 8 * 8 * (kKind == Kind::kSix ? 2 : 1);
  const int64_t high_words = kKind == Kind::kFive ? blocks : kKind == Kind::kSix ? 2 * blocks : 0;
  const int64_t row_bytes = k / kElements * group_bytes(kKind) / 8;
  float* const buffer = reinterpret_cast<float*>(t.scratch);
  const int64_t half = (t.row_count + 1) / 2;  // two streams: a quad is two pairs
  for (int64_t i = t.quad_begin * 2, end = t.quad_end * 2 < half ? t.quad_end * 2 : half; i < end; ++i) {
    Stream stream[2];
    int64_t n[2];
    for (int r = 0; r < 2; ++r) {
      n[r] = i + r * half;
      if (n[r] >= t.row_count) n[r] = t.row_count - 1;  // again: the same bits to the same place
      const int64_t row = t.w.stored_row(t.row_begin + n[r]);
      float* s = buffer + r * scale_stride;
      float* m = buffer + (2 + r) * scale_stride;
      if (kElements > 2 && kKind != Kind::kInt8) expand_scales_avx2(t.w, row, s, m);
      stream[r] = {t.w.codes + row * row_bytes, t.w.high + row * high_words, s, m};
    }
    for (int64_t m = 0; m < t.m; ++m) {
      float y[2];
      tile<kKind, kMin>(stream, reinterpret_cast<const float*>(t.x + m * t.x_bytes), k, op, y);
      for (int r = 0; r < 2; ++r) t.y[m * t.y_stride + n[r]] = output<kKind>(t, n[r], y[r]);
    }
  }
}

struct OneInput {
  template <Kind kKind, bool kMin>
  static void rows(const RowsTask& t) {
    one_input<kKind, kMin>(t);
  }
};

}  // namespace

RowsFn rows_exact_avx2(const WeightView& w) { return form_of<OneInput>(w); }

}  // namespace berth::kernel::cpu
