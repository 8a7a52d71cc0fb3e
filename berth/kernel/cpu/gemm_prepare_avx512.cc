// kernel/cpu/gemm_prepare_avx512.cc — register tiles of inputs in int8 mode with AVX-512 (gemm_prepare_avx2.cc has the
// other layouts). One word of a whole tile at a time: the maxima and divisions of all inputs side by side.
//
// Start reading at: int8_word.
#include <immintrin.h>

#include "berth/kernel/cpu/inline.h"
#include "berth/kernel/cpu/linear_kernels.h"
#include "berth/kernel/cpu/linear_lanes-inl.h"

namespace berth::kernel::cpu {
namespace {

// Pairs of inputs A, B, packed to bytes: 128-bit lane L holds A's elements 4L .. 4L + 3 and 16 + 4L .. 16 + 4L + 3,
// then B's. The permutation that makes 4-byte columns of them: column 0 of A, of B, column 1 of A, ...
struct ColumnOrder {
  uint8_t at[64];
};
constexpr ColumnOrder column_order(bool nibbles) {
  ColumnOrder order{};
  for (int to = 0; to < 64; ++to) {
    const int column = to / 8, input = to / 4 % 2, byte = to % 4;
    const int element = nibbles ? column / 2 * 8 + 2 * byte + column % 2 : column * 4 + byte;
    order.at[to] = static_cast<uint8_t>(element % 16 / 4 * 16 + input * 8 + element / 16 * 4 + element % 4);
  }
  return order;
}
template <bool kNibbles>
constexpr ColumnOrder kColumnOrder = column_order(kNibbles);

BERTH_INLINE __m512i low_halves(__m512i a, __m512i b) { return _mm512_shuffle_i64x2(a, b, 0x44); }
BERTH_INLINE __m512i high_halves(__m512i a, __m512i b) { return _mm512_shuffle_i64x2(a, b, 0xee); }
BERTH_INLINE __m512i even_lanes(__m512i a, __m512i b) { return _mm512_shuffle_i64x2(a, b, 0x88); }
BERTH_INLINE __m512i odd_lanes(__m512i a, __m512i b) { return _mm512_shuffle_i64x2(a, b, 0xdd); }

// Four vectors to one: lane i is f over the lanes of the i-th.
template <typename F>
BERTH_INLINE __m512i merge_lanes(__m512i a, __m512i b, __m512i c, __m512i d, F f) {
  const __m512i ab = f(low_halves(a, b), high_halves(a, b)), cd = f(low_halves(c, d), high_halves(c, d));
  return f(even_lanes(ab, cd), odd_lanes(ab, cd));
}

// In every dword of a lane f over its four.
template <typename F>
BERTH_INLINE __m512i merge_dwords(__m512i v, F f) {
  v = f(v, _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(0x4e)));
  return f(v, _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(0xb1)));
}

