// kernel/cpu/gemm_exact_avx512.cc — y = W x in exact mode (numerics.md 1) with AVX-512, many inputs: lanes are 16
// outputs.
//
// 32 outputs at a time. Their codes become fp32, word after word in lane order:
//
//   panel   [position of word][element, in numerics.md's order][32 outputs]
//   tile    [position of word][element][6 inputs], broadcast
//
// Unscaled: 12 accumulators, one fma each per element. Scaled: 12 products p of a run, then 12 fma with the scales,
// which stay by block: 9 fma per 8 weights. A lane's part of the panel (K/32 * 128 bytes) stays in L1 while all inputs
// pass.
//
// Start reading at: tile_lane.
#include "berth/kernel/cpu/gemm_avx512-inl.h"
#include "berth/kernel/cpu/gemm_exact-inl.h"

namespace berth::kernel::cpu {
namespace {

// One lane of kTile inputs x 32 outputs. `lane` is its first word, `next` the inputs that come after, to be asked for.
template <Kind kKind, bool kMin, int kTile>
void tile_lane(const float* panel, const float* scales, const float* minima, const float* x, const float* t,
               const float* next, int64_t words, int64_t lane, const TileOut& out) {
  constexpr int kElements = word_elements(kKind);
  __m512 a[kTile][2];
  BERTH_UNROLL
  for (int i = 0; i < kTile; ++i) a[i][0] = a[i][1] = _mm512_setzero_ps();
  if (!is_scaled(kKind)) {
    for (int64_t e = 0; e < words * kElements; ++e, panel += kPanelN, x += kTile, next += kTile) {
      _mm_prefetch(next, _MM_HINT_T0);
      const __m512 w0 = _mm512_load_ps(panel), w1 = _mm512_load_ps(panel + 16);
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) {
        const __m512 b = _mm512_set1_ps(x[i]);
        a[i][0] = _mm512_fmadd_ps(w0, b, a[i][0]);
        a[i][1] = _mm512_fmadd_ps(w1, b, a[i][1]);
      }
    }
    put_lane<5, kBlockM>(a, out);
    return;
  }
  const float* s = scales + lane / words_per_block(kKind) * kPanelN;
  const float* mn = minima + lane / words_per_block(kKind) * kPanelN;
  constexpr int64_t kStep = int64_t{kLanes} / words_per_block(kKind) * kPanelN;  // scales from one word to the next
  for (int64_t word = 0; word < words; ++word, s += kStep, mn += kStep, next += kElements * kTile) {
    for (int line = 0; line < kElements * kTile; line += 16) _mm_prefetch(next + line, _MM_HINT_T0);
    __m512 p[kTile][2];
    {
      const __m512 w0 = _mm512_load_ps(panel), w1 = _mm512_load_ps(panel + 16);
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) {
        const __m512 b = _mm512_set1_ps(x[i]);
        p[i][0] = _mm512_mul_ps(w0, b);
        p[i][1] = _mm512_mul_ps(w1, b);
      }
    }
    BERTH_UNROLL
    for (int e = 1; e < kElements; ++e) {
      const __m512 w0 = _mm512_load_ps(panel + e * kPanelN), w1 = _mm512_load_ps(panel + e * kPanelN + 16);
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) {
        const __m512 b = _mm512_set1_ps(x[e * kTile + i]);
        p[i][0] = _mm512_fmadd_ps(w0, b, p[i][0]);
        p[i][1] = _mm512_fmadd_ps(w1, b, p[i][1]);
      }
    }
    panel += kElements * kPanelN;
    x += kElements * kTile;
    const __m512 s0 = _mm512_load_ps(s), s1 = _mm512_load_ps(s + 16);
    BERTH_UNROLL
    for (int i = 0; i < kTile; ++i) {
      a[i][0] = _mm512_fmadd_ps(p[i][0], s0, a[i][0]);
      a[i][1] = _mm512_fmadd_ps(p[i][1], s1, a[i][1]);
    }
    if (kMin) {
      const __m512 m0 = _mm512_load_ps(mn), m1 = _mm512_load_ps(mn + 16);
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) {
        const __m512 sum = _mm512_set1_ps(t[word * kTile + i]);
        a[i][0] = _mm512_fmadd_ps(m0, sum, a[i][0]);
        a[i][1] = _mm512_fmadd_ps(m1, sum, a[i][1]);
      }
    }
  }
  put_lane<5, kBlockM>(a, out);
}

// --- packing a panel ---

// Byte `b` of every dword as a float, less `offset`: 0x4B0000uu = 2^23 + uu.
template <int kByte>
BERTH_INLINE __m512 byte_float(__m512i v, __m512 offset) {
  const __m512i byte = _mm512_and_si512(_mm512_srli_epi32(v, 8 * kByte), _mm512_set1_epi32(255));
  return _mm512_sub_ps(_mm512_castsi512_ps(_mm512_or_si512(byte, _mm512_set1_epi32(0x4b000000))), offset);
}

// e4m3 in the top byte: its exponent and mantissa moved to bits 20..26 of a float are the value * 2^-120.
template <int kByte>
BERTH_INLINE __m512 fp8_float(__m512i w) {
  const __m512i top = _mm512_slli_epi32(w, 24 - 8 * kByte);
  const __m512i bits = _mm512_and_si512(_mm512_srai_epi32(top, 4), _mm512_set1_epi32(static_cast<int>(0x87f00000u)));
  return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
}

