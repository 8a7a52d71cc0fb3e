// kernel/cpu/gemm_exact_avx2.cc — y = W x in exact mode (numerics.md 1) with AVX2, many inputs: lanes are 8 outputs.
//
// As gemm_exact_avx512.cc (panel, tile and order are explained there), with register tiles of 6 inputs x 16 outputs: 12
// accumulators, two registers of weights, one broadcast. Scaled formats keep the 12 products p there and the lane's
// sums in L1, touched once per word of 8.
//
// Start reading at: tile_lane.
#include "berth/kernel/cpu/gemm_avx2-inl.h"
#include "berth/kernel/cpu/gemm_exact-inl.h"

namespace berth::kernel::cpu {
namespace {

// One lane of kTile inputs x 16 outputs of a panel; the pointers are at the first of the 16.
template <Kind kKind, bool kMin, int kTile>
void tile_lane(const float* panel, const float* scales, const float* minima, const float* x, const float* t,
               int64_t words, int64_t lane, int merge_count, float* levels) {
  constexpr int kElements = word_elements(kKind);
  __m256 p[kTile][2];
  if (!is_scaled(kKind)) {
    BERTH_UNROLL
    for (int i = 0; i < kTile; ++i) p[i][0] = p[i][1] = _mm256_setzero_ps();
    for (int64_t e = 0; e < words * kElements; ++e, panel += kPanelN, x += kTile) {
      const __m256 w0 = _mm256_load_ps(panel), w1 = _mm256_load_ps(panel + 8);
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) {
        const __m256 b = _mm256_broadcast_ss(x + i);
        p[i][0] = _mm256_fmadd_ps(w0, b, p[i][0]);
        p[i][1] = _mm256_fmadd_ps(w1, b, p[i][1]);
      }
    }
    BERTH_UNROLL
    for (int i = 0; i < kTile; ++i) {
      put_sum(p[i][0], merge_count, levels + i * kPanelN);
      put_sum(p[i][1], merge_count, levels + i * kPanelN + 8);
    }
    return;
  }
  alignas(32) float a[kTile][16] = {};
  const float* s = scales + lane / words_per_block(kKind) * kPanelN;
  const float* mn = minima + lane / words_per_block(kKind) * kPanelN;
  constexpr int64_t kStep = int64_t{kLanes} / words_per_block(kKind) * kPanelN;  // scales from one word to the next
  for (int64_t word = 0; word < words; ++word, s += kStep, mn += kStep) {
    {
      const __m256 w0 = _mm256_load_ps(panel), w1 = _mm256_load_ps(panel + 8);
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) {
        const __m256 b = _mm256_broadcast_ss(x + i);
        p[i][0] = _mm256_mul_ps(w0, b);
        p[i][1] = _mm256_mul_ps(w1, b);
      }
    }
    BERTH_UNROLL
    for (int e = 1; e < kElements; ++e) {
      const __m256 w0 = _mm256_load_ps(panel + e * kPanelN), w1 = _mm256_load_ps(panel + e * kPanelN + 8);
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) {
        const __m256 b = _mm256_broadcast_ss(x + e * kTile + i);
        p[i][0] = _mm256_fmadd_ps(w0, b, p[i][0]);
        p[i][1] = _mm256_fmadd_ps(w1, b, p[i][1]);
      }
    }
    panel += kElements * kPanelN;
    x += kElements * kTile;
    const __m256 s0 = _mm256_load_ps(s), s1 = _mm256_load_ps(s + 8);
    BERTH_UNROLL
    for (int i = 0; i < kTile; ++i) {
      __m256 a0 = _mm256_fmadd_ps(p[i][0], s0, _mm256_load_ps(a[i]));
      __m256 a1 = _mm256_fmadd_ps(p[i][1], s1, _mm256_load_ps(a[i] + 8));
      if (kMin) {
        const __m256 sum = _mm256_broadcast_ss(t + word * kTile + i);
        a0 = _mm256_fmadd_ps(_mm256_load_ps(mn), sum, a0);
        a1 = _mm256_fmadd_ps(_mm256_load_ps(mn + 8), sum, a1);
      }
      _mm256_store_ps(a[i], a0);
      _mm256_store_ps(a[i] + 8, a1);
    }
  }
  BERTH_UNROLL
  for (int i = 0; i < kTile; ++i) {
    put_sum(_mm256_load_ps(a[i]), merge_count, levels + i * kPanelN);
    put_sum(_mm256_load_ps(a[i] + 8), merge_count, levels + i * kPanelN + 8);
  }
}

