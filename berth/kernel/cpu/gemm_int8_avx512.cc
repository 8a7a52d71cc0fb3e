// kernel/cpu/gemm_int8_avx512.cc — y = W x in int8 mode (numerics.md 5) with VNNI, many inputs: lanes are 16 outputs.
//
// 32 outputs at a time. Their codes become unsigned bytes (code + 128), word after word in lane order:
//
//   panel   [position of word][8 columns of 4 elements][32 outputs][4 bytes]
//   tile    [position of word][8 columns][6 inputs][4 bytes of q], and per word -128 * sum of q, dx, the sum
//
// vpdpbusd multiplies 16 outputs' bytes by one input's 4 bytes, broadcast. An accumulator starts at -128 * sum of q and
// after the 8 columns of a word holds sum of code * q; it is scaled into the lane's fp32 sum: 8 dots, 1
// subtraction that converts it, 1 multiply, 1 fma. 12 + 12 accumulators fill the registers. A lane's part of the panel
// (K/8 * 32 bytes) stays in L1 while all inputs pass over it.
//
// Start reading at: tile_lane, then pair_lane.
#include <utility>

#include "berth/kernel/cpu/gemm_avx512-inl.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;

enum class Kind { kBook, kFive, kSix, kByte };

constexpr int kLanes = 8;
constexpr int64_t kWordBytes = 8 * kPanelN * 4;  // of the panel
constexpr int64_t kLevels = 4;                   // sums of 1, 2, 4 and 8 lanes

// Where the parts of kInt8Panels panels lie in a thread's scratch.
struct Int8PanelScratch {
  Int8PanelScratch(std::byte* scratch, int64_t k) : padded((k + 255) / 256 * 256) {
    first_codes = reinterpret_cast<int8_t*>(scratch);
    first_scales = reinterpret_cast<float*>(scratch + kInt8Panels * padded * kPanelN);
    row = first_scales + kInt8Panels * padded / 16 * kPanelN;
    levels = row + padded / 16 * kPanelN;
  }
  int8_t* codes(int64_t panel) const { return first_codes + panel * padded * kPanelN; }
  // Q6_K has a scale per 16 elements; the others one per 32, and perhaps a minimum.
  float* scales(int64_t panel) const { return first_scales + panel * (padded / 16) * kPanelN; }
  float* minima(int64_t panel) const { return scales(panel) + padded / 32 * kPanelN; }

  int64_t padded;
  int8_t* first_codes;
  float* first_scales;
  float* row;  // some rows' scales and minima before they are dealt out
  float* levels;
};

// kIntFloat + i -> i
BERTH_INLINE __m512 to_float(__m512i i) {
  return _mm512_sub_ps(_mm512_castsi512_ps(i), _mm512_set1_ps(kIntFloatValue));
}

// Memory that a lane asks for while it multiplies, some lines in each word: in bursts it would take all the buffers of
// the first-level cache, and what the lane itself waits for would come late.
struct Asked {
  const char* weights = nullptr;  // what is packed next, into the second-level cache
  int weight_lines = 0;           // of a word
  // Two tiles at once only: the sums that wait for this lane's, then where the next tiles' go.
  const char *sums = nullptr, *sums_end = nullptr, *next_sums = nullptr;
  int sum_lines = 0;
  int outputs = 0;  // inputs of a word whose outputs are asked for, in the last lane
};