// Word `x` of kTile inputs; false where one of them is so small or so large that dx is not m / 127.
template <int kTile, bool kNibbles>
BERTH_INLINE bool int8_word(const float* x, int64_t x_stride, int32_t* out) {
  const auto max = [](__m512i a, __m512i b) { return _mm512_max_epu32(a, b); };
  const auto add = [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); };
  const __m512i no_sign = _mm512_set1_epi32(0x7fffffff), zero = _mm512_setzero_si512();
  __m512i most[8];
  for (int i = 0; i < kTile; ++i) {
    const __m512i v0 = _mm512_castps_si512(_mm512_loadu_ps(x + i * x_stride));
    const __m512i v1 = _mm512_castps_si512(_mm512_loadu_ps(x + i * x_stride + 16));
    most[i] = max(_mm512_and_si512(v0, no_sign), _mm512_and_si512(v1, no_sign));
  }
  // m of all inputs in one register.
  const __m512i of_four = merge_dwords(merge_lanes(most[0], most[1], most[2], most[3], max), max);
  __m512i of_two = zero;
  if (kTile == 6) of_two = merge_dwords(merge_lanes(most[4], most[5], most[4], most[5], max), max);
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m256i bits = _mm512_castsi512_si256(_mm512_permutex2var_epi32(of_four, first, of_two));
  constexpr __mmask8 kReal = (1 << kTile) - 1;
  constexpr int kLeast = 0x0d800000, kMost = 0x7f800000;  // 2^-100, Inf
  const __m256i above = _mm256_sub_epi32(bits, _mm256_set1_epi32(kLeast));
  if (_mm256_mask_cmpge_epu32_mask(kReal, above, _mm256_set1_epi32(kMost - kLeast)) != 0) return false;
  const __m256 m = _mm256_castsi256_ps(bits), most_code = _mm256_set1_ps(127.0f);
  alignas(32) float id[8];
  _mm256_store_ps(id, _mm256_div_ps(most_code, m));
  const __m256 dx = _mm256_div_ps(m, most_code);

  __m512i pair[3], columns[3], sums[3];
  const __m512i order = _mm512_loadu_si512(kColumnOrder<kNibbles>.at);
  for (int p = 0; p < kTile / 2; ++p) {
    __m512i words[2];
    for (int i = 0; i < 2; ++i) {
      const float* const from = x + (2 * p + i) * x_stride;
      const __m512 scale = _mm512_set1_ps(id[2 * p + i]);
      words[i] = _mm512_packs_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from), scale)),
                                    _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from + 16), scale)));
    }
    pair[p] = _mm512_packs_epi16(words[0], words[1]);
    columns[p] = _mm512_permutexvar_epi8(order, pair[p]);
    sums[p] = _mm512_dpbusd_epi32(zero, _mm512_set1_epi8(1), pair[p]);
  }
  // Lane p: the sums of A's and B's halves of the p-th pair.
  const __m512i halves = merge_lanes(sums[0], sums[1], sums[kTile == 6 ? 2 : 0], sums[1], add);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m256i a = _mm512_castsi512_si256(_mm512_permutexvar_epi32(even, halves));
  const __m256i b =
      _mm512_castsi512_si256(_mm512_permutexvar_epi32(_mm512_add_epi32(even, _mm512_set1_epi32(1)), halves));
  const __m256i sum = _mm256_add_epi32(a, b);

  if (kTile == 6) {
    const __m512i v0 = columns[0], v1 = columns[1], v2 = columns[2];
    const auto put = [&](int at, __m512i ab, __mmask8 of_c, __m512i c) {
      const __m512i mixed = _mm512_mask_permutexvar_epi64(_mm512_permutex2var_epi64(v0, ab, v1), of_c, c, v2);
      _mm512_storeu_si512(out + at, mixed);
    };
    put(0, _mm512_setr_epi64(0, 8, 0, 1, 9, 0, 2, 10), 0x24, _mm512_setr_epi64(0, 0, 0, 0, 0, 1, 0, 0));
    put(16, _mm512_setr_epi64(0, 3, 11, 0, 4, 12, 0, 5), 0x49, _mm512_setr_epi64(2, 0, 0, 3, 0, 0, 4, 0));
    put(32, _mm512_setr_epi64(13, 0, 6, 14, 0, 7, 15, 0), 0x92, _mm512_setr_epi64(0, 5, 0, 0, 6, 0, 0, 7));
  } else {
    const __m512i low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                  high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(columns[0], low, columns[1]));
    _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi64(columns[0], high, columns[1]));
  }
  const __m256i offset = _mm256_set1_epi32(kIntFloat);
  const auto start = [&](__m256i s) { return _mm256_sub_epi32(offset, _mm256_slli_epi32(s, 7)); };  // - 128 * sum
  const auto column = [&](int c, __m256i v) { _mm256_mask_storeu_epi32(out + c * kTile, kReal, v); };
  column(8, start(sum));
  column(9, start(a));
  column(10, start(b));
  column(11, _mm256_castps_si256(dx));
  column(12, _mm256_castps_si256(_mm256_cvtepi32_ps(sum)));
  return true;
}

template <int kTile, bool kNibbles>
void int8_tile(const float* x, int64_t x_stride, int64_t k, int32_t* out) {
  const int64_t words = k / 32;
  const LaneOrder<8> order(words);
  constexpr int kPlace = kInt8TileColumns * kTile;
  for (int64_t word = 0; word < words; ++word) {
    int32_t* const at = out + order.position(word) * kPlace;
    // The next tile's inputs, and the lane's next place.
    for (int i = 0; i < kTile; ++i) {
      const float* const next = x + (kTile + i) * x_stride + word * 32;
      _mm_prefetch(next, _MM_HINT_T1);
      _mm_prefetch(next + 16, _MM_HINT_T1);
    }
    for (int i = 0; i < kPlace; i += 16) __builtin_prefetch(at + kPlace + i, 1, 3);
    if (!int8_word<kTile, kNibbles>(x + word * 32, x_stride, at))
      int8_tile_word_avx2(x + word * 32, x_stride, kTile, kNibbles, at);
  }
}

}  // namespace

void prepare_tile_avx512(const float* x, int64_t x_stride, int rows, int tile, int64_t k, InputLayout layout,
                         std::byte* out) {
  const bool nibbles = layout == InputLayout::kNibbles;
  if (rows < tile || tile == 5 || !(nibbles || layout == InputLayout::kBytes))
    return prepare_tile_avx2(x, x_stride, rows, tile, k, layout, out);
  int32_t* const to = reinterpret_cast<int32_t*>(out);
  if (tile == 6)
    nibbles ? int8_tile<6, true>(x, x_stride, k, to) : int8_tile<6, false>(x, x_stride, k, to);
  else
    nibbles ? int8_tile<4, true>(x, x_stride, k, to) : int8_tile<4, false>(x, x_stride, k, to);
}

}  // namespace berth::kernel::cpu
