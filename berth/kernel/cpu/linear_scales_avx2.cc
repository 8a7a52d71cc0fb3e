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

// n floats from fp16.
void widen_fp16(const uint16_t* d, int64_t n, float* s) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(s + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(d + i))));
  for (; i < n; ++i) s[i] = _cvtsh_ss(d[i]);
}

float absmax(const WeightView& w, int64_t block) {
  if (!w.nested) return static_cast<const float*>(w.scales)[block];
  const float product = w.nested_map[static_cast<const uint8_t*>(w.scales)[block]] * w.nested_absmax[block / 256];
  return product + w.nested_offset;
}

// Blocks [block, block + 8): two roundings, as bitsandbytes restores them. (A gather instruction would be slower.)
__m256 eight_absmax(const WeightView& w, int64_t block) {
  if (!w.nested) return _mm256_loadu_ps(static_cast<const float*>(w.scales) + block);
  uint64_t q;
  std::memcpy(&q, static_cast<const uint8_t*>(w.scales) + block, 8);
  alignas(32) float map[8];
  for (int i = 0; i < 8; ++i) map[i] = w.nested_map[(q >> (8 * i)) & 255];
  __m256 outer = _mm256_broadcast_ss(w.nested_absmax + block / 256);
  if (block / 256 != (block + 7) / 256) {
    alignas(32) float each[8];
    for (int i = 0; i < 8; ++i) each[i] = w.nested_absmax[(block + i) / 256];
    outer = _mm256_load_ps(each);
  }
  return _mm256_add_ps(_mm256_mul_ps(_mm256_load_ps(map), outer), _mm256_set1_ps(w.nested_offset));
}

// Blocks of the flattened matrix. A word of 32 elements lies in one block, since K and the block size are multiples
// of 32.
void bnb_scales(const WeightView& w, int64_t row, float* s) {
  const int64_t words = w.k / 32, first = row * words;  // in words of the flattened matrix
  const int64_t words_per_block = w.blocksize / 32;
  int64_t j = 0;
  if (words_per_block == 2) {
    if (first % 2 == 1) s[j++] = absmax(w, first / 2);
    for (; j + 16 <= words; j += 16) {  // 8 blocks: each absmax twice
      const __m256 a = eight_absmax(w, (first + j) / 2);
      const __m256 lo = _mm256_unpacklo_ps(a, a), hi = _mm256_unpackhi_ps(a, a);
      _mm256_storeu_ps(s + j, _mm256_permute2f128_ps(lo, hi, 0x20));
      _mm256_storeu_ps(s + j + 8, _mm256_permute2f128_ps(lo, hi, 0x31));
    }
  }
  while (j < words) {
    const int64_t block = (first + j) / words_per_block;
    const float a = absmax(w, block);
    for (const int64_t end = (block + 1) * words_per_block - first; j < end && j < words; ++j) s[j] = a;
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
  const int64_t n = w.k / 32;
  const uint8_t* e = static_cast<const uint8_t*>(w.scales) + row * n;
  for (int64_t b = 0; b < n; ++b) {
    const uint32_t bits = e[b] == 0 ? 0x00400000u : static_cast<uint32_t>(e[b]) << 23;
    std::memcpy(s + b, &bits, 4);
  }
}

void fp8_scales(const WeightView& w, int64_t row, float* s) {
  const int64_t n = w.k / 32;
  const float* d = static_cast<const float*>(w.scales) + row / 128 * ((w.k + 127) / 128);
  for (int64_t j = 0; j < n; ++j) s[j] = d[j / 4];
}

}  // namespace

void expand_scales_avx2(const WeightView& w, int64_t row, float* s, float* m) {
  const int64_t words = w.k / 32, padded = (words + 7) / 8 * 8;
  switch (w.codec) {
    case Codec::kNF4:
    case Codec::kFP4:
      bnb_scales(w, row, s);
      break;
    case Codec::kMXFP4:
      mxfp4_scales(w, row, s);
      break;
    case Codec::kFP8Block:
      fp8_scales(w, row, s);
      break;
    case Codec::kQ4_K:
    case Codec::kQ5_K:
      q45k_scales(w, row, s, m);
      return;
    case Codec::kQ6_K:
      q6k_scales(w, row, s);
      return;
    case Codec::kQ4_1:
    case Codec::kQ5_1:
      widen_fp16(w.mins + row * words, words, m);
      for (int64_t j = words; j < padded; ++j) m[j] = 0;
      [[fallthrough]];
    default:
      widen_fp16(static_cast<const uint16_t*>(w.scales) + row * words, words, s);
      break;
  }
  for (int64_t j = words; j < padded; ++j) s[j] = 0;
}

}  // namespace berth::kernel::cpu