// One lane of kTile inputs x 32 outputs.
template <Kind kKind, bool kMin, bool kScaled, int kTile>
void tile_lane(const int8_t* panel, const float* scales, const float* minima, const int32_t* x, int64_t words,
               const std::byte* next, const TileOut& out, const Asked& asked) {
  constexpr int64_t kWordInputs = int64_t{kInt8TileColumns} * kTile * 4;  // bytes of a word of the inputs
  constexpr int kRuns = kKind == Kind::kSix ? 2 : 1;
  constexpr int kColumns = 8 / kRuns;
  __m512 a[kTile][2];
  BERTH_UNROLL
  for (int i = 0; i < kTile; ++i) a[i][0] = a[i][1] = _mm512_setzero_ps();
  const char* weights = asked.weights;
  for (int64_t word = 0; word < words; ++word, x += kInt8TileColumns * kTile, next += kWordInputs) {
    for (int64_t line = 0; line < kWordInputs; line += 64) _mm_prefetch(next + line, _MM_HINT_T0);
    for (int n = 0; n < asked.weight_lines; ++n, weights += 64) _mm_prefetch(weights, _MM_HINT_T1);
    BERTH_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      __m512i dot[kTile][2];
      const int32_t* start = x + (kRuns == 2 ? 9 + run : 8) * kTile;
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) dot[i][0] = dot[i][1] = _mm512_set1_epi32(start[i]);
      BERTH_UNROLL
      for (int c = 0; c < kColumns; ++c, panel += kPanelN * 4) {
        const __m512i w0 = _mm512_load_si512(panel), w1 = _mm512_load_si512(panel + 64);
        BERTH_UNROLL
        for (int i = 0; i < kTile; ++i) {
          const __m512i q = _mm512_set1_epi32(x[(run * kColumns + c) * kTile + i]);
          dot[i][0] = _mm512_dpbusd_epi32(dot[i][0], w0, q);
          dot[i][1] = _mm512_dpbusd_epi32(dot[i][1], w1, q);
        }
      }
      const float* dx = reinterpret_cast<const float*>(x + 11 * kTile);
      __m512 s0 = _mm512_setzero_ps(), s1 = s0;
      if (kScaled) {
        s0 = _mm512_load_ps(scales);
        s1 = _mm512_load_ps(scales + 16);
        scales += kPanelN;
      }
      BERTH_UNROLL
      for (int i = 0; i < kTile; ++i) {
        const __m512 d = _mm512_set1_ps(dx[i]);
        a[i][0] = _mm512_fmadd_ps(to_float(dot[i][0]), kScaled ? _mm512_mul_ps(d, s0) : d, a[i][0]);
        a[i][1] = _mm512_fmadd_ps(to_float(dot[i][1]), kScaled ? _mm512_mul_ps(d, s1) : d, a[i][1]);
      }
      if (kMin) {
        const float* sum = reinterpret_cast<const float*>(x + 12 * kTile);
        const __m512 m0 = _mm512_load_ps(minima), m1 = _mm512_load_ps(minima + 16);
        minima += kPanelN;
        BERTH_UNROLL
        for (int i = 0; i < kTile; ++i) {
          const __m512 d = _mm512_set1_ps(dx[i]), q = _mm512_set1_ps(sum[i]);
          a[i][0] = _mm512_fmadd_ps(q, _mm512_mul_ps(d, m0), a[i][0]);
          a[i][1] = _mm512_fmadd_ps(q, _mm512_mul_ps(d, m1), a[i][1]);
        }
      }
    }
  }
  put_lane<3, kTile>(a, out);
}

// --- two tiles at once ---
//
// 12 dots of 5 cycles on two ports are just enough to keep these busy, and the end of a word has fewer under way. So
// two neighbouring tiles of the same size are multiplied together: 24 (or 16) dots in the registers, the fp32 sums in
// memory. The steps are inline assembly for their order alone: as written, an Intel core takes what the two ports need
// (66.1 cycles a word and tile in cache; 60.1 without scales). Left to order them, compilers collect broadcasts,
// conversions or products, which costs up to 6 %, and g++ finds no registers for 24 dots. With minima 83 to 85 cycles
// of 78; with two blocks to a word this gains nothing (docs/kernel_figures.md).

template <typename F, int... kAt>
BERTH_INLINE void for_each(std::integer_sequence<int, kAt...>, F&& f) {
  (f(std::integral_constant<int, kAt>{}), ...);
}
// f(0), f(1), ... with constants.
template <int kCount, typename F>
BERTH_INLINE void times(F&& f) {
  for_each(std::make_integer_sequence<int, kCount>{}, f);
}

// What follows takes `k...At`: bytes from a pointer on.

// kIntFloat - 128 * sum of q of one input, for 2 x 16 outputs.
template <int kAt>
BERTH_INLINE void start_dots(const int32_t* x, __m512i (&dot)[2]) {
  __asm__ volatile("vpbroadcastd %c3(%2), %0\n\tvmovdqa64 %0, %1"
                   : "=&v"(dot[0]), "=v"(dot[1])
                   : "r"(x), "i"(kAt)
                   : "memory");
}

// + codes * q over 4 elements.
template <int kAt>
BERTH_INLINE void add_dots(const int32_t* x, __m512i w0, __m512i w1, __m512i (&dot)[2]) {
  __m512i q;
  __asm__ volatile("vpbroadcastd %c6(%5), %2\n\tvpdpbusd %2, %3, %0\n\tvpdpbusd %2, %4, %1"
                   : "+v"(dot[0]), "+v"(dot[1]), "=&v"(q)
                   : "v"(w0), "v"(w1), "r"(x), "i"(kAt)
                   : "memory");
}

