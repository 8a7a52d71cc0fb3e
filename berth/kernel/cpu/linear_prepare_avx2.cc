// kernel/cpu/linear_prepare_avx2.cc — lays one input x out as the `rows` loops read it (linear_kernels.h: InputLayout).
//
// Exact: the k-th element of x goes to the vector lane of its word. Int8: quantized by words of 32 (numerics.md 5).
// Used by every x86 instruction set: x is small, and eight floats at a time are enough for it.
#include <immintrin.h>

#include <cstring>

#include "berth/kernel/cpu/linear_kernels.h"
#include "berth/kernel/cpu/linear_quantize_avx2-inl.h"

namespace berth::kernel::cpu {
namespace {

// r[w] = 8 elements of word w  ->  r[e] = element e of 8 words.
inline void transpose8(__m256 r[8]) {
  __m256 a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i + 0] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
    b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
    b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
    b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}

// Where the vectors of the g-th group of 8 words of E elements begin, and how far apart they are.
struct Place {
  float* at;
  int64_t step;
};
inline Place group_place(float* out, int64_t g, int e, int v) {
  if (v == 8) return {out + g * 8 * e, 8};
  return {out + g / 2 * 16 * e + g % 2 * 8, 16};
}

void prepare_words8(const float* x, int64_t k, int v, float* out) {
  const int64_t steps = (k + 255) / 256;
  float* t_out = out + steps * 256;
  for (int64_t g = 0; g < steps * 4; ++g) {
    __m256 r[8];
    for (int w = 0; w < 8; ++w) {
      const int64_t at = g * 64 + w * 8;
      r[w] = at < k ? _mm256_loadu_ps(x + at) : _mm256_setzero_ps();
    }
    transpose8(r);
    const Place p = group_place(out, g, 8, v);
    __m256 t = r[1];
    for (int i = 0; i < 8; ++i) {
      _mm256_storeu_ps(p.at + i * p.step, r[i ^ 1]);  // nibbles by bit position: elements 1 0 3 2 5 4 7 6
      if (i > 0) t = _mm256_add_ps(t, r[i ^ 1]);
    }
    _mm256_storeu_ps(t_out + g * 8, t);
  }
}

void prepare_words4(const float* x, int64_t k, int v, float* out) {
  const int64_t groups = (k + 127) / 128 * 4;
  for (int64_t g = 0; g < groups; ++g) {
    const Place p = group_place(out, g, 4, v);
    __m128 r[8];
    for (int w = 0; w < 8; ++w) r[w] = g * 32 < k ? _mm_loadu_ps(x + g * 32 + w * 4) : _mm_setzero_ps();
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
    _MM_TRANSPOSE4_PS(r[4], r[5], r[6], r[7]);
    for (int i = 0; i < 4; ++i) {
      _mm_storeu_ps(p.at + i * p.step, r[i]);
      _mm_storeu_ps(p.at + i * p.step + 4, r[4 + i]);
    }
  }
}

void prepare_words2(const float* x, int64_t k, int v, float* out) {
  const int64_t groups = (k + 127) / 128 * 8;
  for (int64_t g = 0; g < groups; ++g) {
    const Place p = group_place(out, g, 2, v);
    const __m256 a = g * 16 < k ? _mm256_loadu_ps(x + g * 16) : _mm256_setzero_ps();
    const __m256 b = g * 16 < k ? _mm256_loadu_ps(x + g * 16 + 8) : _mm256_setzero_ps();
    const __m256 even = _mm256_shuffle_ps(a, b, 0x88), odd = _mm256_shuffle_ps(a, b, 0xdd);
    _mm256_storeu_ps(p.at, _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xd8)));
    _mm256_storeu_ps(p.at + p.step, _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xd8)));
  }
}

void prepare_int8(const float* x, int64_t k, InputLayout layout, int v, Int8Step* out) {
  const bool nibbles = layout == InputLayout::kNibbles;
  const uint8_t* order = nibbles && v == 16 ? kInt8OrderNibbles512 : kInt8Order;
  for (int64_t step = 0; step * 256 < k; ++step) {
    Int8Step& s = out[step];
    Int8Word words[8];
    for (int w = 0; w < 8; ++w) {
      const int64_t at = step * 256 + w * 32;
      __m256i q = _mm256_setzero_si256();
      words[w] = at < k ? quantize_word(x + at, q) : Int8Word{};
      if (nibbles) {
        q = even_odd(q);
        _mm_store_si128(reinterpret_cast<__m128i*>(s.q + 16 * w), _mm256_castsi256_si128(q));
        _mm_store_si128(reinterpret_cast<__m128i*>(s.q + Int8Step::kOdd + 16 * w), _mm256_extracti128_si256(q, 1));
      } else {
        _mm256_store_si256(reinterpret_cast<__m256i*>(s.q + 32 * w), q);
      }
    }
    if (v == 8) {
      for (int i = 0; i < 256; i += 32) {
        const __m256i q = _mm256_load_si256(reinterpret_cast<const __m256i*>(s.q + i));
        _mm256_store_si256(reinterpret_cast<__m256i*>(s.q_abs + i), _mm256_abs_epi8(q));
      }
    }
    for (int p = 0; p < 16; ++p) {
      const Int8Word& word = words[order[p]];
      s.dx[p] = word.dx;
      s.sum[p] = word.half_sum[0] + word.half_sum[1];
      s.half_sum[0][p] = word.half_sum[0];
      s.half_sum[1][p] = word.half_sum[1];
    }
  }
}

}  // namespace

void prepare_input_avx2(const float* x, int64_t k, InputLayout layout, int v, std::byte* out) {
  float* f = reinterpret_cast<float*>(out);
  switch (layout) {
    case InputLayout::kWords1: {
      const int64_t padded = (k + 127) / 128 * 128;
      std::memcpy(f, x, static_cast<size_t>(k) * 4);
      std::memset(f + k, 0, static_cast<size_t>(padded - k) * 4);
      break;
    }
    case InputLayout::kWords2:
      prepare_words2(x, k, v, f);
      break;
    case InputLayout::kWords4:
      prepare_words4(x, k, v, f);
      break;
    case InputLayout::kWords8:
      prepare_words8(x, k, v, f);
      break;
    case InputLayout::kNibbles:
    case InputLayout::kBytes:
      prepare_int8(x, k, layout, v, reinterpret_cast<Int8Step*>(out));
      break;
  }
}

}  // namespace berth::kernel::cpu
