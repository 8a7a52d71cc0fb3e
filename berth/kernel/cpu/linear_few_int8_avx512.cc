// kernel/cpu/linear_few_int8_avx512.cc — y = W x in int8 mode (numerics.md 5) with VNNI, two inputs and more: a code is
// decoded once for all inputs.
//
// A step of 8 words of two rows is decoded into 8 registers, which then meet one input after the other, whose sums wait
// in scratch. Four rows at a time share the inputs' step in the first-level cache.
//
// Start reading at: step_inputs.
#include "berth/kernel/cpu/linear_groups-inl.h"
#include "berth/kernel/cpu/linear_int8_avx512-inl.h"

namespace berth::kernel::cpu {
namespace {

// Where the sums of two pairs of rows and all inputs stand: [input][pair][16].
constexpr int64_t kFewSums = 2 * 16;

// Step `step` of the rows A and B, all inputs; `to`: their sums of the first input.
template <Kind kKind, bool kMin, Scale kScale, Part kPart>
BERTH_INLINE void step_inputs(const Stream& a, const Stream& b, int64_t step, int64_t words, const RowsTask& t,
                              const Operands& op, float* to) {
  const int64_t x_bytes = t.x_bytes, inputs = t.m;  // (stores below might be to `t`, for all the compiler knows)
  const std::byte* input = t.x + step * static_cast<int64_t>(sizeof(Int8Step));
  const PairScales scales = pair_scales<kKind, kMin, kScale, kPart>(a, b, step, op, words);
  if constexpr (is_byte(kKind)) {
    __m512i of_a[4], of_b[4];
    for (int i = 0; i < 4; ++i) {
      of_a[i] = byte_codes<kKind, kPart>(a, step, i, words);
      of_b[i] = byte_codes<kKind, kPart>(b, step, i, words);
    }
    for (int64_t m = 0; m < inputs; ++m, input += x_bytes, to += kFewSums) {
      const Int8Step& x = *reinterpret_cast<const Int8Step*>(input);
      const __m512i ra = row_sums(byte_dots(of_a[0], 0, x), byte_dots(of_a[1], 1, x), byte_dots(of_a[2], 2, x),
                                  byte_dots(of_a[3], 3, x));
      const __m512i rb = row_sums(byte_dots(of_b[0], 0, x), byte_dots(of_b[1], 1, x), byte_dots(of_b[2], 2, x),
                                  byte_dots(of_b[3], 3, x));
      _mm512_store_ps(to, add_bytes<kScale>(ra, rb, x, scales, _mm512_load_ps(to)));
    }
  } else {
    const Nibbles a0 = nibble_codes<kKind, kPart>(a, step, 0, op, words);
    const Nibbles a1 = nibble_codes<kKind, kPart>(a, step, 1, op, words);
    const Nibbles b0 = nibble_codes<kKind, kPart>(b, step, 0, op, words);
    const Nibbles b1 = nibble_codes<kKind, kPart>(b, step, 1, op, words);
    for (int64_t m = 0; m < inputs; ++m, input += x_bytes, to += kFewSums) {
      const Int8Step& x = *reinterpret_cast<const Int8Step*>(input);
      const __m512 sums = add_nibbles<kKind, kMin>(nibble_dots(a0, 0, x), nibble_dots(a1, 1, x), nibble_dots(b0, 0, x),
                                                   nibble_dots(b1, 1, x), x, scales, op, _mm512_load_ps(to));
      _mm512_store_ps(to, sums);
    }
  }
}

// Four rows, all inputs: their sums.
template <Kind kKind, bool kMin, Scale kScale>
__attribute__((noinline)) void few_inputs(const Stream row[4], const RowsTask& t, const Operands& op, float* sums) {
  const int64_t steps = t.w.k / 256;
  for (int64_t i = 0; i < t.m * kFewSums; i += 16) _mm512_store_ps(sums + i, _mm512_setzero_ps());
  for (int64_t step = 0; step < steps; ++step) {
    // Each pair's loop over the inputs has branches of its own.
    BERTH_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      prefetch<kKind>(row[2 * pair], step);
      prefetch<kKind>(row[2 * pair + 1], step);
      step_inputs<kKind, kMin, kScale, Part::kAll>(row[2 * pair], row[2 * pair + 1], step, 8, t, op, sums + pair * 16);
    }
  }
  with_rest(t.w.k, [&]<Part kPart>(int64_t words) BERTH_FORCED {
    for (int pair = 0; pair < 2; ++pair)
      step_inputs<kKind, kMin, kScale, kPart>(row[2 * pair], row[2 * pair + 1], steps, words, t, op, sums + pair * 16);
  });
}

constexpr int64_t kGroup = 48;  // inputs

// At most kGroup inputs.
template <Kind kKind, bool kMin, Scale kScale>
void rows_of_group(const RowsTask& t) {
  const Operands op = operands(t.w);
  float* const sums = reinterpret_cast<float*>(t.scratch + rows_scales_bytes(t.w.k));
  for (int64_t i = t.quad_begin; i < t.quad_end; ++i) {
    Quad quad;
    begin_quad<kKind, kMin, kScale>(t, i, quad);
    few_inputs<kKind, kMin, kScale>(quad.row, t, op, sums);
    for (int64_t m = 0; m < t.m; ++m)
      put<kKind, kScale>(t, quad, m, _mm512_load_ps(sums + m * kFewSums), _mm512_load_ps(sums + m * kFewSums + 16));
  }
}

struct FewInputs {
  template <Kind kKind, bool kMin, Scale kScale>
  static void rows(const RowsTask& t) {
    by_groups(t, kGroup, rows_of_group<kKind, kMin, kScale>);
  }
};

}  // namespace

RowsFn few_int8_avx512(const WeightView& w) { return form_of<FewInputs>(w); }

}  // namespace berth::kernel::cpu