// --- packing a panel ---

template <int kByte>
BERTH_INLINE __m256 byte_float(__m256i v, __m256 offset) {  // 0x4B0000uu = 2^23 + uu
  const __m256i byte = _mm256_and_si256(_mm256_srli_epi32(v, 8 * kByte), _mm256_set1_epi32(255));
  return _mm256_sub_ps(_mm256_castsi256_ps(_mm256_or_si256(byte, _mm256_set1_epi32(0x4b000000))), offset);
}

template <int kByte>
BERTH_INLINE __m256 fp8_float(__m256i w) {  // exponent and mantissa to bits 20..26: the value * 2^-120
  const __m256i top = _mm256_slli_epi32(w, 24 - 8 * kByte);
  const __m256i bits = _mm256_and_si256(_mm256_srai_epi32(top, 4), _mm256_set1_epi32(static_cast<int>(0x87f00000u)));
  return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
}

struct Operands {
  __m256 book[2];  // codes 0..7, 8..15
  __m256 offset;
};

Operands operands(const WeightView& w) {
  alignas(32) float book[16];
  for (int q = 0; q < 16; ++q)
    book[q] = w.book != nullptr ? w.book[q] : static_cast<float>(w.codec == Codec::kQ4_0 ? q - 8 : q);
  const int offset = w.codec == Codec::kQ5_0 ? 16 : w.codec == Codec::kQ6_K ? 32 : 0;
  return {{_mm256_load_ps(book), _mm256_load_ps(book + 8)}, _mm256_set1_ps(0x1p23f + static_cast<float>(offset))};
}

// Nibble kIndex of 8 words: two permutes by its low three bits, chosen by bit 3 moved to the sign.
template <int kIndex>
BERTH_INLINE __m256 look_up(__m256i w, const Operands& op) {
  const __m256i index = _mm256_srli_epi32(w, 4 * kIndex);
  const __m256 choose = _mm256_castsi256_ps(_mm256_slli_epi32(w, 28 - 4 * kIndex));
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(op.book[0], index), _mm256_permutevar8x32_ps(op.book[1], index),
                          choose);
}

// Nibbles of 8 words with bits 4 (and 5) of element t of the half in bit `first` + t of `high`.
template <int kIndex, int kPlanes>
BERTH_INLINE __m256 assemble(__m256i w, int dword, const __m256i* high, const Operands& op) {
  const int bit = 4 * dword + kIndex / 2 + (kIndex % 2 == 0 ? 16 : 0);  // even nibble indices: odd elements
  __m256i code = _mm256_and_si256(_mm256_srli_epi32(w, 4 * kIndex), _mm256_set1_epi32(15));
  for (int b = 0; b < kPlanes; ++b) {
    const __m256i set = _mm256_and_si256(_mm256_srl_epi32(high[b], _mm_cvtsi32_si128(bit)), _mm256_set1_epi32(1));
    code = _mm256_or_si256(code, _mm256_slli_epi32(set, 4 + b));
  }
  return byte_float<0>(code, op.offset);
}

