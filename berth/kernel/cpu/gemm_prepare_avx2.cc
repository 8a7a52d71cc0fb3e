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

template <int kTile>
void int8_tile(const float* x, int64_t x_stride, int rows, int64_t k, bool nibbles, int32_t* out) {
  const int64_t words = k / 32;
  const LaneOrder<8> order(words);
  for (int64_t word = 0; word < words; ++word) {
    int32_t* at = out + order.position(word) * kInt8TileColumns * kTile;
    for (int m = 0; m < kTile; ++m) {
      __m256i q = _mm256_setzero_si256();
      const Int8Word w = m < rows ? quantize_word(x + m * x_stride + word * 32, q) : Int8Word{};
      if (nibbles) {  // even 16, odd 16 -> their quarters in turn
        q = _mm256_permutevar8x32_epi32(even_odd(q), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
      }
      alignas(32) int32_t columns[8];
      _mm256_store_si256(reinterpret_cast<__m256i*>(columns), q);
      for (int c = 0; c < 8; ++c) at[c * kTile + m] = columns[c];
      const int32_t sum = w.half_sum[0] + w.half_sum[1];
      const float sum_float = static_cast<float>(sum);
      at[8 * kTile + m] = kIntFloat - 128 * sum;
      at[9 * kTile + m] = kIntFloat - 128 * w.half_sum[0];
      at[10 * kTile + m] = kIntFloat - 128 * w.half_sum[1];
      std::memcpy(at + 11 * kTile + m, &w.dx, 4);
      std::memcpy(at + 12 * kTile + m, &sum_float, 4);
    }
  }
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

void prepare_tile_avx2(const float* x, int64_t x_stride, int rows, int tile, int64_t k, InputLayout layout,
                       std::byte* out) {
  tile == 6 ? tile_of<6>(x, x_stride, rows, k, layout, out) : tile_of<4>(x, x_stride, rows, k, layout, out);
}

}  // namespace berth::kernel::cpu
