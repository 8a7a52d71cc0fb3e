// kernel/cpu/linear_int8_avx512.cc — y = W x in int8 mode (numerics.md 5) with VNNI, one input: each code meets it
// once.
//
// Four rows at a time, a quarter of the task's rows apart: four long streams, which saturate memory where four
// neighbouring rows defeat the prefetcher (docs/kernels.md).
//
// Start reading at: pair_step.
#include "berth/kernel/cpu/linear_int8_avx512-inl.h"

namespace berth::kernel::cpu {
namespace {

// 8 words of the rows A and B added to their 16 lanes.
template <Kind kKind, bool kMin, Scale kScale, Part kPart>
BERTH_INLINE __m512 pair_step(const Stream& a, const Stream& b, int64_t step, const Int8Step& x, const Operands& op,
                              int64_t words, __m512 acc) {
  const PairScales scales = pair_scales<kKind, kMin, kScale, kPart>(a, b, step, op, words);
  if constexpr (is_byte(kKind)) {
    const auto sums = [&](const Stream& row) BERTH_FORCED {
      __m512i v[4];
      for (int i = 0; i < 4; ++i) v[i] = byte_dots(byte_codes<kKind, kPart>(row, step, i, words), i, x);
      return row_sums(v[0], v[1], v[2], v[3]);
    };
    const __m512i ra = sums(a), rb = sums(b);
    return add_bytes<kScale>(ra, rb, x, scales, acc);
  } else {
    const __m512i a0 = nibble_dots(nibble_codes<kKind, kPart>(a, step, 0, op, words), 0, x);
    const __m512i a1 = nibble_dots(nibble_codes<kKind, kPart>(a, step, 1, op, words), 1, x);
    const __m512i b0 = nibble_dots(nibble_codes<kKind, kPart>(b, step, 0, op, words), 0, x);
    const __m512i b1 = nibble_dots(nibble_codes<kKind, kPart>(b, step, 1, op, words), 1, x);
    return add_nibbles<kKind, kMin>(a0, a1, b0, b1, x, scales, op, acc);
  }
}

struct OneInput {
  template <Kind kKind, bool kMin, Scale kScale>
  static void rows(const RowsTask& t) {
    const Operands op = operands(t.w);
    for (int64_t i = t.quad_begin; i < t.quad_end; ++i) {
      Quad quad;
      begin_quad<kKind, kMin, kScale>(t, i, quad);
      for (int64_t m = 0; m < t.m; ++m) one_input<kKind, kMin, kScale>(t, quad, m, op);
    }
  }

 private:
  template <Kind kKind, bool kMin, Scale kScale>
  BERTH_INLINE static void one_input(const RowsTask& t, const Quad& quad, int64_t m, const Operands& op) {
    const Int8Step* const x = reinterpret_cast<const Int8Step*>(t.x + m * t.x_bytes);
    const Stream a = quad.row[0], b = quad.row[1], c = quad.row[2], d = quad.row[3];
    __m512 ab = _mm512_setzero_ps(), cd = _mm512_setzero_ps();
    const int64_t steps = t.w.k / 256;
    for (int64_t step = 0; step < steps; ++step) {
      prefetch<kKind>(a, step);
      prefetch<kKind>(b, step);
      prefetch<kKind>(c, step);
      prefetch<kKind>(d, step);
      ab = pair_step<kKind, kMin, kScale, Part::kAll>(a, b, step, x[step], op, 8, ab);
      cd = pair_step<kKind, kMin, kScale, Part::kAll>(c, d, step, x[step], op, 8, cd);
    }
    with_rest(t.w.k, [&]<Part kPart>(int64_t words) BERTH_FORCED {
      ab = pair_step<kKind, kMin, kScale, kPart>(a, b, steps, x[steps], op, words, ab);
      cd = pair_step<kKind, kMin, kScale, kPart>(c, d, steps, x[steps], op, words, cd);
    });
    put<kKind, kScale>(t, quad, m, ab, cd);
  }
};

}  // namespace

RowsFn rows_int8_avx512(const WeightView& w) { return form_of<OneInput>(w); }

}  // namespace berth::kernel::cpu