// The word of 8 outputs as kElements vectors, kPanelN apart.
template <Kind kKind>
BERTH_INLINE void put_word(__m256i w, int dword, const __m256i* high, const Operands& op, float* out) {
  const auto put = [out](int e, __m256 v) { _mm256_store_ps(out + e * kPanelN, v); };
  if (kKind == Kind::kF32) {
    put(0, _mm256_castsi256_ps(w));
  } else if (kKind == Kind::kBF16) {
    put(0, _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)));
    put(1, _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xffff0000u)))));
  } else if (kKind == Kind::kF16) {
    const __m256i halves = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                                            0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i sorted = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(w, halves), 0xd8);
    put(0, _mm256_cvtph_ps(_mm256_castsi256_si128(sorted)));
    put(1, _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1)));
  } else if (kKind == Kind::kInt8 || kKind == Kind::kQ8) {
    w = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
    const __m256 offset = _mm256_set1_ps(0x1p23f + 128);
    put(0, byte_float<0>(w, offset));
    put(1, byte_float<1>(w, offset));
    put(2, byte_float<2>(w, offset));
    put(3, byte_float<3>(w, offset));
  } else if (kKind == Kind::kFP8) {
    put(0, fp8_float<0>(w));
    put(1, fp8_float<1>(w));
    put(2, fp8_float<2>(w));
    put(3, fp8_float<3>(w));
  } else if (kKind == Kind::kBook) {
    put(0, look_up<0>(w, op));
    put(1, look_up<1>(w, op));
    put(2, look_up<2>(w, op));
    put(3, look_up<3>(w, op));
    put(4, look_up<4>(w, op));
    put(5, look_up<5>(w, op));
    put(6, look_up<6>(w, op));
    put(7, look_up<7>(w, op));
  } else {
    constexpr int kPlanes = kKind == Kind::kSix ? 2 : 1;
    put(0, assemble<0, kPlanes>(w, dword, high, op));
    put(1, assemble<1, kPlanes>(w, dword, high, op));
    put(2, assemble<2, kPlanes>(w, dword, high, op));
    put(3, assemble<3, kPlanes>(w, dword, high, op));
    put(4, assemble<4, kPlanes>(w, dword, high, op));
    put(5, assemble<5, kPlanes>(w, dword, high, op));
    put(6, assemble<6, kPlanes>(w, dword, high, op));
    put(7, assemble<7, kPlanes>(w, dword, high, op));
  }
}

struct Gemm {
  template <Kind kKind, bool kMin>
  static void rows(const GemmTask& t);
};

template <Kind kKind, bool kMin>
void Gemm::rows(const GemmTask& t) {
  constexpr int kElements = word_elements(kKind);
  const LaneOrder<kLanes> order(t.w.k / kElements);
  const Operands op = operands(t.w);
  const PanelScratch p = panel_scratch(t.scratch, t.w.k);
  float* const panel = reinterpret_cast<float*>(p.weights);
  const Tiling tiles = tiling(t.m);
  const int64_t padded_m = tiles.padded();
  const int64_t x_floats = t.w.k + (kElements == 8 ? t.w.k / 8 : 0);  // per input
  for (int64_t n = 0; n < t.row_count; n += kPanelN) {
    int64_t row[kPanelN];
    for (int i = 0; i < kPanelN; ++i)
      row[i] = t.w.stored_row(t.row_begin + (n + i < t.row_count ? n + i : t.row_count - 1));
    pack_codes<kKind>(t.w, row, order, op, panel);
    if (is_scaled(kKind)) pack_scales<kKind, kMin>(t.w, row, p);
    for (int64_t block = 0; block < padded_m;) {
      int64_t end = block;
      while (end < padded_m && end + tiles.tile_at(end) <= block + kBlockM) end += tiles.tile_at(end);
      for (int i = 0; i < kLanes; ++i) {
        const int64_t first = order.first[i], count = order.first[i + 1] - first;
        for (int v = 0; v < kPanelN; v += 16) {
          const float* w = panel + (first * kElements + i * kGap<kKind>)*kPanelN + v;
          for (int64_t m = block; m < end;) {
            const int tile = tiles.tile_at(m);
            const float* x = reinterpret_cast<const float*>(t.x) + m * x_floats;
            const float* sums = x + (t.w.k + first) * tile;
            x += first * kElements * tile;
            float* const levels = p.levels + (m - block) * kPanelN + v;
            with_tile(tile, [&](auto n_inputs) {
              tile_lane<kKind, kMin, n_inputs()>(w, p.scales + v, p.minima + v, x, sums, count, order.lane(i),
                                                 merges(i), levels);
            });
            m += tile;
          }
        }
      }
      const int64_t real = (end < t.m ? end : t.m) - block;
      write_outputs(t, p.levels + 5 * int64_t{kBlockM} * kPanelN, block, real, n, kKind == Kind::kInt8);
      block = end;
    }
  }
}

}  // namespace

GemmFn gemm_exact_avx2(Codec codec) { return exact_form<Gemm>(codec); }

}  // namespace berth::kernel::cpu
