// kernel/cpu/linear_quads_avx512-inl.h — four rows of a weight's planes at a time, a quarter of the task's rows apart,
// and where their scales are: what the AVX-512 loops for few inputs have in common in both modes. For
// linear_exact_avx512-inl.h and linear_int8_avx512-inl.h.
//
// Start reading at: begin_quad.
#pragma once

#include <immintrin.h>

#include "berth/kernel/cpu/inline.h"
#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

// Where a loop takes scales from: nowhere (unscaled, or a row's scale at the end), the expanded buffer (unusual block
// sizes, fp8), fp32 absmax of 64, nested absmax of 64, fp16 of 32, e8m0 of 32, Q4_K's and Q5_K's 12 bytes, Q6_K's 16,
// before the codes of their block. Expanding first costs a fifth of the speed.
enum class Scale { kNone, kBuffer, kAbsmax, kNested, kHalf, kE8M0, kK45, kK6, kInBlock };

constexpr int64_t kPrefetch = 2048;  // bytes ahead in each of the four streams

// One row's place in the weight planes; s, m, sub as its Scale has them. kNested: `block` is the row's first block.
struct Stream {
  const uint8_t* codes;
  const uint32_t* high;
  const uint8_t* s;
  const uint8_t* m;
  const uint8_t* sub;
  int64_t block;
};

constexpr float kInt8RowScale = 0x1.020408p-7f;  // 0x3c010204

// Bytes of a row in the planes of its scales: those of s, m and sub.
struct ScaleBytes {
  int64_t s, m, sub;
};
template <bool kMin, Scale kScale>
ScaleBytes scale_bytes(int64_t k) {
  switch (kScale) {
    case Scale::kAbsmax:
      return {k / 16, 0, 0};
    case Scale::kNested:
      return {k / 64, 0, 0};
    case Scale::kHalf:
      return {k / 16, kMin ? k / 16 : 0, 0};
    case Scale::kE8M0:
      return {k / 32, 0, 0};
    case Scale::kK45:
      return {k / 128, k / 128, k / 256 * 12};
    case Scale::kK6:
      return {k / 128, 0, k / 16};
    default:
      return {0, 0, 0};
  }
}

// A later row's scales: 256 bytes or a row ahead in this stream.
BERTH_INLINE void prefetch_scales(const uint8_t* p, int64_t bytes) {
  const int64_t ahead = bytes < 256 ? 256 : bytes;
  for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(reinterpret_cast<const char*>(p + ahead + at), _MM_HINT_T0);
}

// Four rows, a quarter of the task's rows apart: four long streams.
struct Quad {
  Stream row[4];
  int64_t n[4];
};
// Quad `i` of the task. `row_bytes` of codes, `high_words` of high planes per row.
template <bool kMin, Scale kScale>
BERTH_INLINE void begin_quad(const RowsTask& t, int64_t i, int64_t row_bytes, int64_t high_words, Quad& quad) {
  const int64_t k = t.w.k, words = k / 32;
  const int64_t buffer_floats = (words + 7) / 8 * 8;
  const ScaleBytes bytes = scale_bytes<kMin, kScale>(k);
  const int64_t quarter = RowsTask::quads(t.row_count);
  for (int r = 0; r < 4; ++r) {
    int64_t& n = quad.n[r];
    n = i + r * quarter;
    if (n >= t.row_count) n = t.row_count - 1;  // again: the same bits to the same place
    const int64_t row = t.w.stored_row(t.row_begin + n);
    Stream& stream = quad.row[r];
    stream = {t.w.codes + row * row_bytes,
              t.w.high + row * high_words,
              static_cast<const uint8_t*>(t.w.scales) + row * bytes.s,
              reinterpret_cast<const uint8_t*>(t.w.mins) + row * bytes.m,
              t.w.sub_scales + row * bytes.sub,
              kScale == Scale::kNested ? row * (k / 64) : 0};
    if (kScale == Scale::kBuffer) {
      float* const s = reinterpret_cast<float*>(t.scratch) + r * buffer_floats;
      expand_scales_avx2(t.w, row, s, nullptr);
      stream.s = reinterpret_cast<const uint8_t*>(s);
    }
    prefetch_scales(stream.s, bytes.s);
    if (bytes.m != 0) prefetch_scales(stream.m, bytes.m);
    if (bytes.sub != 0) prefetch_scales(stream.sub, bytes.sub);
  }
}

}  // namespace
}  // namespace berth::kernel::cpu
