// kernel/cpu/gemm_int8_avx2.cc — y = W x in int8 mode (numerics.md 5) with AVX2, many inputs: lanes are 8 outputs.
//
// As gemm_int8_avx512.cc (panel and tile are explained there), with register tiles of 6 inputs x 8 outputs and, for
// want of a dot of bytes, one of two forms per column of 4 elements:
//
//   signed codes (code books, 8 bit)   maddubs(|code|, psign(q, code)), madd with ones, add: 4 instructions; |code| may
//   be
//                                      128, and is made once for 6 inputs
//   unsigned codes (4, 5, 6 bit)       maddubs(code, q) and a 16-bit add; madd with ones only after as many columns as
//                                      cannot overflow: 8 of 4 bits (8 * 2 * 15 * 127 = 30480), 4 of 5, 2 of 6
//
// Start reading at: tile_lane.
#include "berth/kernel/cpu/gemm_avx2-inl.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;

enum class Kind { kBook, kFour, kFive, kSix, kByte };

constexpr int kLanes = 8;
constexpr int64_t kWordBytes = 8 * kPanelN * 4;  // of the panel

constexpr bool is_signed(Kind kind) { return kind == Kind::kBook || kind == Kind::kByte; }
constexpr int columns_in_16_bits(Kind kind) { return kind == Kind::kFour ? 8 : kind == Kind::kFive ? 4 : 2; }

// One lane of kTile inputs x 8 outputs of a panel; the pointers are at the first of the 8. `shift`: unsigned codes are
// too large by 2^shift (0: by nothing).
template <Kind kKind, bool kMin, bool kScaled, int kTile>
void tile_lane(const int8_t* panel, const float* scales, const float* minima, const int32_t* x, int64_t words,
               int shift, int merge_count, float* levels) {
  constexpr int kRuns = kKind == Kind::kSix ? 2 : 1;
  constexpr int kColumns = 8 / kRuns;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 a[kTile];
  BERTH_UNROLL
  for (int i = 0; i < kTile; ++i) a[i] = _mm256_setzero_ps();
  for (int64_t word = 0; word < words; ++word, x += kInt8TileColumns * kTile) {
    BERTH_UNROLL
    for (int run = 0; run < kRuns; ++run, panel += kColumns * kPanelN * 4) {
      __m256i dot[kTile];
      const int32_t* q = x + run * kColumns * kTile;
      if (is_signed(kKind)) {
        BERTH_UNROLL
        for (int i = 0; i < kTile; ++i) dot[i] = _mm256_set1_epi32(kIntFloat);
        BERTH_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(panel + c * kPanelN * 4));
          const __m256i magnitude = _mm256_abs_epi8(w);
          BERTH_UNROLL
          for (int i = 0; i < kTile; ++i) {
            const __m256i pairs =
                _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(_mm256_set1_epi32(q[c * kTile + i]), w));
            dot[i] = _mm256_add_epi32(dot[i], _mm256_madd_epi16(pairs, ones));
          }
        }
      } else {
        constexpr int kStretch = columns_in_16_bits(kKind);
        const int32_t* excess = x + (kRuns == 2 ? 9 + run : 8) * kTile;  // kIntFloat - 128 * sum of q
        BERTH_UNROLL
        for (int i = 0; i < kTile; ++i)
          dot[i] = _mm256_set1_epi32(kIntFloat + (shift == 0 ? 0 : (excess[i] - kIntFloat) >> (7 - shift)));
        BERTH_UNROLL
        for (int from = 0; from < kColumns; from += kStretch) {
          __m256i pairs[kTile];
          BERTH_UNROLL
          for (int c = from; c < from + kStretch; ++c) {
            const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(panel + c * kPanelN * 4));
            BERTH_UNROLL
            for (int i = 0; i < kTile; ++i) {
              const __m256i product = _mm256_maddubs_epi16(w, _mm256_set1_epi32(q[c * kTile + i]));
              pairs[i] = c == from ? product : _mm256_add_epi16(pairs[i], product);
            }
          }
          BERTH_UNROLL
          for (int i = 0; i < kTile; ++i) dot[i] = _mm256_add_epi32(dot[i], _mm256_madd_epi16(pairs[i], ones));
        }
      }
      const float* dx = reinterpret_cast<const float*>(x + 11 * kTile);
      const __m256 s = kScaled ? _mm256_load_ps(scales) : _mm256_setzero_ps();
      if (kScaled) scales += kPanelN;
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) {
        const __m256 d = _mm256_broadcast_ss(dx + i);
        a[i] = _mm256_fmadd_ps(_mm256_sub_ps(_mm256_castsi256_ps(dot[i]), _mm256_set1_ps(kIntFloatValue)),
                               kScaled ? _mm256_mul_ps(d, s) : d, a[i]);
      }
      if (kMin) {
        const float* sum = reinterpret_cast<const float*>(x + 12 * kTile);
        const __m256 mn = _mm256_load_ps(minima);
        minima += kPanelN;
        BERTH_UNROLL
        for (int i = 0; i < kTile; ++i)
          a[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(sum + i), _mm256_mul_ps(_mm256_broadcast_ss(dx + i), mn), a[i]);
      }
    }
  }
  BERTH_UNROLL
  for (int i = 0; i < kTile; ++i) put_sum(a[i], merge_count, levels + i * kPanelN);
}

