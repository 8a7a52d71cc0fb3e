// kernel/cpu/encode_avx2.cc — the encoders' loops for AVX2.
//
// A value's place among 15 ascending thresholds is a binary search of four steps; the threshold to look at is permuted
// out of a register by the place so far.
#include <immintrin.h>

#include <cstring>

#include "berth/kernel/cpu/encode_kernels.h"

namespace berth::kernel::cpu {
namespace {

// fp32 to bf16 and back, to nearest even; NaN stays quiet.
inline __m256 through_bf16(__m256 v) {
  const __m256i u = _mm256_castps_si256(v), high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
  return _mm256_castsi256_ps(_mm256_and_si256(
      high, _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan))));
}

inline __m256 through(SourceType rounding, __m256 v) {
  if (rounding == SourceType::kBF16) return through_bf16(v);
  if (rounding == SourceType::kF16) return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  return v;
}

inline __m256 load8(SourceType type, const unsigned char* p) {
  if (type == SourceType::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  if (type == SourceType::kF16) return _mm256_cvtph_ps(h);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

void widen(SourceType type, const void* x, int64_t n, SourceType rounding, float* out) {
  const auto* p = static_cast<const unsigned char*>(x);
  const int64_t size = type == SourceType::kF32 ? 4 : 2;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, through(rounding, load8(type, p + i * size)));
  if (i < n) {
    alignas(32) unsigned char part[32] = {};
    alignas(32) float values[8];
    std::memcpy(part, p + i * size, static_cast<size_t>((n - i) * size));
    _mm256_store_ps(values, through(rounding, load8(type, part)));
    std::memcpy(out + i, values, static_cast<size_t>(n - i) * 4);
  }
}

uint32_t largest(const float* x, int64_t n) {
  const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    most =
        _mm256_max_epu32(most, _mm256_and_si256(no_sign, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i))));
  uint32_t lanes[8], result = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), most);
  for (const uint32_t lane : lanes) result = lane > result ? lane : result;
  for (; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7fffffffu;
    result = bits > result ? bits : result;
  }
  return result;
}

struct Search {
  __m256 first, second, third, fourth;  // thresholds of each step by the place so far
};

// How many thresholds lie below each value.
inline __m256i place(const Search& t, __m256 s) {
  __m256i p = _mm256_and_si256(_mm256_castps_si256(_mm256_cmp_ps(s, t.first, _CMP_GT_OQ)), _mm256_set1_epi32(1));
  const auto next = [&](const __m256& step) {
    const __m256i above = _mm256_castps_si256(_mm256_cmp_ps(s, _mm256_permutevar8x32_ps(step, p), _CMP_GT_OQ));
    p = _mm256_sub_epi32(_mm256_add_epi32(p, p), above);  // a true lane is -1
  };
  next(t.second);
  next(t.third);
  next(t.fourth);
  return p;
}

void classify(const Thresholds& t, const float* x, int64_t n, float reciprocal, uint8_t* codes) {
  const float* v = t.value;
  const Search search{_mm256_set1_ps(v[7]), _mm256_setr_ps(v[3], v[11], 0, 0, 0, 0, 0, 0),
                      _mm256_setr_ps(v[1], v[5], v[9], v[13], 0, 0, 0, 0),
                      _mm256_setr_ps(v[0], v[2], v[4], v[6], v[8], v[10], v[12], v[14])};
  const __m256 scale = _mm256_set1_ps(reciprocal), one = _mm256_set1_ps(1.0f), minus_one = _mm256_set1_ps(-1.0f);
  const __m256i code = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t.code)));
  const __m256i pair = _mm256_set1_epi16(0x0110);  // first * 16 + second
  for (int64_t i = 0; i < n; i += 32) {
    __m256i p[4];
    for (int j = 0; j < 4; ++j) {
      const __m256 s = _mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * j), scale);
      p[j] = place(search, _mm256_max_ps(_mm256_min_ps(s, one), minus_one));
    }
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(p[0], p[1]), _mm256_packs_epi32(p[2], p[3]));
    const __m256i in_order = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_shuffle_epi8(code, in_order), pair);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i / 2), _mm256_castsi256_si128(packed));
  }
}

void round_int8(const float* x, int64_t n, float scale, int8_t* codes) {
  const __m256 by = _mm256_set1_ps(scale);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), by));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + i), _mm_packs_epi16(words, words));
  }
  for (; i < n; ++i) codes[i] = static_cast<int8_t>(_mm_cvtss_si32(_mm_set_ss(x[i] * scale)));
}

}  // namespace

const EncodeKernels kEncodeAvx2{widen, largest, classify, round_int8, nullptr, nullptr, nullptr, nullptr};

}  // namespace berth::kernel::cpu