// Bit 4d + b of the high words of 16 outputs (b: byte of the dword) to bit `to` of byte b: vpmultishiftqb gives byte b
// the 8 bits from first + b - to on, modulo 64.
BERTH_INLINE __m512i bits_to_bytes(__m512i high, int first, int to) {
  int64_t control = 0;
  for (int64_t b = 0; b < 8; ++b) control |= ((first - to + b % 4 + b / 4 * 32) & 63) << (8 * b);
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(1 << to));
  return _mm512_and_si512(_mm512_multishift_epi64_epi8(_mm512_set1_epi64(control), high), mask);
}

struct Operands {
  __m512 book, offset;
};

Operands operands(const WeightView& w) {
  alignas(64) float book[16];
  const int zero = w.codec == Codec::kQ4_0 ? 8 : 0;
  for (int q = 0; q < 16; ++q) book[q] = w.book != nullptr ? w.book[q] : static_cast<float>(q - zero);
  const int offset = w.codec == Codec::kQ5_0 ? 16 : w.codec == Codec::kQ6_K ? 32 : 0;
  return {_mm512_load_ps(book), _mm512_set1_ps(0x1p23f + static_cast<float>(offset))};
}

// The word of 16 outputs as kElements vectors, kPanelN apart.
template <Kind kKind>
BERTH_INLINE void put_word(__m512i w, int dword, const __m512i* high, const Operands& op, float* out) {
  const auto put = [out](int e, __m512 v) { _mm512_store_ps(out + e * kPanelN, v); };
  if (kKind == Kind::kF32) {
    put(0, _mm512_castsi512_ps(w));
  } else if (kKind == Kind::kBF16) {
    put(0, _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)));
    put(1, _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xffff0000u)))));
  } else if (kKind == Kind::kF16) {
    put(0, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(w)));
    put(1, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(w, 16))));
  } else if (kKind == Kind::kInt8 || kKind == Kind::kQ8) {
    w = _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(0x80)));
    const __m512 offset = _mm512_set1_ps(0x1p23f + 128);
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
    put(0, _mm512_permutexvar_ps(w, op.book));
    put(1, _mm512_permutexvar_ps(_mm512_srli_epi32(w, 4), op.book));
    put(2, _mm512_permutexvar_ps(_mm512_srli_epi32(w, 8), op.book));
    put(3, _mm512_permutexvar_ps(_mm512_srli_epi32(w, 12), op.book));
    put(4, _mm512_permutexvar_ps(_mm512_srli_epi32(w, 16), op.book));
    put(5, _mm512_permutexvar_ps(_mm512_srli_epi32(w, 20), op.book));
    put(6, _mm512_permutexvar_ps(_mm512_srli_epi32(w, 24), op.book));
    put(7, _mm512_permutexvar_ps(_mm512_srli_epi32(w, 28), op.book));
  } else {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i hi = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
    __m512i lo = _mm512_and_si512(w, nibble);
    for (int b = 0; b < (kKind == Kind::kSix ? 2 : 1); ++b) {
      hi = _mm512_or_si512(hi, bits_to_bytes(high[b], 4 * dword, 4 + b));
      lo = _mm512_or_si512(lo, bits_to_bytes(high[b], 16 + 4 * dword, 4 + b));
    }
    put(0, byte_float<0>(lo, op.offset));
    put(1, byte_float<0>(hi, op.offset));
    put(2, byte_float<1>(lo, op.offset));
    put(3, byte_float<1>(hi, op.offset));
    put(4, byte_float<2>(lo, op.offset));
    put(5, byte_float<2>(hi, op.offset));
    put(6, byte_float<3>(lo, op.offset));
    put(7, byte_float<3>(hi, op.offset));
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
    const Finish finish(t, n, kKind == Kind::kInt8);
    for (int64_t block = 0; block < padded_m;) {
      int64_t end = block;
      while (end < padded_m && end + tiles.tile_at(end) <= block + kBlockM) end += tiles.tile_at(end);
      for (int i = 0; i < kLanes; ++i) {
        const int64_t first = order.first[i], count = order.first[i + 1] - first;
        const float* w = panel + (first * kElements + i * kGap<kKind>)*kPanelN;
        for (int64_t m = block; m < end;) {
          const int tile = tiles.tile_at(m);
          const float* x = reinterpret_cast<const float*>(t.x) + m * x_floats;
          const float* sums = x + (t.w.k + first) * tile;
          x += first * kElements * tile;
          // The next tile's part of this lane; after the last one the first one's part of the next lane.
          const bool last = m + tile >= end;
          const float* next = reinterpret_cast<const float*>(t.x) + (last ? block : m + tile) * x_floats +
                              (last ? first + count : first) * kElements * tiles.tile_at(last ? block : m + tile);
          const bool finished = i + 1 == kLanes;
          if (finished) prefetch_outputs(t, m, tile, n);
          const TileOut out{merges(i),
                            p.levels + (m - block) * kPanelN,
                            finished ? &finish : nullptr,
                            t.y + m * t.y_stride + n,
                            t.y_stride,
                            t.m - m};
          with_tile(tile, [&](auto n_inputs) {
            tile_lane<kKind, kMin, n_inputs()>(w, p.scales, p.minima, x, sums, next, count, order.lane(i), out);
          });
          m += tile;
        }
      }
      block = end;
    }
  }
}

}  // namespace

GemmFn gemm_exact_avx512(Codec codec) { return exact_form<Gemm>(codec); }

}  // namespace berth::kernel::cpu
