// kernel/cpu/encode_bf16_avx512.cc — bf16 weights to nf4, fp4 and int8 as 16-bit integers, for AVX-512 (VBMI).
//
// 4 bit: 64 weights at a time by the tables of Bf16Table (encode_kernels.h), all in integers. Two vectors of 16-bit
// numbers become two vectors of bytes, their bins and their places there, with the first vector's elements in the even
// bytes and the second's in the odd ones; one byte permute looks up a bin's place, one its threshold. About 30
// instructions per 64 weights.
//
// int8: twice over a row, whose largest magnitude is that of 16-bit integers.
#include <immintrin.h>

#include <cstring>

#include "berth/kernel/cpu/encode_kernels.h"
#include "berth/kernel/cpu/encode_stream-inl.h"

namespace berth::kernel::cpu {
namespace {

inline __m512i magnitudes(const uint16_t* x) {
  return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi16(0x7fff));
}

// 0xffff - the largest 16-bit number, in the first 16 bits.
inline __m128i largest(__m512i m) {
  const __m256i a = _mm256_max_epu16(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
  const __m128i b = _mm_max_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  return _mm_minpos_epu16(_mm_xor_si128(b, _mm_set1_epi16(-1)));
}

constexpr int kSelect = 0xca;  // ternary logic: the second where the first has a 1, else the third

// Byte 2i of the result from word i of `first`, byte 2i + 1 from that of `second`: their low 5 bits, and bits 5 to 10.
struct Bytes {
  __m512i low, bin;
};
inline Bytes interleaved(__m512i first, __m512i second) {
  const __m512i even = _mm512_set1_epi16(0x00ff);
  return {_mm512_and_si512(_mm512_ternarylogic_epi32(even, first, _mm512_slli_epi16(second, 8), kSelect),
                           _mm512_set1_epi8(31)),
          _mm512_ternarylogic_epi32(even, _mm512_srli_epi16(first, 5), _mm512_slli_epi16(second, 3), kSelect)};
}

// Codes in bytes, in that order, as 32 bytes of pairs: 32-bit word t has elements 2t and 2t + 1 of both vectors.
inline __m256i pairs(__m512i codes) {
  const __m512i nibbles = _mm512_or_si512(_mm512_slli_epi32(codes, 4), _mm512_srli_epi32(codes, 16));
  alignas(64) static constexpr uint8_t kOrder[64] = {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,
                                                     1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61};
  return _mm512_castsi512_si256(_mm512_permutexvar_epi8(_mm512_load_si512(kOrder), nibbles));
}

inline __m512i places(const Bf16Table& table, const Bytes& bytes, __m512i above) {
  const __m512i base = _mm512_permutexvar_epi8(bytes.bin, _mm512_load_si512(table.base));
  return _mm512_mask_add_epi8(base, _mm512_cmpge_epu8_mask(bytes.low, above), base, _mm512_set1_epi8(1));
}

// One format: `least` has the number absmax - kReach, m0 and m1 the magnitudes of the 64 weights at x.
struct Nf4 {
  static constexpr int kReach = kNf4Reach;
  static __m256i encode(const Bf16Tables&, const Bf16Table& table, const uint16_t* x, __m512i m0, __m512i m1,
                        __m512i least) {
    // 2047 - g is g with 11 bits turned over.
    const auto number = [&](const uint16_t* at, __m512i m) {
      return _mm512_ternarylogic_epi32(_mm512_subs_epu16(m, least), _mm512_srai_epi16(_mm512_loadu_si512(at), 15),
                                       _mm512_set1_epi16(0x7ff), 0x78);  // a ^ (b & c)
    };
    const Bytes bytes = interleaved(number(x, m0), number(x + 32, m1));
    return pairs(places(table, bytes, _mm512_permutexvar_epi8(bytes.bin, _mm512_load_si512(table.above))));
  }
};

struct Fp4 {
  static constexpr int kReach = kFp4Reach;
  static __m256i encode(const Bf16Tables& tables, const Bf16Table& table, const uint16_t* x, __m512i m0, __m512i m1,
                        __m512i least) {
    const Bytes bytes = interleaved(_mm512_subs_epu16(m0, least), _mm512_subs_epu16(m1, least));
    // Zeros of both signs are on the negative side.
    const auto less_one = [&](const uint16_t* at) {
      return _mm512_subs_epi16(_mm512_loadu_si512(at), _mm512_set1_epi16(1));
    };
    const __mmask64 negative = _mm512_movepi8_mask(_mm512_ternarylogic_epi32(
        _mm512_set1_epi16(0x00ff), _mm512_srli_epi16(less_one(x), 8), less_one(x + 32), kSelect));
    const __m512i above = _mm512_permutexvar_epi8(bytes.bin, _mm512_load_si512(table.above));
    const __m512i place =
        places(table, bytes,
               _mm512_mask_permutexvar_epi8(above, negative, bytes.bin, _mm512_load_si512(table.above_negative)));
    const __m512i signed_place = _mm512_mask_add_epi8(place, negative, place, _mm512_set1_epi8(8));
    return pairs(_mm512_shuffle_epi8(_mm512_load_si512(tables.code), signed_place));
  }
};

template <typename Format>
int64_t encode(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
               float* absmax) {
  CodeStore store(codes);
  for (int64_t block = 0; block < blocks; ++block, x += blocksize, codes += blocksize / 2) {
    fetch_128(x);
    __m512i m0 = magnitudes(x), m1 = magnitudes(x + 32), most = _mm512_max_epu16(m0, m1);
    for (int64_t i = 64; i < blocksize; i += 64) {
      fetch_128(x + i);
      most = _mm512_max_epu16(most, _mm512_max_epu16(magnitudes(x + i), magnitudes(x + i + 32)));
    }
    const __m128i turned = largest(most);
    const uint32_t bits = 0xffffu - (static_cast<uint32_t>(_mm_cvtsi128_si32(turned)) & 0xffffu);
    if (bits - kLeastTabled >= kTabledEnd - kLeastTabled) return block;
    const uint32_t wide = bits << 16;
    std::memcpy(absmax + block, &wide, 4);
    const __m512i least =
        _mm512_broadcastw_epi16(_mm_sub_epi16(_mm_set1_epi16(static_cast<int16_t>(0xffff - Format::kReach)), turned));
    const Bf16Table& table = tables.by_mantissa[bits & 127];
    for (int64_t i = 0;;) {
      store.put(codes + i / 2, Format::encode(tables, table, x + i, m0, m1, least));
      if ((i += 64) == blocksize) break;
      m0 = magnitudes(x + i), m1 = magnitudes(x + i + 32);
    }
  }
  return blocks;
}

// Codes of 64 weights in order.
template <bool kF16>
__m512i int8_codes(__m512i first, __m512i second, __m512 scale) {
  // The first and the second half of the 32 as 16-bit integers in order.
  const auto words = [&](__m512i x) {
    if constexpr (kF16) {
      const auto round = [&](__m256i h) { return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtph_ps(h), scale)); };
      const __m512i low = round(_mm512_castsi512_si256(x)), high = round(_mm512_extracti64x4_epi64(x, 1));
      return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(low)), _mm512_cvtepi32_epi16(high), 1);
    } else {
      const auto round = [&](__m512i wide) {
        return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(wide), scale));
      };
      const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
      const __m512i even = round(_mm512_slli_epi32(x, 16)), odd = round(_mm512_and_si512(x, upper));
      return _mm512_mask_blend_epi16(0xaaaaaaaau, even, _mm512_slli_epi32(odd, 16));
    }
  };
  // Each 128 bits of the result have 8 of the first and 8 of the second.
  const __m512i bytes = _mm512_packs_epi16(words(first), words(second));
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), bytes);
}