// sum = fma(dot - kIntFloat, dx * s, sum) of one input, the sum read at `from`. `offset`: kIntFloat as a float. Without
// kScaled dx alone. kStore: to `sums`, else it stays in `dot`.
template <bool kScaled, bool kStore, int kDxAt, int kSumAt>
BERTH_INLINE void add_word(const int32_t* x, __m512 s0, __m512 s1, __m512 offset, __m512i (&dot)[2], const float* from,
                           float* sums) {
  __m512 d;
  [[maybe_unused]] __m512 p;
  if constexpr (kScaled && kStore)
    __asm__ volatile(
        "vbroadcastss %c10(%4), %2\n\t"
        "vsubps %9, %0, %0\n\tvmulps %7, %2, %3\n\tvfmadd213ps %c11(%5), %3, %0\n\tvmovaps %0, %c11(%6)\n\t"
        "vsubps %9, %1, %1\n\tvmulps %8, %2, %3\n\tvfmadd213ps %c12(%5), %3, %1\n\tvmovaps %1, %c12(%6)"
        : "+v"(dot[0]), "+v"(dot[1]), "=&v"(d), "=&v"(p)
        : "r"(x), "r"(from), "r"(sums), "v"(s0), "v"(s1), "v"(offset), "i"(kDxAt), "i"(kSumAt), "i"(kSumAt + 64)
        : "memory");
  else if constexpr (kScaled)
    __asm__ volatile(
        "vbroadcastss %c9(%4), %2\n\t"
        "vsubps %8, %0, %0\n\tvmulps %6, %2, %3\n\tvfmadd213ps %c10(%5), %3, %0\n\t"
        "vsubps %8, %1, %1\n\tvmulps %7, %2, %3\n\tvfmadd213ps %c11(%5), %3, %1"
        : "+v"(dot[0]), "+v"(dot[1]), "=&v"(d), "=&v"(p)
        : "r"(x), "r"(from), "v"(s0), "v"(s1), "v"(offset), "i"(kDxAt), "i"(kSumAt), "i"(kSumAt + 64)
        : "memory");
  else if constexpr (kStore)
    __asm__ volatile(
        "vbroadcastss %c7(%3), %2\n\t"
        "vsubps %6, %0, %0\n\tvfmadd213ps %c8(%4), %2, %0\n\tvmovaps %0, %c8(%5)\n\t"
        "vsubps %6, %1, %1\n\tvfmadd213ps %c9(%4), %2, %1\n\tvmovaps %1, %c9(%5)"
        : "+v"(dot[0]), "+v"(dot[1]), "=&v"(d)
        : "r"(x), "r"(from), "r"(sums), "v"(offset), "i"(kDxAt), "i"(kSumAt), "i"(kSumAt + 64)
        : "memory");
  else
    __asm__ volatile(
        "vbroadcastss %c6(%3), %2\n\t"
        "vsubps %5, %0, %0\n\tvfmadd213ps %c7(%4), %2, %0\n\t"
        "vsubps %5, %1, %1\n\tvfmadd213ps %c8(%4), %2, %1"
        : "+v"(dot[0]), "+v"(dot[1]), "=&v"(d)
        : "r"(x), "r"(from), "v"(offset), "i"(kDxAt), "i"(kSumAt), "i"(kSumAt + 64)
        : "memory");
}

// Where a lane's first word reads its sums: to clear them first would hold up the stores.
alignas(64) constexpr float kZeros[12 * kPanelN] = {};

// The same with minima `m`: then sum = fma(sum of q, dx * m, sum). It stays in `dot`.
template <int kDxAt, int kQAt, int kSumAt>
BERTH_INLINE void add_word_min(const int32_t* x, __m512 s0, __m512 s1, const float* m, __m512 offset, __m512i (&dot)[2],
                               const float* from) {
  __m512 d, p;
  __asm__ volatile(
      "vbroadcastss %c10(%4), %2\n\t"
      "vsubps %9, %0, %0\n\tvmulps %5, %2, %3\n\tvfmadd213ps %c12(%8), %3, %0\n\t"
      "vmulps (%7), %2, %3\n\tvfmadd231ps %c11(%4)%{1to16%}, %3, %0\n\t"
      "vsubps %9, %1, %1\n\tvmulps %6, %2, %3\n\tvfmadd213ps %c13(%8), %3, %1\n\t"
      "vmulps 64(%7), %2, %3\n\tvfmadd231ps %c11(%4)%{1to16%}, %3, %1"
      : "+v"(dot[0]), "+v"(dot[1]), "=&v"(d), "=&v"(p)
      : "r"(x), "v"(s0), "v"(s1), "r"(m), "r"(from), "v"(offset), "i"(kDxAt), "i"(kQAt), "i"(kSumAt), "i"(kSumAt + 64)
      : "memory");
}

// + the sums that wait at `at`.
template <int kAt>
BERTH_INLINE void add_level(const float* at, __m512i (&sum)[2]) {
  __asm__ volatile("vaddps %c3(%2), %0, %0\n\tvaddps %c4(%2), %1, %1"
                   : "+v"(sum[0]), "+v"(sum[1])
                   : "r"(at), "i"(kAt), "i"(kAt + 64)
                   : "memory");
}