// --- packing a panel ---

// Bits first .. first + 3 of the high words of 8 outputs to bit `to` of the 4 bytes: bits 0..3 times 0x00204081 stand
// at 0, 8, 16, 24 among others.
BERTH_INLINE __m256i bits_to_bytes(__m256i high, int first, int to) {
  const __m256i four = _mm256_and_si256(_mm256_srl_epi32(high, _mm_cvtsi32_si128(first)), _mm256_set1_epi32(15));
  const __m256i spread =
      _mm256_and_si256(_mm256_mullo_epi32(four, _mm256_set1_epi32(0x00204081)), _mm256_set1_epi32(0x01010101));
  return _mm256_slli_epi32(spread, to);
}

// Dword d (0..3) of a word of 8 outputs: 4 bytes of nibbles to two columns of the panel.
template <Kind kKind>
BERTH_INLINE void put_nibbles(__m256i w, int d, const __m256i* high, __m256i table, int8_t* out) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i hi = _mm256_and_si256(_mm256_srli_epi16(w, 4), nibble);
  __m256i lo = _mm256_and_si256(w, nibble);
  if (kKind == Kind::kBook) {
    hi = _mm256_shuffle_epi8(table, hi);
    lo = _mm256_shuffle_epi8(table, lo);
  }
  for (int b = 0; b < (kKind == Kind::kSix ? 2 : kKind == Kind::kFive ? 1 : 0); ++b) {
    hi = _mm256_or_si256(hi, bits_to_bytes(high[b], 4 * d, 4 + b));
    lo = _mm256_or_si256(lo, bits_to_bytes(high[b], 16 + 4 * d, 4 + b));
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(out + (2 * d) * kPanelN * 4), hi);
  _mm256_store_si256(reinterpret_cast<__m256i*>(out + (2 * d + 1) * kPanelN * 4), lo);
}

template <Kind kKind>
void pack_codes(const WeightView& w, const int64_t row[kPanelN], const LaneOrder<kLanes>& order, __m256i table,
                int8_t* panel) {
  constexpr int64_t kDwords = kKind == Kind::kByte ? 8 : 4;  // per word
  constexpr int64_t kPlanes = kKind == Kind::kSix ? 2 : kKind == Kind::kFive ? 1 : 0;
  const int64_t row_bytes = order.words * kDwords * 4;
  const int64_t row_stride = w.in_blocks ? order.words * kQ8BlockBytes : row_bytes;
  for (int v = 0; v < 4; ++v) {
    const uint8_t* start[8];
    for (int i = 0; i < 8; ++i) start[i] = w.codes + row[v * 8 + i] * row_stride;
    for (int64_t column = 0; column * 32 < row_bytes; ++column) {
      __m256i t[8];
      if (kKind == Kind::kByte && w.in_blocks)
        load_transposed_blocks(start, column, row_bytes, t);
      else
        load_transposed(start, column, row_bytes, t);
      for (int64_t j = 0; j < 8 / kDwords; ++j) {
        const int64_t word = column * (8 / kDwords) + j;
        if (word >= order.words) break;
        int8_t* out = panel + order.position(word) * kWordBytes + v * 32;
        if (kKind == Kind::kByte) {
          for (int d = 0; d < 8; ++d) _mm256_store_si256(reinterpret_cast<__m256i*>(out + d * kPanelN * 4), t[d]);
          continue;
        }
        __m256i high[2] = {};
        for (int64_t b = 0; b < kPlanes; ++b) {
          alignas(32) uint32_t of_rows[8];
          for (int i = 0; i < 8; ++i) of_rows[i] = w.high[(row[v * 8 + i] * order.words + word) * kPlanes + b];
          high[b] = _mm256_load_si256(reinterpret_cast<const __m256i*>(of_rows));
        }
        for (int d = 0; d < 4; ++d) put_nibbles<kKind>(t[(4 * j + d) & 7], d, high, table, out);
      }
    }
  }
}

