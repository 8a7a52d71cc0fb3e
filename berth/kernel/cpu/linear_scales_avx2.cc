// kernel/cpu/linear_scales_avx2.cc — a row's scales, whatever the format, as one float per 32 elements (Q6_K: per 16).
//
// The hot loops then have one kind of scale. A row's scales are a 32nd of its elements, so this costs little and may
// keep them where they were stored: fp16, 6-bit, nested. The values are quant/codec.h's row_scales, bit for bit.
#include <immintrin.h>

#include <cstring>

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;

// Everything is stored eight floats at a time, the last ones too: the hot loops load 16 to 64 bytes at a time soon
// after, and what several narrow stores wrote cannot be forwarded to such a load. Planes may be read 64 bytes past
// their end.
inline void store8(float* s, int64_t j, int64_t words, __m256 v) {
  if (j + 8 > words) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i real = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(words - j)), lane);
    v = _mm256_and_ps(v, _mm256_castsi256_ps(real));
  }
  _mm256_storeu_ps(s + j, v);
}

// Asks for the same plane a row further on (at least 256 bytes): rows are expanded in ascending order, several streams
// of them in turn, too slowly for the hardware to see the streams.
inline void ask_ahead(const void* plane, int64_t row_bytes) {
  const char* const ahead = static_cast<const char*>(plane) + (row_bytes < 256 ? 256 : row_bytes);
  for (int64_t at = 0; at < row_bytes; at += 64) _mm_prefetch(ahead + at, _MM_HINT_T0);
}

void widen_fp16(const uint16_t* d, int64_t words, float* s) {
  ask_ahead(d, words * 2);
  for (int64_t j = 0; j < words; j += 8)
    store8(s, j, words, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(d + j))));
}

// The d of blocks that lie where their codes do; asking for those ahead is the loop's business.
void block_scales(const uint8_t* row, int64_t words, float* s) {
  for (int64_t j = 0; j < words; j += 8) {
    alignas(16) uint16_t d[8] = {};
    for (int64_t i = 0; i < 8 && j + i < words; ++i) std::memcpy(&d[i], row + (j + i) * kQ8BlockBytes, 2);
    store8(s, j, words, _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(d))));
  }
}

// One absmax; two roundings where it is nested, as bitsandbytes restores it.
float absmax(const WeightView& w, int64_t block) {
  if (!w.nested) return static_cast<const float*>(w.scales)[block];
  const float product = w.nested_map[static_cast<const uint8_t*>(w.scales)[block]] * w.nested_absmax[block / 256];
  return product + w.nested_offset;
}

// Nested absmax of blocks [block, block + 8), all of them within the same 256. (A gather instruction would be slower.)
__m256 eight_nested(const WeightView& w, int64_t block) {
  uint64_t q;
  std::memcpy(&q, static_cast<const uint8_t*>(w.scales) + block, 8);
  const float* map = w.nested_map;
  const __m256 product =
      _mm256_mul_ps(_mm256_setr_ps(map[q & 255], map[(q >> 8) & 255], map[(q >> 16) & 255], map[(q >> 24) & 255],
                                   map[(q >> 32) & 255], map[(q >> 40) & 255], map[(q >> 48) & 255], map[q >> 56]),
                    _mm256_broadcast_ss(w.nested_absmax + block / 256));
  return _mm256_add_ps(product, _mm256_set1_ps(w.nested_offset));
}

// Blocks of the flattened matrix. A word of 32 elements lies in one block, since K and the block size are multiples
// of 32.
void bnb_scales(const WeightView& w, int64_t row, float* s) {
  const int64_t words = w.k / 32, first = row * words;  // in words of the flattened matrix
  const int64_t words_per_block = w.blocksize / 32;
  const int64_t scale_bytes = w.nested ? 1 : 4;
  ask_ahead(static_cast<const uint8_t*>(w.scales) + first / words_per_block * scale_bytes,
            words / words_per_block * scale_bytes);
  int64_t j = 0;
  if (words_per_block == 2 && !w.nested) {
    // A row that begins in mid-block takes one of the first block and then pairs.
    const __m256i pairs =
        first % 2 == 0 ? _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3) : _mm256_setr_epi32(0, 1, 1, 2, 2, 3, 3, 4);
    const float* a = static_cast<const float*>(w.scales) + first / 2;
    for (; j < words; j += 8) store8(s, j, words, _mm256_permutevar8x32_ps(_mm256_loadu_ps(a + j / 2), pairs));
    return;
  }
  if (words_per_block == 2 && first % 2 == 0) {
    for (; j + 16 <= words; j += 16) {
      const int64_t block = (first + j) / 2;
      if (block / 256 != (block + 7) / 256) break;
      const __m256 a = eight_nested(w, block);
      const __m256 lo = _mm256_unpacklo_ps(a, a), hi = _mm256_unpackhi_ps(a, a);
      _mm256_storeu_ps(s + j, _mm256_permute2f128_ps(lo, hi, 0x20));
      _mm256_storeu_ps(s + j + 8, _mm256_permute2f128_ps(lo, hi, 0x31));
    }
  }
  for (; j < words; j += 8) {
    float each[8];
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t word = first + (j + i < words ? j + i : words - 1);
      each[i] = i > 0 && word % words_per_block != 0 ? each[i - 1] : absmax(w, word / words_per_block);
    }
    store8(s, j, words, _mm256_setr_ps(each[0], each[1], each[2], each[3], each[4], each[5], each[6], each[7]));
  }
}

