// kernel/cpu/gemm_exact-inl.h — the exact gemm's panel, packed alike on each instruction set. For gemm_exact_avx2.cc
// and gemm_exact_avx512.cc, which bring put_word (a word of kWidth outputs as floats) and tile_lane.
//
//   panel   [position of word][element, in numerics.md's order][32 outputs], fp32
//
// Start reading at: pack_codes.
#pragma once

#include "berth/kernel/cpu/exact_forms-inl.h"
#include "berth/kernel/cpu/linear_lanes-inl.h"

namespace berth::kernel::cpu {
namespace {

constexpr int kLanes = 32;

constexpr int words_per_block(Kind kind) { return (kind == Kind::kSix ? 16 : 32) / word_elements(kind); }

// Lines between the lanes of a panel, so that 32 lanes do not begin in the same set of the first-level cache.
template <Kind kKind>
constexpr int64_t kGap = word_elements(kKind) <= 2 ? 1 : 0;

// put_word<kKind>(16 or 8 rows' word, its dword of the high planes' words, ..) for `op`'s type, found where it is used.
template <Kind kKind, typename Operands>
void pack_codes(const WeightView& w, const int64_t row[kPanelN], const LaneOrder<kLanes>& order, const Operands& op,
                float* panel) {
  constexpr int kElements = word_elements(kKind), kPlanes = high_planes(kKind);
  constexpr int64_t kColumnBytes = kWidth * 4;
  const int64_t row_bytes = order.words * 4, blocks = w.k / 32;
  const int64_t row_stride = w.in_blocks ? blocks * kQ8BlockBytes : row_bytes;
  for (int v = 0; v < kPanelN; v += kWidth) {
    const uint8_t* start[kWidth];
    for (int i = 0; i < kWidth; ++i) start[i] = w.codes + row[v + i] * row_stride;
    for (int64_t column = 0; column * kColumnBytes < row_bytes; ++column) {
      Vector t[kWidth];
      if (kKind == Kind::kQ8 && w.in_blocks)
        load_transposed_blocks(start, column, row_bytes, t);
      else
        load_transposed(start, column, row_bytes, t);
      Vector high[2] = {};
      for (int64_t j = 0; j < kWidth; ++j) {
        const int64_t word = column * kWidth + j;
        if (word >= order.words) break;
        if (kPlanes > 0 && word % 4 == 0) {
          for (int64_t b = 0; b < kPlanes; ++b) {
            alignas(64) uint32_t of_rows[kWidth];
            for (int i = 0; i < kWidth; ++i) of_rows[i] = w.high[(row[v + i] * blocks + word / 4) * kPlanes + b];
            high[b] = load_vector(of_rows);
          }
        }
        float* const out = panel + (order.position(word) * kElements + order.gap(word) * kGap<kKind>)*kPanelN + v;
        if (kPlanes == 0) {
          put_word<kKind>(t[j], 0, high, op, out);
          continue;
        }
        switch (word % 4) {  // a constant each: the shifts follow from it
          case 0:
            put_word<kKind>(t[j], 0, high, op, out);
            break;
          case 1:
            put_word<kKind>(t[j], 1, high, op, out);
            break;
          case 2:
            put_word<kKind>(t[j], 2, high, op, out);
            break;
          default:
            put_word<kKind>(t[j], 3, high, op, out);
            break;
        }
      }
    }
  }
}

// Scales by block: [block of 32 (16) elements][32 outputs].
template <Kind kKind, bool kMin>
void pack_scales(const WeightView& w, const int64_t row[kPanelN], const PanelScratch& p) {
  const int64_t n = w.k / (kKind == Kind::kSix ? 16 : 32);
  for (int v = 0; v < kPanelN; v += kWidth) {
    const RowScales<kWidth> rows = expand_rows<kWidth>(w, row + v, n, p.row);
    for (int64_t column = 0; column * kWidth < n; ++column) {
      Vector s[kWidth], m[kWidth];
      load_transposed(rows.s, column, n * 4, s);
      if (kMin) load_transposed(rows.m, column, n * 4, m);
      for (int64_t j = 0; j < kWidth && column * kWidth + j < n; ++j) {
        store_vector(p.scales + (column * kWidth + j) * kPanelN + v, s[j]);
        if (kMin) store_vector(p.minima + (column * kWidth + j) * kPanelN + v, m[j]);
      }
    }
  }
}

}  // namespace
}  // namespace berth::kernel::cpu