// Scales by position: [position][run][32 outputs].
template <Kind kKind, bool kMin>
void pack_scales(const WeightView& w, const int64_t row[kPanelN], const LaneOrder<kLanes>& order,
                 const PanelScratch& p) {
  constexpr int64_t kRuns = kKind == Kind::kSix ? 2 : 1;
  const int64_t n = order.words * kRuns;
  for (int v = 0; v < 4; ++v) {
    const RowScales<8> rows = expand_rows<8>(w, row + v * 8, n, p.row);
    for (int64_t column = 0; column * 8 < n; ++column) {
      __m256i s[8], m[8];
      load_transposed(rows.s, column, n * 4, s);
      if (kMin) load_transposed(rows.m, column, n * 4, m);
      for (int64_t j = 0; j < 8 && column * 8 + j < n; ++j) {
        const int64_t at = order.position((column * 8 + j) / kRuns) * kRuns + j % kRuns;
        _mm256_store_ps(p.scales + at * kPanelN + v * 8, _mm256_castsi256_ps(s[j]));
        if (kMin) _mm256_store_ps(p.minima + at * kPanelN + v * 8, _mm256_castsi256_ps(m[j]));
      }
    }
  }
}

template <Kind kKind, bool kMin, bool kScaled>
void gemm(const GemmTask& t) {
  constexpr int64_t kRuns = kKind == Kind::kSix ? 2 : 1;
  const int64_t words = t.w.k / 32;
  const LaneOrder<kLanes> order(words);
  const int shift = t.w.codec == Codec::kQ4_0 ? 3 : t.w.codec == Codec::kQ5_0 ? 4 : t.w.codec == Codec::kQ6_K ? 5 : 0;
  __m256i table = _mm256_setzero_si256();
  if (t.w.int8_book != nullptr)
    table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t.w.int8_book)));
  const PanelScratch p = panel_scratch(t.scratch, t.w.k);
  int8_t* const panel = reinterpret_cast<int8_t*>(p.weights);
  const Tiling tiles = tiling(t.m);
  const int64_t padded_m = tiles.padded();
  const int64_t x_bytes = words * kInt8TileColumns * 4;  // per input
  for (int64_t n = 0; n < t.row_count; n += kPanelN) {
    int64_t row[kPanelN];
    for (int i = 0; i < kPanelN; ++i)
      row[i] = t.w.stored_row(t.row_begin + (n + i < t.row_count ? n + i : t.row_count - 1));
    pack_codes<kKind>(t.w, row, order, table, panel);
    if (kScaled) pack_scales<kKind, kMin>(t.w, row, order, p);
    for (int64_t block = 0; block < padded_m;) {
      int64_t end = block;
      while (end < padded_m && end + tiles.tile_at(end) <= block + kBlockM) end += tiles.tile_at(end);
      for (int i = 0; i < kLanes; ++i) {
        const int64_t first = order.first[i], count = order.first[i + 1] - first;
        for (int v = 0; v < kPanelN; v += 8) {
          const int8_t* w = panel + first * kWordBytes + v * 4;
          const float* s = p.scales + first * kRuns * kPanelN + v;
          const float* mn = p.minima + first * kPanelN + v;
          for (int64_t m = block; m < end;) {
            const int tile = tiles.tile_at(m);
            const int32_t* x = reinterpret_cast<const int32_t*>(t.x + m * x_bytes) + first * kInt8TileColumns * tile;
            float* const levels = p.levels + (m - block) * kPanelN + v;
            with_tile(tile, [&](auto n_inputs) {
              tile_lane<kKind, kMin, kScaled, n_inputs()>(w, s, mn, x, count, shift, merges(i), levels);
            });
            m += tile;
          }
        }
      }
      const int64_t real = (end < t.m ? end : t.m) - block;
      write_outputs(t, p.levels + 3 * int64_t{kBlockM} * kPanelN, block, real, n, t.w.codec == Codec::kInt8Row);
      block = end;
    }
  }
}

}  // namespace

GemmFn gemm_int8_avx2(Codec codec) {
  switch (codec) {
    case Codec::kNF4:
    case Codec::kFP4:
    case Codec::kMXFP4:
    case Codec::kIQ4_NL:
      return gemm<Kind::kBook, false, true>;
    case Codec::kQ4_0:
      return gemm<Kind::kFour, false, true>;
    case Codec::kQ4_1:
    case Codec::kQ4_K:
      return gemm<Kind::kFour, true, true>;
    case Codec::kQ5_0:
      return gemm<Kind::kFive, false, true>;
    case Codec::kQ5_1:
    case Codec::kQ5_K:
      return gemm<Kind::kFive, true, true>;
    case Codec::kQ6_K:
      return gemm<Kind::kSix, false, true>;
    case Codec::kQ8_0:
      return gemm<Kind::kByte, false, true>;
    case Codec::kInt8Row:
      return gemm<Kind::kByte, false, false>;
    default:
      return nullptr;
  }
}

}  // namespace berth::kernel::cpu