// Eight 6-bit scales and eight 6-bit minima from 12 bytes:
//   bytes 0-3: sc0..3 | top two bits of sc4..7;  bytes 4-7: mn0..3 | top bits of mn4..7;  bytes 8-11: low 4 of sc4..7 |
//   mn4..7
void q45k_scales(const WeightView& w, int64_t row, float* s, float* m) {
  const int64_t n = w.k / 256, at = row * n;
  const uint16_t* d = static_cast<const uint16_t*>(w.scales) + at;
  const uint16_t* dmin = w.mins + at;
  const uint8_t* packed = w.sub_scales + at * 12;
  const __m256 sign = _mm256_set1_ps(-0.0f);
  ask_ahead(d, n * 2);
  ask_ahead(dmin, n * 2);
  ask_ahead(packed, n * 12);
  for (int64_t b = 0; b < n; ++b) {
    uint32_t p[3];
    std::memcpy(p, packed + 12 * b, 12);
    const uint64_t sc = (p[0] & 0x3f3f3f3fu) | static_cast<uint64_t>((p[2] & 0x0f0f0f0fu) | ((p[0] >> 2) & 0x30303030u))
                                                   << 32;
    const uint64_t mn =
        (p[1] & 0x3f3f3f3fu) | static_cast<uint64_t>(((p[2] >> 4) & 0x0f0f0f0fu) | ((p[1] >> 2) & 0x30303030u)) << 32;
    const __m256 scales = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(sc))));
    const __m256 minima = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(mn))));
    _mm256_storeu_ps(s + 8 * b, _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(d[b])), scales));
    _mm256_storeu_ps(m + 8 * b, _mm256_xor_ps(sign, _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(dmin[b])), minima)));
  }
}

void q6k_scales(const WeightView& w, int64_t row, float* s) {
  const int64_t n = w.k / 256, at = row * n;
  const uint16_t* d = static_cast<const uint16_t*>(w.scales) + at;
  const uint8_t* sub = w.sub_scales + at * 16;
  ask_ahead(d, n * 2);
  ask_ahead(sub, n * 16);
  for (int64_t b = 0; b < n; ++b) {
    const __m256 scale = _mm256_set1_ps(_cvtsh_ss(d[b]));
    for (int h = 0; h < 2; ++h) {
      const __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(sub + 16 * b + 8 * h)));
      _mm256_storeu_ps(s + 16 * b + 8 * h, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(q)));
    }
  }
}

// 2^(e - 127): e in the exponent field; e = 0 is the subnormal 2^-127.
void mxfp4_scales(const WeightView& w, int64_t row, float* s) {
  const int64_t words = w.k / 32;
  const uint8_t* e = static_cast<const uint8_t*>(w.scales) + row * words;
  ask_ahead(e, words);
  for (int64_t j = 0; j < words; j += 8) {
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(e + j)));
    const __m256i subnormal =
        _mm256_and_si256(_mm256_cmpeq_epi32(wide, _mm256_setzero_si256()), _mm256_set1_epi32(0x00400000));
    store8(s, j, words, _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(wide, 23), subnormal)));
  }
}

// Four words of 32 to a tile of 128.
void fp8_scales(const WeightView& w, int64_t row, float* s) {
  const int64_t words = w.k / 32;
  const float* d = static_cast<const float*>(w.scales) + row / 128 * ((w.k + 127) / 128);
  const __m256i fours = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  for (int64_t j = 0; j < words; j += 8) {
    const __m128i two = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(d + j / 4));
    store8(s, j, words, _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_castsi128_ps(two)), fours));
  }
}

}  // namespace

void expand_scales_avx2(const WeightView& w, int64_t row, float* s, float* m) {
  const int64_t words = w.k / 32;
  if (w.in_blocks) return block_scales(w.codes + row * words * kQ8BlockBytes, words, s);
  switch (w.codec) {
    case Codec::kNF4:
    case Codec::kFP4:
      return bnb_scales(w, row, s);
    case Codec::kMXFP4:
      return mxfp4_scales(w, row, s);
    case Codec::kFP8Block:
      return fp8_scales(w, row, s);
    case Codec::kQ4_K:
    case Codec::kQ5_K:
      return q45k_scales(w, row, s, m);
    case Codec::kQ6_K:
      return q6k_scales(w, row, s);
    case Codec::kQ4_1:
    case Codec::kQ5_1:
      widen_fp16(w.mins + row * words, words, m);
      [[fallthrough]];
    default:
      return widen_fp16(static_cast<const uint16_t*>(w.scales) + row * words, words, s);
  }
}

}  // namespace berth::kernel::cpu