template <int kAt>
BERTH_INLINE void put_sums(float* at, const __m512i (&sum)[2]) {
  __asm__ volatile("vmovaps %1, %c3(%0)\n\tvmovaps %2, %c4(%0)"
                   :
                   : "r"(at), "v"(sum[0]), "v"(sum[1]), "i"(kAt), "i"(kAt + 64)
                   : "memory");
}

// (sum + 0) * kappa, kappa > 0, of one input to its outputs.
BERTH_INLINE void put_outputs(float* y, const __m512* kappa, __m512i (&sum)[2]) {
  __m512 zero;
  __asm__ volatile(
      "vpxord %2, %2, %2\n\tvfmadd132ps (%3), %2, %0\n\tvfmadd132ps (%3), %2, %1\n\t"
      "vmovups %0, (%4)\n\tvmovups %1, 64(%4)"
      : "+v"(sum[0]), "+v"(sum[1]), "=&v"(zero)
      : "r"(kappa), "r"(y)
      : "memory");
}

// The end of the last lane where outputs are missing, or more follows than kappa: its sums lie in their level.
void put_levels(const TileOut& out, int inputs) {
  const int64_t level = inputs * kPanelN;
  const Finish& f = *out.finish;
  const float* at = out.levels + out.merges * level;
  float* y = out.y;
  for (int i = 0; i < inputs && i < out.rows; ++i, at += kPanelN, y += out.y_stride) {
    for (int v = 0; v < 2; ++v) {
      __m512 sum = _mm512_fmadd_ps(_mm512_load_ps(at + v * 16), f.kappa, _mm512_setzero_ps());  // (sum + 0) * kappa
      if (f.has_row_scale) sum = _mm512_mul_ps(sum, f.row_scale[v]);
      if (f.has_bias) sum = _mm512_add_ps(sum, f.bias[v]);
      _mm512_mask_storeu_ps(y + v * 16, f.mask[v], sum);
    }
  }
}

// A lane without words (K < 256): its sums are zeros.
void put_empty_lane(const TileOut& out, int inputs) {
  const int64_t level = inputs * kPanelN;
  for (int64_t i = 0; i < level; i += 16) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t c = 0; c < out.merges; ++c) sum = _mm512_add_ps(_mm512_load_ps(out.levels + c * level + i), sum);
    _mm512_store_ps(out.levels + out.merges * level + i, sum);
  }
  if (out.finish != nullptr) put_levels(out, inputs);
}

