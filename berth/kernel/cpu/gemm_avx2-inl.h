// kernel/cpu/gemm_avx2-inl.h — what the two AVX2 gemms share: 8 x 8 transposes, waiting sums, the last step.
//
// Panels, tiles and scratch are those of linear_kernels.h; a register tile covers 8 or 16 of a panel's 32 outputs.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "berth/kernel/cpu/gemm_panels-inl.h"
#include "berth/kernel/cpu/inline.h"
#include "berth/kernel/cpu/linear_kernels.h"
#include "berth/kernel/cpu/linear_lanes-inl.h"

namespace berth::kernel::cpu {
namespace {

using Vector = __m256i;
constexpr int kWidth = 8;  // dwords, or rows of a transpose
BERTH_INLINE Vector load_vector(const uint32_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
BERTH_INLINE void store_vector(float* p, Vector v) { _mm256_store_ps(p, _mm256_castsi256_ps(v)); }

// r[i] = 8 dwords of row i  ->  r[j] = dword j of 8 rows.
BERTH_INLINE void transpose8(__m256i r[8]) {
  __m256i a[8], b[8];
  BERTH_UNROLL
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  BERTH_UNROLL
  for (int i = 0; i < 2; ++i) {
    b[4 * i + 0] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
  BERTH_UNROLL
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
  }
}

// 8 rows' dwords 8c .. 8c + 7; zeros beyond `row_bytes`.
BERTH_INLINE void load_transposed(const uint8_t* const rows[8], int64_t column, int64_t row_bytes, __m256i out[8]) {
  constexpr int64_t kAhead = 512;
  const int64_t left = row_bytes - column * 32;
  for (int i = 0; i < 8; ++i) {
    const uint8_t* p = rows[i] + column * 32;
    _mm_prefetch(reinterpret_cast<const char*>(p + kAhead), _MM_HINT_T0);
    if (left >= 32) {
      out[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    } else {
      alignas(32) uint8_t part[32] = {};
      __builtin_memcpy(part, p, static_cast<size_t>(left));
      out[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(part));
    }
  }
  transpose8(out);
}

// The same of rows of Q8_0 blocks, one a column.
BERTH_INLINE void load_transposed_blocks(const uint8_t* const rows[8], int64_t column, int64_t /*row_bytes*/,
                                         __m256i out[8]) {
  for (int i = 0; i < 8; ++i) {
    const uint8_t* const block = rows[i] + column * kQ8BlockBytes;
    out[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
    _mm_prefetch(reinterpret_cast<const char*>(block + 512), _MM_HINT_T0);
  }
  transpose8(out);
}

// One register of a tile's sums of a lane: added to what waits, put where the next lanes find it.
//   levels: [level][kBlockM][kPanelN]; `at`: this register's place in level 0
BERTH_INLINE void put_sum(__m256 sum, int merge_count, float* at) {
  constexpr int64_t kLevel = int64_t{kBlockM} * kPanelN;
  for (int c = 0; c < merge_count; ++c) sum = _mm256_add_ps(_mm256_loadu_ps(at + c * kLevel), sum);
  _mm256_storeu_ps(at + merge_count * kLevel, sum);
}

// y = sum + 0, times kappa, times the row scale, plus bias, for `m_count` inputs and up to 32 outputs.
inline void write_outputs(const GemmTask& t, const float* sums, int64_t m_begin, int64_t m_count, int64_t n_begin,
                          bool row_scaled) {
  const int64_t count = t.row_count - n_begin < kPanelN ? t.row_count - n_begin : int64_t{kPanelN};
  float row_scale[kPanelN];
  for (int64_t i = 0; i < count; ++i)
    row_scale[i] = row_scaled ? static_cast<const float*>(t.w.scales)[t.row_begin + n_begin + i] * kInt8RowScale : 1.0f;
  for (int64_t m = 0; m < m_count; ++m) {
    float* y = t.y + (m_begin + m) * t.y_stride + n_begin;
    for (int64_t i = 0; i < count; ++i) {
      float v = sums[m * kPanelN + i] + 0.0f;
      if (t.kappa != 1.0f) v = v * t.kappa;
      if (row_scaled) v = v * row_scale[i];
      if (t.bias != nullptr) v = v + t.bias[n_begin + i];
      y[i] = v;
    }
  }
}

}  // namespace
}  // namespace berth::kernel::cpu
