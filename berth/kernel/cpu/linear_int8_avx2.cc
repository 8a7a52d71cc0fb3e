// kernel/cpu/linear_int8_avx2.cc — y = W x in int8 mode (numerics.md 5) with AVX2, one input: lanes are the word lanes.
//
// Four rows at a time, a quarter of the task's rows apart: four long streams. What is done to the codes is told in
// linear_int8_avx2-inl.h.
//
// Start reading at: row_step.
#include "berth/kernel/cpu/linear_int8_avx2-inl.h"

namespace berth::kernel::cpu {
namespace {

// 8 words of one row. `codes`: the step's bytes.
template <Kind kKind, bool kMin, Scale kScale>
BERTH_INLINE __m256 row_step(const uint8_t* codes, const Stream& row, int64_t step, const Int8Step& x,
                             const Operands& op, __m256 acc) {
  if (is_byte(kKind)) {
    constexpr int64_t kWord = step_bytes(kKind) / 8;
    const __m256i sums = byte_sums([&](int64_t word) {
      const __m256i w = load(codes + word * kWord + (kWord - 32));
      return byte_dots(w, _mm256_abs_epi8(w), x.q + word * 32);
    });
    return add_bytes<kScale>(sums, _mm256_load_ps(x.dx), byte_scales<kScale>(codes, row, step), acc);
  }
  constexpr int kHigh = kKind == Kind::kSix ? 4 : 2;  // words of the high plane per 64 elements
  const uint32_t* high = row.high + step * kHigh * 4;
  const auto dots = [&](int part) {
    return nibble_dots<kKind>(nibble_codes<kKind>(codes + part * 32, high + part * kHigh, op), x, part);
  };
  const __m256i h01 = _mm256_hadd_epi32(dots(0), dots(1));
  const __m256i h23 = _mm256_hadd_epi32(dots(2), dots(3));
  return add_nibbles<kKind, kMin>(h01, h23, x, step_scales<kMin, kScale>(row, step, op), acc);
}

template <Kind kKind, bool kMin, Scale kScale>
void tile(const Stream row[4], const Int8Step* x, int64_t k, const Operands& op, float y[4]) {
  constexpr int64_t kBytes = step_bytes(kKind);
  const Stream a = row[0], b = row[1], c = row[2], d = row[3];
  __m256 ya = _mm256_setzero_ps(), yb = ya, yc = ya, yd = ya;
  const int64_t steps = k / 256;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = step * kBytes;
    prefetch<kKind>(a, step);
    prefetch<kKind>(b, step);
    prefetch<kKind>(c, step);
    prefetch<kKind>(d, step);
    ya = row_step<kKind, kMin, kScale>(a.codes + at, a, step, x[step], op, ya);
    yb = row_step<kKind, kMin, kScale>(b.codes + at, b, step, x[step], op, yb);
    yc = row_step<kKind, kMin, kScale>(c.codes + at, c, step, x[step], op, yc);
    yd = row_step<kKind, kMin, kScale>(d.codes + at, d, step, x[step], op, yd);
  }
  if (const int64_t tail = k % 256 * kBytes / 256; tail != 0) {  // q is 0 beyond the row, so its codes may be anything
    alignas(32) uint8_t codes[4][kBytes] = {};
    for (int r = 0; r < 4; ++r) __builtin_memcpy(codes[r], row[r].codes + steps * kBytes, static_cast<size_t>(tail));
    ya = row_step<kKind, kMin, kScale>(codes[0], a, steps, x[steps], op, ya);
    yb = row_step<kKind, kMin, kScale>(codes[1], b, steps, x[steps], op, yb);
    yc = row_step<kKind, kMin, kScale>(codes[2], c, steps, x[steps], op, yc);
    yd = row_step<kKind, kMin, kScale>(codes[3], d, steps, x[steps], op, yd);
  }
  y[0] = finish(ya);
  y[1] = finish(yb);
  y[2] = finish(yc);
  y[3] = finish(yd);
}

template <Kind kKind, bool kMin, Scale kScale>
void one_input(const RowsTask& t) {
  const Operands op = operands(t.w);
  for (int64_t i = t.quad_begin; i < t.quad_end; ++i) {
    Quad quad;
    begin_quad<kKind, kMin, kScale>(t, i, quad);
    for (int64_t m = 0; m < t.m; ++m) {
      float y[4];
      tile<kKind, kMin, kScale>(quad.row, reinterpret_cast<const Int8Step*>(t.x + m * t.x_bytes), t.w.k, op, y);
      for (int r = 0; r < 4; ++r) t.y[m * t.y_stride + quad.n[r]] = output(t, quad.n[r], y[r]);
    }
  }
}

struct OneInput {
  template <Kind kKind, bool kMin, Scale kScale>
  static void rows(const RowsTask& t) {
    one_input<kKind, kMin, kScale>(t);
  }
};

}  // namespace

RowsFn rows_int8_avx2(const WeightView& w) { return form_of<OneInput>(w); }

}  // namespace berth::kernel::cpu