// One lane of two tiles of kTile inputs, `x_tile` apart, x 32 outputs. (Inlined, g++ gives some registers away.) The
// last word adds what waits to the sums before they are stored.
template <bool kMin, bool kScaled, int kTile>
[[gnu::noinline]] void pair_lane(const int8_t* panel, const float* scales, const float* minima, const int32_t* x,
                                 int64_t x_tile, int64_t words, const std::byte* next, const TileOut& out,
                                 const Asked& asked) {
  constexpr int64_t kWordInputs = int64_t{kInt8TileColumns} * kTile * 4;  // bytes of a word of a tile
  constexpr int kInputs = 2 * kTile;
  constexpr int kLate = 2;                          // inputs by which a word's end follows its last dots
  constexpr int64_t kAhead = 4;                     // words: x comes from the second-level cache
  constexpr int kDx = 11 * kTile, kQ = 12 * kTile;  // of a word
  constexpr int kLevel = kInputs * kPanelN;
  constexpr int kToOutputs = kLevels;  // instead of a number of merges
  if (words == 0) return put_empty_lane(out, kInputs);
  float* const sums = out.levels + out.merges * kLevel;
  const bool finished = out.finish != nullptr;
  const int end = finished && out.finish->plain() && out.rows >= kInputs ? kToOutputs : out.merges;
  const __m512 offset = _mm512_set1_ps(kIntFloatValue);
  const float* from = kZeros;
  const int64_t change = words > kAhead ? words - kAhead : 0;
  const std::byte* ahead = change == 0 ? next : reinterpret_cast<const std::byte*>(x) + kAhead * kWordInputs;
  const char *ask_weights = asked.weights, *ask_sums = asked.sums;
  const float* ask_outputs = out.y;
  int64_t outputs_left = finished ? (out.rows < kInputs ? out.rows : kInputs) : 0;
  for (int64_t word = 0; word < words; ++word) {
    const int32_t* const of[2] = {x, x + x_tile};
    __m512i dot[kInputs][2];
    times<kInputs>([&](auto i) BERTH_FORCED { start_dots<(8 * kTile + i() % kTile) * 4>(of[i() / kTile], dot[i()]); });
    times<7>([&](auto c) BERTH_FORCED {
      const __m512i w0 = _mm512_load_si512(panel + c() * kPanelN * 4);
      const __m512i w1 = _mm512_load_si512(panel + c() * kPanelN * 4 + 64);
      if constexpr (c() * 64 < kWordInputs) {
        _mm_prefetch(ahead + c() * 64, _MM_HINT_T0);
        _mm_prefetch(ahead + x_tile * 4 + c() * 64, _MM_HINT_T0);
      } else if constexpr (c() == 5) {
        for (int n = 0; n < asked.weight_lines; ++n, ask_weights += 64) _mm_prefetch(ask_weights, _MM_HINT_T1);
        if (outputs_left > 0) {
          for (int n = 0; n < asked.outputs; ++n, ask_outputs += out.y_stride) {
            __builtin_prefetch(ask_outputs, 1, 3);
            __builtin_prefetch(ask_outputs + 16, 1, 3);
          }
          outputs_left -= asked.outputs;
        }
      } else if constexpr (c() == 6) {
        for (int n = 0; n < asked.sum_lines; ++n) {
          _mm_prefetch(ask_sums, _MM_HINT_T0);
          ask_sums = ask_sums + 64 == asked.sums_end ? asked.next_sums : ask_sums + 64;
        }
      }
      times<kInputs>(
          [&](auto i) BERTH_FORCED { add_dots<(c() * kTile + i() % kTile) * 4>(of[i() / kTile], w0, w1, dot[i()]); });
    });
    const auto last_column = [&](auto then) BERTH_FORCED {
      constexpr int kMerges = then() < kToOutputs ? then() : kToOutputs - 1;
      const __m512i w0 = _mm512_load_si512(panel + 7 * kPanelN * 4);
      const __m512i w1 = _mm512_load_si512(panel + 7 * kPanelN * 4 + 64);
      __m512 s0 = offset, s1 = offset;
      if constexpr (kScaled) s0 = _mm512_load_ps(scales), s1 = _mm512_load_ps(scales + 16);
      [[maybe_unused]] float* y = out.y;
      times<kInputs + kLate>([&](auto step) BERTH_FORCED {
        constexpr int i = step(), kDone = i - kLate;
        if constexpr (i < kInputs) add_dots<(7 * kTile + i % kTile) * 4>(of[i / kTile], w0, w1, dot[i]);
        if constexpr (kDone >= 0) {
          constexpr int kAt = kDone * kPanelN * 4;
          if constexpr (kMin)
            add_word_min<(kDx + kDone % kTile) * 4, (kQ + kDone % kTile) * 4, kAt>(of[kDone / kTile], s0, s1, minima,
                                                                                   offset, dot[kDone], from);
          else
            add_word<kScaled, kMerges == 0, (kDx + kDone % kTile) * 4, kAt>(of[kDone / kTile], s0, s1, offset,
                                                                            dot[kDone], from, sums);
          times<kMerges>([&](auto c) BERTH_FORCED { add_level<c() * kLevel * 4 + kAt>(out.levels, dot[kDone]); });
          if constexpr (then() == kToOutputs) {
            put_outputs(y, &out.finish->kappa, dot[kDone]);
            y += out.y_stride;
          } else if constexpr (kMerges > 0 || kMin) {
            put_sums<kAt>(sums, dot[kDone]);
          }
        }
      });
    };
    switch (word + 1 < words ? 0 : end) {
      case 0:
        last_column(std::integral_constant<int, 0>{});
        break;
      case 1:
        last_column(std::integral_constant<int, 1>{});
        break;
      case 2:
        last_column(std::integral_constant<int, 2>{});
        break;
      case 3:
        last_column(std::integral_constant<int, 3>{});
        break;
      default:
        last_column(std::integral_constant<int, kToOutputs>{});
    }
    from = sums;
    panel += kWordBytes;
    scales += kPanelN;
    minima += kPanelN;
    x += kInt8TileColumns * kTile;
    ahead = word + 1 == change ? next : ahead + kWordInputs;
  }
  if (finished && end != kToOutputs) put_levels(out, kInputs);
}

// --- packing a panel ---

struct Operands {
  __m512i table;  // kBook: code + 128, four times
  __m512i add;    // kFive, kSix: 128 - offset
};

Operands operands(const WeightView& w) {
  alignas(64) uint8_t table[64];
  for (int i = 0; i < 64; ++i) {
    const int q = i % 16;
    const int code = w.int8_book != nullptr ? w.int8_book[q] : w.codec == Codec::kQ4_0 ? q - 8 : q;
    table[i] = static_cast<uint8_t>(code + 128);
  }
  const int offset = w.codec == Codec::kQ5_0 ? 16 : w.codec == Codec::kQ6_K ? 32 : 0;
  return {_mm512_load_si512(table), _mm512_set1_epi8(static_cast<char>(128 - offset))};
}

