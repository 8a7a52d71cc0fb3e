// kernel/cpu/gemm_prepare_avx2.cc — lays inputs out as register tiles for the gemm loops (linear_kernels.h: gemm).
#include <immintrin.h>

#include <cstring>

#include "berth/kernel/cpu/linear_kernels.h"
#include "berth/kernel/cpu/linear_lanes-inl.h"
#include "berth/kernel/cpu/linear_quantize_avx2-inl.h"

namespace berth::kernel::cpu {
namespace {

// Element `e` of word `word` of every input of the tile, side by side.
template <int kTile, int kElements>
void exact_tile(const float* x, int64_t x_stride, int rows, int64_t k, float* out) {
  const int64_t words = k / kElements;
  const LaneOrder<32> order(words);
  float* t_out = out + k * kTile;
  for (int i = 0; i < 32; ++i) {
    for (int64_t word = order.lane(i); word < words; word += 32) {
      float element[kElements][kTile] = {};
      for (int m = 0; m < rows; ++m)
        for (int e = 0; e < kElements; ++e)
          element[kElements == 8 ? e ^ 1 : e][m] = x[m * x_stride + word * kElements + e];
      std::memcpy(out, element, sizeof element);
      out += kElements * kTile;
      if (kElements == 8) {
        for (int m = 0; m < kTile; ++m) {
          float t = element[0][m];
          for (int e = 1; e < kElements; ++e) t = t + element[e][m];
          t_out[m] = t;
        }
        t_out += kTile;
      }
    }
  }
}

// Eight vectors of eight dwords, rows to columns.
inline void transpose8(__m256i r[8]) {
  __m256i a[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int half = 0; half < 8; half += 4) {
    r[half] = _mm256_unpacklo_epi64(a[half], a[half + 2]);
    r[half + 1] = _mm256_unpackhi_epi64(a[half], a[half + 2]);
    r[half + 2] = _mm256_unpacklo_epi64(a[half + 1], a[half + 3]);
    r[half + 3] = _mm256_unpackhi_epi64(a[half + 1], a[half + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    const __m256i low = r[i], high = r[4 + i];
    r[i] = _mm256_permute2x128_si256(low, high, 0x20);
    r[4 + i] = _mm256_permute2x128_si256(low, high, 0x31);
  }
}

// A column of a tile: the first kTile of eight dwords.
template <int kTile>
inline void put_column(int32_t* at, __m256i v) {
  if (kTile == 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_castsi256_si128(v));
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_castsi256_si128(v));
    const __m128i rest = _mm256_extracti128_si256(v, 1);
    if (kTile == 5)
      at[4] = _mm_cvtsi128_si32(rest);
    else
      _mm_storel_epi64(reinterpret_cast<__m128i*>(at + 4), rest);
  }
}

template <int kTile>
void int8_word(const float* x, int64_t x_stride, int rows, bool nibbles, int32_t* at) {
  const __m256i offset = _mm256_set1_epi32(kIntFloat);
  const auto start = [&](__m256i sum) { return _mm256_sub_epi32(offset, _mm256_slli_epi32(sum, 7)); };  // - 128 * sum
  __m256i q[8] = {};
  alignas(32) int32_t first[8] = {}, second[8] = {};
  alignas(32) float dx[8] = {};
  for (int m = 0; m < rows; ++m) {
    const Int8Word w = quantize_word(x + m * x_stride, q[m]);
    if (nibbles)  // even 16, odd 16 -> their quarters in turn
      q[m] = _mm256_permutevar8x32_epi32(even_odd(q[m]), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    first[m] = w.half_sum[0];
    second[m] = w.half_sum[1];
    dx[m] = w.dx;
  }
  transpose8(q);
  for (int c = 0; c < 8; ++c) put_column<kTile>(at + c * kTile, q[c]);
  const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i b = _mm256_load_si256(reinterpret_cast<const __m256i*>(second));
  const __m256i sum = _mm256_add_epi32(a, b);
  put_column<kTile>(at + 8 * kTile, start(sum));
  put_column<kTile>(at + 9 * kTile, start(a));
  put_column<kTile>(at + 10 * kTile, start(b));
  put_column<kTile>(at + 11 * kTile, _mm256_castps_si256(_mm256_load_ps(dx)));
  put_column<kTile>(at + 12 * kTile, _mm256_castps_si256(_mm256_cvtepi32_ps(sum)));
}

template <int kTile>
void int8_tile(const float* x, int64_t x_stride, int rows, int64_t k, bool nibbles, int32_t* out) {
  const int64_t words = k / 32;
  const LaneOrder<8> order(words);
  for (int64_t word = 0; word < words; ++word)
    int8_word<kTile>(x + word * 32, x_stride, rows, nibbles, out + order.position(word) * kInt8TileColumns * kTile);
}

template <int kTile>
void tile_of(const float* x, int64_t x_stride, int rows, int64_t k, InputLayout layout, std::byte* out) {
  float* f = reinterpret_cast<float*>(out);
  switch (layout) {
    case InputLayout::kWords1:
      exact_tile<kTile, 1>(x, x_stride, rows, k, f);
      break;
    case InputLayout::kWords2:
      exact_tile<kTile, 2>(x, x_stride, rows, k, f);
      break;
    case InputLayout::kWords4:
      exact_tile<kTile, 4>(x, x_stride, rows, k, f);
      break;
    case InputLayout::kWords8:
      exact_tile<kTile, 8>(x, x_stride, rows, k, f);
      break;
    case InputLayout::kNibbles:
      int8_tile<kTile>(x, x_stride, rows, k, true, reinterpret_cast<int32_t*>(out));
      break;
    case InputLayout::kBytes:
      int8_tile<kTile>(x, x_stride, rows, k, false, reinterpret_cast<int32_t*>(out));
      break;
  }
}

}  // namespace

void int8_tile_word_avx2(const float* x, int64_t x_stride, int tile, bool nibbles, int32_t* out) {
  with_tile(tile, [&](auto n) { int8_word<n()>(x, x_stride, tile, nibbles, out); });
}

void prepare_tile_avx2(const float* x, int64_t x_stride, int rows, int tile, int64_t k, InputLayout layout,
                       std::byte* out) {
  with_tile(tile, [&](auto n) { tile_of<n()>(x, x_stride, rows, k, layout, out); });
}

}  // namespace berth::kernel::cpu
