// kernel/cpu/gemm_panels-inl.h — what the gemms of both instruction sets do alike: where a panel's parts lie in a
// thread's scratch, and the expanded scales of rows to be transposed. For gemm_avx2-inl.h and gemm_avx512-inl.h.
#pragma once

#include <cstdint>

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

constexpr float kInt8RowScale = 0x1.020408p-7f;  // 0x3c010204

struct PanelScratch {
  std::byte* weights;
  float* scales;  // [blocks][kPanelN]
  float* minima;
  float* row;  // one row's scales and minima before they are dealt out
  float* levels;
};
inline PanelScratch panel_scratch(std::byte* scratch, int64_t k) {
  const int64_t padded = (k + 255) / 256 * 256, scales = padded / 16 * kPanelN;
  PanelScratch p;
  p.weights = scratch;
  p.scales = reinterpret_cast<float*>(scratch + padded * kPanelN * 4 + kPanelGaps);
  p.minima = p.scales + scales;
  p.row = p.minima + scales;
  p.levels = p.row + scales;
  return p;
}

// The expanded scales (and minima) of kRows rows, as bytes for load_transposed. `n` scales a row.
template <int kRows>
struct RowScales {
  const uint8_t* s[kRows];
  const uint8_t* m[kRows];
};
template <int kRows>
inline RowScales<kRows> expand_rows(const WeightView& w, const int64_t* row, int64_t n, float* buffer) {
  const int64_t stride = (n + kRows - 1) / kRows * kRows;
  RowScales<kRows> rows;
  for (int64_t i = 0; i < kRows; ++i) {
    float* const s = buffer + i * stride;
    float* const m = buffer + (kRows + i) * stride;
    expand_scales_avx2(w, row[i], s, m);
    rows.s[i] = reinterpret_cast<const uint8_t*>(s);
    rows.m[i] = reinterpret_cast<const uint8_t*>(m);
  }
  return rows;
}

}  // namespace
}  // namespace berth::kernel::cpu