// Bit `bit` (0..3 of a dword's column) of the high words of 16 outputs to bit `to` of the column's bytes: byte b of
// every dword takes the 8 bits from first + b - to on. (vpmultishiftqb counts within 64 bits, modulo 64.)
BERTH_INLINE __m512i bits_to_bytes(__m512i high, int first, int to) {
  const int64_t low = first - to;
  int64_t control = 0;
  for (int b = 0; b < 8; ++b) control |= ((low + b % 4 + b / 4 * 32) & 63) << (8 * b);
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(1 << to));
  return _mm512_and_si512(_mm512_multishift_epi64_epi8(_mm512_set1_epi64(control), high), mask);
}

// Dword d (0..3) of a word of 16 outputs: 4 bytes of nibbles to two columns of the panel.
template <Kind kKind>
BERTH_INLINE void put_nibbles(__m512i w, int d, const __m512i* high, const Operands& op, int8_t* out) {
  __m512i hi, lo;
  if (kKind == Kind::kBook) {
    hi = _mm512_permutexvar_epi8(_mm512_srli_epi16(w, 4), op.table);
    lo = _mm512_permutexvar_epi8(w, op.table);
  } else {
    const __m512i nibble = _mm512_set1_epi8(15);
    hi = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
    lo = _mm512_and_si512(w, nibble);
    BERTH_UNROLL
    for (int b = 0; b < (kKind == Kind::kSix ? 2 : 1); ++b) {
      hi = _mm512_or_si512(hi, bits_to_bytes(high[b], 4 * d, 4 + b));
      lo = _mm512_or_si512(lo, bits_to_bytes(high[b], 16 + 4 * d, 4 + b));
    }
    hi = _mm512_add_epi8(hi, op.add);
    lo = _mm512_add_epi8(lo, op.add);
  }
  _mm512_store_si512(out + (2 * d) * kPanelN * 4, hi);
  _mm512_store_si512(out + (2 * d + 1) * kPanelN * 4, lo);
}

template <Kind kKind>
void pack_codes(const WeightView& w, const int64_t row[kPanelN], const LaneOrder<kLanes>& order, const Operands& op,
                int8_t* panel) {
  constexpr int64_t kDwords = kKind == Kind::kByte ? 8 : 4;  // per word
  constexpr int64_t kPlanes = kKind == Kind::kSix ? 2 : kKind == Kind::kFive ? 1 : 0;
  const int64_t row_bytes = order.words * kDwords * 4;
  const int64_t row_stride = w.in_blocks ? order.words * kQ8BlockBytes : row_bytes;
  for (int v = 0; v < 2; ++v) {
    const uint8_t* start[16];
    for (int i = 0; i < 16; ++i) start[i] = w.codes + row[v * 16 + i] * row_stride;
    for (int64_t column = 0; column * 64 < row_bytes; ++column) {
      __m512i t[16];
      if (kKind == Kind::kByte && w.in_blocks)
        load_transposed_blocks(start, column, row_bytes, t);
      else
        load_transposed(start, column, row_bytes, t);
      for (int64_t j = 0; j < 16 / kDwords; ++j) {
        const int64_t word = column * (16 / kDwords) + j;
        if (word >= order.words) break;
        int8_t* out = panel + order.position(word) * kWordBytes + v * 64;
        if (kKind == Kind::kByte) {
          const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
          for (int d = 0; d < 8; ++d)
            _mm512_store_si512(out + d * kPanelN * 4, _mm512_xor_si512(t[(8 * j + d) & 15], flip));
          continue;
        }
        __m512i high[2] = {};
        for (int64_t b = 0; b < kPlanes; ++b) {
          alignas(64) uint32_t of_rows[16];
          for (int i = 0; i < 16; ++i) of_rows[i] = w.high[(row[v * 16 + i] * order.words + word) * kPlanes + b];
          high[b] = _mm512_load_si512(of_rows);
        }
        put_nibbles<kKind>(t[4 * j], 0, high, op, out);
        put_nibbles<kKind>(t[4 * j + 1], 1, high, op, out);
        put_nibbles<kKind>(t[4 * j + 2], 2, high, op, out);
        put_nibbles<kKind>(t[4 * j + 3], 3, high, op, out);
      }
    }
  }
}

