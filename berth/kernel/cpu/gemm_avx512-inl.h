// kernel/cpu/gemm_avx512-inl.h — what the two AVX-512 gemms share: 16 x 16 transposes, waiting sums, the last step.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "berth/kernel/cpu/gemm_panels-inl.h"
#include "berth/kernel/cpu/inline.h"
#include "berth/kernel/cpu/linear_kernels.h"
#include "berth/kernel/cpu/linear_lanes-inl.h"

namespace berth::kernel::cpu {
namespace {

using Vector = __m512i;
constexpr int kWidth = 16;  // dwords, or rows of a transpose
BERTH_INLINE Vector load_vector(const uint32_t* p) { return _mm512_load_si512(p); }
BERTH_INLINE void store_vector(float* p, Vector v) { _mm512_store_si512(p, v); }

// r[i] = 16 dwords of row i  ->  r[j] = dword j of 16 rows.
BERTH_INLINE void transpose16(__m512i r[16]) {
  __m512i a[16];
  BERTH_UNROLL
  for (int i = 0; i < 8; ++i) {
    a[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  BERTH_UNROLL
  for (int i = 0; i < 4; ++i) {  // r[4i + c]: in each 128-bit lane L, dword 4L + c of rows 4i .. 4i + 3
    r[4 * i + 0] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
  BERTH_UNROLL
  for (int c = 0; c < 4; ++c) {
    const __m512i x0 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88), x1 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i y0 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i y1 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    a[c] = _mm512_shuffle_i32x4(x0, y0, 0x88);       // dword c
    a[4 + c] = _mm512_shuffle_i32x4(x1, y1, 0x88);   // dword 4 + c
    a[8 + c] = _mm512_shuffle_i32x4(x0, y0, 0xdd);   // dword 8 + c
    a[12 + c] = _mm512_shuffle_i32x4(x1, y1, 0xdd);  // dword 12 + c
  }
  BERTH_UNROLL
  for (int i = 0; i < 16; ++i) r[i] = a[i];
}

// The first `bytes` (at most 64) bytes at p, then zeros.
BERTH_INLINE __m512i load_up_to(const uint8_t* p, int64_t bytes) {
  return _mm512_maskz_loadu_epi8(bytes >= 64 ? ~__mmask64{0} : (__mmask64{1} << bytes) - 1, p);
}

// 16 rows' dwords 16c .. 16c + 15; `rows`: pointers to the row starts.
BERTH_INLINE void load_transposed(const uint8_t* const rows[16], int64_t column, int64_t row_bytes, __m512i out[16]) {
  constexpr int64_t kAhead = 512;
  BERTH_UNROLL
  for (int i = 0; i < 16; ++i) {
    out[i] = load_up_to(rows[i] + column * 64, row_bytes - column * 64);
    _mm_prefetch(reinterpret_cast<const char*>(rows[i] + column * 64 + kAhead), _MM_HINT_T0);
  }
  transpose16(out);
}

// The same of rows of Q8_0 blocks: `row_bytes` of codes, two blocks a column.
BERTH_INLINE void load_transposed_blocks(const uint8_t* const rows[16], int64_t column, int64_t row_bytes,
                                         __m512i out[16]) {
  constexpr int64_t kAhead = 512;
  const bool two = row_bytes - column * 64 > 32;
  BERTH_UNROLL
  for (int i = 0; i < 16; ++i) {
    const uint8_t* const block = rows[i] + column * 2 * kQ8BlockBytes;
    const __m256i* const first = reinterpret_cast<const __m256i*>(block + 2);
    const __m256i* const second = reinterpret_cast<const __m256i*>(block + kQ8BlockBytes + 2);
    out[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(first)),
                                two ? _mm256_loadu_si256(second) : _mm256_setzero_si256(), 1);
    _mm_prefetch(reinterpret_cast<const char*>(block + kAhead), _MM_HINT_T0);
  }
  transpose16(out);
}

// What happens to the sums of a panel's outputs after the last lane: + 0, times kappa, times the row scale, + bias.
struct Finish {
  __m512 kappa, row_scale[2], bias[2];
  __mmask16 mask[2];  // outputs that exist
  bool has_kappa, has_row_scale, has_bias;

  // All outputs exist, and nothing follows kappa.
  bool plain() const { return !has_row_scale && !has_bias && mask[1] == 0xffff; }

  Finish(const GemmTask& t, int64_t n_begin, bool row_scaled)
      : kappa(_mm512_set1_ps(t.kappa)),
        has_kappa(t.kappa != 1.0f),
        has_row_scale(row_scaled),
        has_bias(t.bias != nullptr) {
    for (int v = 0; v < 2; ++v) {
      const int64_t n = n_begin + v * 16, left = t.row_count - n;
      mask[v] = left >= 16 ? static_cast<__mmask16>(0xffff)
                : left > 0 ? static_cast<__mmask16>((1u << left) - 1)
                           : static_cast<__mmask16>(0);
      bias[v] = has_bias ? _mm512_maskz_loadu_ps(mask[v], t.bias + n) : _mm512_setzero_ps();
      row_scale[v] = _mm512_set1_ps(1.0f);
      if (row_scaled) {  // only then are there scales to point at
        const float* const scales = static_cast<const float*>(t.w.scales) + t.row_begin + n;
        row_scale[v] = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask[v], scales), _mm512_set1_ps(kInt8RowScale));
      }
    }
  }
};

// Where a tile's sums of one lane go: to those that wait, or (`finish`) to the outputs.
struct TileOut {
  int merges;     // finished sums to add
  float* levels;  // of this tile: [level][kLevelStride]
  const Finish* finish;
  float* y;
  int64_t y_stride;
  int64_t rows;  // inputs that exist
};

// kLast: merges of the last lane; kBlock: inputs per level. A store to `y` waits for nothing: prefetch_outputs has
// asked.
template <int kLast, int64_t kBlock, int kTile>
BERTH_INLINE void put_lane(const __m512 (&a)[kTile][2], const TileOut& out) {
  constexpr int64_t kLevelStride = kBlock * kPanelN;
  float* const at = out.levels;
  if (out.finish == nullptr) {
    BERTH_UNROLL
    for (int i = 0; i < kTile; ++i) {
      BERTH_UNROLL
      for (int v = 0; v < 2; ++v) {
        __m512 sum = a[i][v];
        for (int c = 0; c < out.merges; ++c)
          sum = _mm512_add_ps(_mm512_load_ps(at + c * kLevelStride + i * kPanelN + v * 16), sum);
        _mm512_store_ps(at + out.merges * kLevelStride + i * kPanelN + v * 16, sum);
      }
    }
    return;
  }
  const Finish& f = *out.finish;
  float* y = out.y;
  BERTH_UNROLL
  for (int i = 0; i < kTile; ++i, y += out.y_stride) {
    if (i >= out.rows) return;
    BERTH_UNROLL
    for (int v = 0; v < 2; ++v) {
      __m512 sum = a[i][v];
      BERTH_UNROLL
      for (int c = 0; c < kLast; ++c)
        sum = _mm512_add_ps(_mm512_load_ps(at + c * kLevelStride + i * kPanelN + v * 16), sum);
      sum = _mm512_add_ps(sum, _mm512_setzero_ps());
      if (f.has_kappa) sum = _mm512_mul_ps(sum, f.kappa);
      if (f.has_row_scale) sum = _mm512_mul_ps(sum, f.row_scale[v]);
      if (f.has_bias) sum = _mm512_add_ps(sum, f.bias[v]);
      _mm512_mask_storeu_ps(y + v * 16, f.mask[v], sum);
    }
  }
}

// Asks for where `tile` inputs' outputs go: their rows lie far apart, and a store would wait for each.
BERTH_INLINE void prefetch_outputs(const GemmTask& t, int64_t m, int tile, int64_t n) {
  const float* y = t.y + m * t.y_stride + n;
  const int64_t stride = t.y_stride, rows = m + tile <= t.m ? tile : t.m - m;
  for (int64_t i = 0; i < rows; ++i) {
    __builtin_prefetch(y + i * stride, 1, 3);
    __builtin_prefetch(y + i * stride + 16, 1, 3);
  }
}

}  // namespace
}  // namespace berth::kernel::cpu