template <bool kF16>
void round_int8(const uint16_t* x, int64_t n, float scale, int8_t* codes) {
  const __m512 by = _mm512_set1_ps(scale);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64)
    _mm512_storeu_si512(codes + i, int8_codes<kF16>(_mm512_loadu_si512(x + i), _mm512_loadu_si512(x + i + 32), by));
  if (i == n) return;
  const __mmask64 last = (__mmask64{1} << (n - i)) - 1;
  const __m512i first = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(last), x + i);
  const __m512i second = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(last >> 32), x + i + 32);
  _mm512_mask_storeu_epi8(codes + i, last, int8_codes<kF16>(first, second, by));
}

}  // namespace

uint32_t largest_16_avx512(const uint16_t* x, int64_t n) {
  const __m512i no_sign = _mm512_set1_epi16(0x7fff);
  __m512i most = _mm512_setzero_si512();
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    fetch_128(x + i);
    most = _mm512_max_epu16(most, _mm512_max_epu16(magnitudes(x + i), magnitudes(x + i + 32)));
  }
  if (i + 32 <= n) most = _mm512_max_epu16(most, magnitudes(x + i)), i += 32;
  if (i < n) {
    const __mmask32 last = (__mmask32{1} << (n - i)) - 1;
    most = _mm512_max_epu16(most, _mm512_and_si512(no_sign, _mm512_maskz_loadu_epi16(last, x + i)));
  }
  return 0xffffu - (static_cast<uint32_t>(_mm_cvtsi128_si32(largest(most))) & 0xffffu);
}

void round_int8_16_avx512(bool f16, const uint16_t* x, int64_t n, float scale, int8_t* codes) {
  if (f16)
    round_int8<true>(x, n, scale, codes);
  else
    round_int8<false>(x, n, scale, codes);
}

int64_t bf16_to_nf4_avx512(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks,
                           uint8_t* codes, float* absmax) {
  return encode<Nf4>(tables, x, blocksize, blocks, codes, absmax);
}
int64_t bf16_to_fp4_avx512(const Bf16Tables& tables, const uint16_t* x, int64_t blocksize, int64_t blocks,
                           uint8_t* codes, float* absmax) {
  return encode<Fp4>(tables, x, blocksize, blocks, codes, absmax);
}

}  // namespace berth::kernel::cpu