// Scales by position: [position][run][32 outputs].
template <Kind kKind, bool kMin>
void pack_scales(const WeightView& w, const int64_t row[kPanelN], const LaneOrder<kLanes>& order,
                 const Int8PanelScratch& p, int64_t panel) {
  constexpr int64_t kRuns = kKind == Kind::kSix ? 2 : 1;
  const int64_t n = order.words * kRuns;
  float* const scales = p.scales(panel);
  [[maybe_unused]] float* const minima = p.minima(panel);
  for (int v = 0; v < 2; ++v) {
    const RowScales<16> rows = expand_rows<16>(w, row + v * 16, n, p.row);
    for (int64_t column = 0; column * 16 < n; ++column) {
      __m512i s[16], m[16];
      load_transposed(rows.s, column, n * 4, s);
      if (kMin) load_transposed(rows.m, column, n * 4, m);
      for (int64_t j = 0; j < 16 && column * 16 + j < n; ++j) {
        const int64_t at = order.position((column * 16 + j) / kRuns) * kRuns + j % kRuns;
        _mm512_store_si512(scales + at * kPanelN + v * 16, s[j]);
        if (kMin) _mm512_store_si512(minima + at * kPanelN + v * 16, m[j]);
      }
    }
  }
}

// The memory that the next task of this thread packs, asked for a little at a time while this one multiplies.
class Ahead {
 public:
  // `words`: that this task multiplies. `late`: only as many of the last ones as it takes, where what was asked for
  // sooner would have left the second-level cache again.
  Ahead(const GemmTask& t, int64_t words, bool late) {
    if (t.next_rows == 0) return;
    const WeightView& w = t.w;
    const int64_t row = w.stored_row(t.next_begin), k = w.k;
    const auto add = [&](const void* plane, int64_t row_bits) {
      if (plane == nullptr || row_bits == 0) return;
      at_[count_] = static_cast<const char*>(plane) + row * row_bits / 8;
      end_[count_] = at_[count_] + t.next_rows * row_bits / 8;
      ++count_;
    };
    switch (w.codec) {
      case Codec::kInt8Row:
        add(w.codes, k * 8);
        break;
      case Codec::kQ8_0:
        add(w.codes, w.in_blocks ? k / 32 * kQ8BlockBytes * 8 : k * 8);
        if (!w.in_blocks) add(w.scales, k / 32 * 16);
        break;
      case Codec::kNF4:
      case Codec::kFP4:
        add(w.codes, k * 4);
        add(w.scales, k * (w.nested ? 8 : 32) / w.blocksize);
        break;
      case Codec::kMXFP4:
        add(w.codes, k * 4);
        add(w.scales, k / 32 * 8);
        break;
      case Codec::kQ4_K:
      case Codec::kQ5_K:
      case Codec::kQ6_K:
        add(w.codes, k * 4);
        if (w.codec != Codec::kQ4_K) add(w.high, w.codec == Codec::kQ6_K ? k * 2 : k);
        add(w.scales, k / 256 * 16);
        add(w.mins, k / 256 * 16);
        add(w.sub_scales, k / 256 * (w.codec == Codec::kQ6_K ? 16 : 12) * 8);
        break;
      default:  // blocks of 32
        add(w.codes, k * 4);
        if (w.codec == Codec::kQ5_0 || w.codec == Codec::kQ5_1) add(w.high, k);
        add(w.scales, k / 32 * 16);
        add(w.mins, k / 32 * 16);
    }
    int64_t lines = 0;
    for (int i = 0; i < count_; ++i) lines += (end_[i] - at_[i] + 63) / 64;
    each_ = (lines + words - 1) / words;
    skip_ = late ? words - lines / each_ * 9 / 8 : 0;
  }
  // For the next `words` words: from where on, how many lines in each.
  void take(int64_t words, Asked& asked) {
    if (skip_ > 0) {
      skip_ -= words;
      return;
    }
    if (part_ == count_) return;
    asked.weights = at_[part_];
    asked.weight_lines = static_cast<int>(each_);
    at_[part_] += 64 * each_ * words;
    if (at_[part_] >= end_[part_]) ++part_;
  }

 private:
  static constexpr int kMostPlanes = 5;
  const char *at_[kMostPlanes] = {}, *end_[kMostPlanes] = {};
  int count_ = 0, part_ = 0;
  int64_t each_ = 0, skip_ = 0;
};

