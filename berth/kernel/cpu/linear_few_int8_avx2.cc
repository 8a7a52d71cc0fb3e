// kernel/cpu/linear_few_int8_avx2.cc — y = W x in int8 mode (numerics.md 5) with AVX2, two inputs and more: a code is
// decoded once for all inputs.
//
// A step of 8 words of one row is decoded into 8 registers, which then meet one input after the other, whose sums wait
// in scratch. Four rows at a time share the inputs' step in the first-level cache.
//
// Start reading at: step_inputs.
#include "berth/kernel/cpu/linear_groups-inl.h"
#include "berth/kernel/cpu/linear_int8_avx2-inl.h"

namespace berth::kernel::cpu {
namespace {

// Where the sums of four rows and all inputs stand: [input][row][8].
constexpr int64_t kFewSums = 4 * 8;

// Step `step` of one of four rows, all inputs; `codes`: its bytes, `to`: its sums of the first input.
template <Kind kKind, bool kMin, Scale kScale>
BERTH_INLINE void step_inputs(const uint8_t* codes, const Stream& row, int64_t step, const RowsTask& t,
                              const Operands& op, float* to) {
  const int64_t x_bytes = t.x_bytes, inputs = t.m;  // (stores below might be to `t`, for all the compiler knows)
  const std::byte* input = t.x + step * static_cast<int64_t>(sizeof(Int8Step));
  if constexpr (is_byte(kKind)) {
    constexpr int64_t kWord = step_bytes(kKind) / 8;
    __m256i w[8], w_abs[8];
    for (int64_t word = 0; word < 8; ++word) {
      w[word] = load(codes + word * kWord + (kWord - 32));
      w_abs[word] = _mm256_abs_epi8(w[word]);
    }
    const __m256 s = byte_scales<kScale>(codes, row, step);
    for (int64_t m = 0; m < inputs; ++m, input += x_bytes, to += kFewSums) {
      const Int8Step& x = *reinterpret_cast<const Int8Step*>(input);
      const __m256i sums = byte_sums([&](int64_t word) { return byte_dots(w[word], w_abs[word], x.q + word * 32); });
      _mm256_store_ps(to, add_bytes<kScale>(sums, _mm256_load_ps(x.dx), s, _mm256_load_ps(to)));
    }
  } else {
    constexpr int kHigh = kKind == Kind::kSix ? 4 : 2;  // words of the high plane per 64 elements
    const uint32_t* const high = row.high + step * kHigh * 4;
    const Nibbles c0 = nibble_codes<kKind>(codes, high, op);
    const Nibbles c1 = nibble_codes<kKind>(codes + 32, high + kHigh, op);
    const Nibbles c2 = nibble_codes<kKind>(codes + 64, high + 2 * kHigh, op);
    const Nibbles c3 = nibble_codes<kKind>(codes + 96, high + 3 * kHigh, op);
    const StepScales scales = step_scales<kMin, kScale>(row, step, op);
    for (int64_t m = 0; m < inputs; ++m, input += x_bytes, to += kFewSums) {
      const Int8Step& x = *reinterpret_cast<const Int8Step*>(input);
      const __m256i h01 = _mm256_hadd_epi32(nibble_dots<kKind>(c0, x, 0), nibble_dots<kKind>(c1, x, 1));
      const __m256i h23 = _mm256_hadd_epi32(nibble_dots<kKind>(c2, x, 2), nibble_dots<kKind>(c3, x, 3));
      _mm256_store_ps(to, add_nibbles<kKind, kMin>(h01, h23, x, scales, _mm256_load_ps(to)));
    }
  }
}

// Four rows, all inputs: their sums.
template <Kind kKind, bool kMin, Scale kScale>
__attribute__((noinline)) void few_inputs(const Stream row[4], const RowsTask& t, const Operands& op, float* sums) {
  constexpr int64_t kBytes = step_bytes(kKind);
  const int64_t steps = t.w.k / 256;
  for (int64_t i = 0; i < t.m * kFewSums; i += 8) _mm256_store_ps(sums + i, _mm256_setzero_ps());
  for (int64_t step = 0; step < steps; ++step) {
    // Each row's loop over the inputs has branches of its own: with one loop for all, 3 inputs took 5 % longer.
    BERTH_UNROLL
    for (int r = 0; r < 4; ++r) {
      prefetch<kKind>(row[r], step);
      step_inputs<kKind, kMin, kScale>(row[r].codes + step * kBytes, row[r], step, t, op, sums + r * 8);
    }
  }
  if (const int64_t tail = t.w.k % 256 * kBytes / 256; tail != 0) {  // q is 0 beyond the row
    for (int r = 0; r < 4; ++r) {
      alignas(32) uint8_t codes[kBytes] = {};
      __builtin_memcpy(codes, row[r].codes + steps * kBytes, static_cast<size_t>(tail));
      step_inputs<kKind, kMin, kScale>(codes, row[r], steps, t, op, sums + r * 8);
    }
  }
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
    for (int64_t m = 0; m < t.m; ++m) {
      for (int r = 0; r < 4; ++r)
        t.y[m * t.y_stride + quad.n[r]] = output(t, quad.n[r], finish(_mm256_load_ps(sums + m * kFewSums + r * 8)));
    }
  }
}

struct FewInputs {
  template <Kind kKind, bool kMin, Scale kScale>
  static void rows(const RowsTask& t) {
    by_groups(t, kGroup, rows_of_group<kKind, kMin, kScale>);
  }
};

}  // namespace

RowsFn few_int8_avx2(const WeightView& w) { return form_of<FewInputs>(w); }

}  // namespace berth::kernel::cpu