template <Kind kKind, bool kMin, bool kScaled>
void gemm(const GemmTask& t) {
  constexpr int64_t kRuns = kKind == Kind::kSix ? 2 : 1;
  constexpr bool kPairs = kRuns == 1;
  const int64_t words = t.w.k / 32;
  const LaneOrder<kLanes> order(words);
  const Operands op = operands(t.w);
  const Int8PanelScratch scratch(t.scratch, t.w.k);
  const Tiling tiles = tiling(t.m);
  const int64_t x_bytes = words * kInt8TileColumns * 4;  // per input
  const int64_t padded_m = tiles.padded();
  const int64_t panels = (t.row_count + kPanelN - 1) / kPanelN;
  constexpr int64_t kManyInputs = 1 << 20;  // bytes: all of them together push other memory out
  const int64_t calls = kPairs ? (tiles.count() + 1) / 2 : tiles.count();  // of a lane and panel
  Ahead ahead(t, panels * calls * words, padded_m * x_bytes > kManyInputs);
  for (int64_t group = 0; group < panels; group += kInt8Panels) {
    const int64_t group_end = group + kInt8Panels < panels ? group + kInt8Panels : panels;
    for (int64_t panel = group; panel < group_end; ++panel) {
      int64_t row[kPanelN];
      for (int64_t i = 0; i < kPanelN; ++i) {
        const int64_t n = panel * kPanelN + i;
        row[i] = t.w.stored_row(t.row_begin + (n < t.row_count ? n : t.row_count - 1));
      }
      pack_codes<kKind>(t.w, row, order, op, scratch.codes(panel - group));
      if (kScaled) pack_scales<kKind, kMin>(t.w, row, order, scratch, panel - group);
    }
    for (int64_t block = 0; block < padded_m;) {
      int64_t end = block;
      while (end < padded_m && end + tiles.tile_at(end) <= block + kInt8BlockM) end += tiles.tile_at(end);
      for (int64_t panel = group; panel < group_end; ++panel) {
        const int64_t n = panel * kPanelN;
        const Finish finish(t, n, t.w.codec == Codec::kInt8Row);
        for (int i = 0; i < kLanes; ++i) {
          const int64_t first = order.first[i], count = order.first[i + 1] - first;
          const bool finished = i + 1 == kLanes;
          const int8_t* const w = scratch.codes(panel - group) + first * kWordBytes;
          const float* const s = scratch.scales(panel - group) + first * kRuns * kPanelN;
          const float* const mn = scratch.minima(panel - group) + first * kPanelN;
          const auto lines_of_word = [&](int64_t of_lane) { return static_cast<int>((of_lane + count - 1) / count); };
          for (int64_t m = block; m < end;) {
            const int tile = tiles.tile_at(m);
            const bool pair = kPairs && tile != 5 && m + 2 * tile <= end && tiles.tile_at(m + tile) == tile;
            const int inputs = pair ? 2 * tile : tile;
            const int64_t x_tile = tile * x_bytes / 4;
            const int32_t* const x =
                reinterpret_cast<const int32_t*>(t.x + m * x_bytes) + first * kInt8TileColumns * tile;
            // The next tiles' part of this lane; after the last ones the first ones' part of the next lane.
            const bool last = m + inputs >= end;
            const int64_t next_m = last ? block : m + inputs, next_first = !last ? first : finished ? 0 : first + count;
            const std::byte* const next =
                t.x + next_m * x_bytes + next_first * kInt8TileColumns * 4 * tiles.tile_at(next_m);
            // Sums by tile, or by two: all levels of its inputs side by side.
            const auto level = [&](int64_t of, int merged) {
              return scratch.levels + ((of - block) * kLevels + merged * inputs) * kPanelN;
            };
            const TileOut out{merges(i),  level(m, 0), finished ? &finish : nullptr, t.y + m * t.y_stride + n,
                              t.y_stride, t.m - m};
            Asked asked;
            ahead.take(count, asked);
            if (!pair) {
              if (finished) prefetch_outputs(t, m, tile, n);
            } else if (count > 0) {
              asked.next_sums = reinterpret_cast<const char*>(level(next_m, last ? merges(i + 1) : out.merges));
              asked.sums = out.merges == 0 ? asked.next_sums : reinterpret_cast<const char*>(out.levels);
              asked.sums_end = reinterpret_cast<const char*>(level(m, out.merges));
              asked.sum_lines = lines_of_word((out.merges + (finished ? 0 : 1)) * 2 * inputs);
              asked.outputs = lines_of_word(inputs);
            }
            if (pair && tile == 6)
              pair_lane<kMin, kScaled, 6>(w, s, mn, x, x_tile, count, next, out, asked);
            else if (pair)
              pair_lane<kMin, kScaled, 4>(w, s, mn, x, x_tile, count, next, out, asked);
            else
              with_tile(tile, [&](auto n_inputs) {
                tile_lane<kKind, kMin, kScaled, n_inputs()>(w, s, mn, x, count, next, out, asked);
              });
            m += inputs;
          }
        }
      }
      block = end;
    }
  }
}

}  // namespace

GemmFn gemm_int8_avx512(Codec codec) {
  switch (codec) {
    case Codec::kNF4:
    case Codec::kFP4:
    case Codec::kMXFP4:
    case Codec::kQ4_0:
    case Codec::kIQ4_NL:
      return gemm<Kind::kBook, false, true>;
    case Codec::kQ4_1:
    case Codec::kQ4_K:
      return gemm<Kind::kBook, true, true>;
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
