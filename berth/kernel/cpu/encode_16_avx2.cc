// kernel/cpu/encode_16_avx2.cc — weights of 16 bits to nf4, fp4 and int8, for AVX2.
//
// 4 bit: the 15 thresholds of a block are 16-bit integers from a table (KeySearch in encode_kernels.h), and each
// weight, an integer too, is placed among them by a binary search of four steps, 16 weights at a time: a step looks its
// threshold up with one byte shuffle, by an index that has the way so far. 14 instructions per 16 weights, and 3 to
// make their keys and find the largest.
//
// int8: twice over a row, whose largest magnitude is that of 16-bit integers.
#include <immintrin.h>

#include <cstring>

#include "berth/kernel/cpu/encode_kernels.h"
#include "berth/kernel/cpu/encode_stream-inl.h"

namespace berth::kernel::cpu {
namespace {

inline __m256i load(const void* x) { return _mm256_loadu_si256(static_cast<const __m256i*>(x)); }
inline __m256i magnitudes(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi16(0x7fff)); }

// The largest of 16-bit numbers.
inline uint32_t largest(__m256i m) {
  const __m128i half = _mm_max_epu16(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
  return 0xffffu - (static_cast<uint32_t>(_mm_cvtsi128_si32(least)) & 0xffffu);
}

enum class Codes { kPlaces, kOfPlaces };

// Keys of a block's thresholds as the steps look them up.
struct Search {
  __m256i first, second, third, fourth;
};

inline Search search_among(const KeyRow& keys) {
  const auto both = [](const int16_t* half) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(half)));
  };
  Search s;
  s.fourth = both(keys.key);
  s.third = both(keys.key + 8);
  // Words 0 and 4: thresholds 3 and 11, words 1 and 5 of the odd ones.
  s.second = _mm256_shuffle_epi8(s.third, _mm256_broadcastsi128_si256(_mm_setr_epi8(2, 3, -1, -1, -1, -1, -1, -1, 10,
                                                                                    11, -1, -1, -1, -1, -1, -1)));
  s.first = _mm256_set1_epi16(keys.key[11]);  // threshold 7
  return s;
}

// How many thresholds lie below each of 16 keys, in the lower byte of each word.
inline __m256i places(const Search& t, __m256i key) {
  // Bits 3, 2 and 1 of both bytes of the index are the way so far, bit 0 is 1 in the upper byte.
  const __m256i above_first = _mm256_cmpgt_epi16(key, t.first);
  __m256i way = _mm256_or_si256(_mm256_and_si256(above_first, _mm256_set1_epi16(0x0808)), _mm256_set1_epi16(0x0100));
  const __m256i above_second = _mm256_cmpgt_epi16(key, _mm256_shuffle_epi8(t.second, way));
  way = _mm256_or_si256(way, _mm256_and_si256(above_second, _mm256_set1_epi16(0x0404)));
  const __m256i above_third = _mm256_cmpgt_epi16(key, _mm256_shuffle_epi8(t.third, way));
  way = _mm256_or_si256(way, _mm256_and_si256(above_third, _mm256_set1_epi16(0x0202)));
  return _mm256_sub_epi8(way, _mm256_cmpgt_epi16(key, _mm256_shuffle_epi8(t.fourth, way)));
}

// The codes of 64 weights by their keys, two in a byte. nf4's codes are places.
template <Codes kCodes>
inline __m256i codes_of_64(const Search& t, __m256i code_of_place, const int16_t* keys) {
  const __m256i low = _mm256_set1_epi16(0x00ff);
  const auto pairs = [&](const int16_t* at) {  // 32 weights
    const __m256i bytes = _mm256_packus_epi16(_mm256_and_si256(places(t, load(at)), low),
                                              _mm256_and_si256(places(t, load(at + 16)), low));
    const __m256i code = kCodes == Codes::kPlaces ? bytes : _mm256_shuffle_epi8(code_of_place, bytes);
    return _mm256_maddubs_epi16(code, _mm256_set1_epi16(0x0110));
  };
  const __m256i bytes = _mm256_packus_epi16(pairs(keys), pairs(keys + 32));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// kBlocksize: 0, or what `any_blocksize` is.
template <bool kF16, Codes kCodes, int64_t kBlocksize>
int64_t to_4bit(const KeySearch& keys, const uint16_t* x, int64_t any_blocksize, int64_t blocks, uint8_t* codes,
                float* absmax) {
  const int64_t blocksize = kBlocksize == 0 ? any_blocksize : kBlocksize;
  const __m256i code = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(keys.code)));
  const __m256i sign = load(keys.sign.key);
  CodeStore store(codes);
  // Of a group of blocks: keys of their thresholds and of their weights.
  KeyRow threshold_keys[kLargestGroup];
  alignas(32) int16_t weight_keys[kBlocksize == 0 ? kLargestGroupElements : kLargestGroup * kBlocksize];
  return in_groups(
      blocksize, blocks,
      [&](int64_t block, int64_t in_group) __attribute__((always_inline)) {
        __m256i most = _mm256_setzero_si256();
        for (int64_t i = 0; i < blocksize; i += 64) {
          const uint16_t* const at = x + block * blocksize + i;
          fetch_128(at);
          for (int64_t j = 0; j < 64; j += 16) {
            const __m256i v = load(at + j), m = magnitudes(v);
            most = _mm256_max_epu16(most, m);
            _mm256_store_si256(reinterpret_cast<__m256i*>(weight_keys + in_group * blocksize + i + j),
                               _mm256_sign_epi16(m, v));
          }
        }
        const uint32_t bits = largest(most);
        if (bits < keys.least || bits >= keys.end) return false;
        if constexpr (kF16) {
          _mm_store_ss(absmax + block, _mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
        } else {
          const uint32_t wide = bits << 16;
          std::memcpy(absmax + block, &wide, 4);
        }
        const KeyRow& row = keys.rows[bits < keys.distinct ? bits : keys.distinct + (bits & keys.mantissa)];
        const __m256i number = _mm256_set1_epi16(static_cast<int16_t>(bits));
        _mm256_store_si256(reinterpret_cast<__m256i*>(threshold_keys[in_group].key),
                           _mm256_add_epi16(_mm256_sign_epi16(number, sign), load(row.key)));
        return true;
      },
      [&](int64_t block, int64_t in_group) __attribute__((always_inline)) {
        const Search search = search_among(threshold_keys[in_group]);
        for (int64_t i = 0; i < blocksize; i += 64)
          store.put(codes + (block * blocksize + i) / 2,
                    codes_of_64<kCodes>(search, code, weight_keys + in_group * blocksize + i));
      });
}

template <bool kF16>
int64_t to_4bit_of(const KeySearch& keys, const uint16_t* x, int64_t blocksize, int64_t blocks, uint8_t* codes,
                   float* absmax) {
  bool places = true;
  for (int i = 0; i < 16; ++i) places = places && keys.code[i] == i;
  // 64, what nearly everyone has, without the loops within a block.
  const auto encode = blocksize == 64 ? places ? to_4bit<kF16, Codes::kPlaces, 64> : to_4bit<kF16, Codes::kOfPlaces, 64>
                      : places ? to_4bit<kF16, Codes::kPlaces, 0>
                                      : to_4bit<kF16, Codes::kOfPlaces, 0>;
  return encode(keys, x, blocksize, blocks, codes, absmax);
}

// 32 codes in order.
template <bool kF16>
inline __m256i int8_codes(__m256i first, __m256i second, __m256 scale) {
  const auto round = [&](__m256 v) { return _mm256_cvtps_epi32(_mm256_mul_ps(v, scale)); };
  if constexpr (kF16) {
    const auto words = [&](__m256i x) {
      return _mm256_packs_epi32(round(_mm256_cvtph_ps(_mm256_castsi256_si128(x))),
                                round(_mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))));
    };
    // Of each 128 bits: 4 codes of each quarter of 8.
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words(first), words(second)),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  } else {
    const auto words = [&](__m256i x) {
      const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
      const __m256i even = round(_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)));
      const __m256i odd = round(_mm256_castsi256_ps(_mm256_and_si256(x, upper)));
      return _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa);
    };
    return _mm256_permute4x64_epi64(_mm256_packs_epi16(words(first), words(second)), 0xd8);
  }
}

template <bool kF16>
inline void round_int8(const uint16_t* x, int64_t n, float scale, int8_t* codes) {
  const __m256 by = _mm256_set1_ps(scale);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) store_32(codes + i, int8_codes<kF16>(load(x + i), load(x + i + 16), by));
  if (i == n) return;
  alignas(32) uint16_t rest[32] = {};
  alignas(32) int8_t rest_codes[32];
  std::memcpy(rest, x + i, static_cast<size_t>(n - i) * 2);
  store_32(rest_codes, int8_codes<kF16>(load(rest), load(rest + 16), by));
  std::memcpy(codes + i, rest_codes, static_cast<size_t>(n - i));
}

}  // namespace

uint32_t largest_16_avx2(const uint16_t* x, int64_t n) {
  __m256i most = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    fetch_128(x + i);
    for (int64_t j = 0; j < 64; j += 16) most = _mm256_max_epu16(most, magnitudes(load(x + i + j)));
  }
  for (; i + 16 <= n; i += 16) most = _mm256_max_epu16(most, magnitudes(load(x + i)));
  if (i < n) {
    alignas(32) uint16_t rest[16] = {};
    std::memcpy(rest, x + i, static_cast<size_t>(n - i) * 2);
    most = _mm256_max_epu16(most, magnitudes(load(rest)));
  }
  return largest(most);
}

void round_int8_16_avx2(bool f16, const uint16_t* x, int64_t n, float scale, int8_t* codes) {
  if (f16)
    round_int8<true>(x, n, scale, codes);
  else
    round_int8<false>(x, n, scale, codes);
}

int64_t to_4bit_by_keys_avx2(const KeySearch& keys, bool f16, const uint16_t* x, int64_t blocksize, int64_t blocks,
                             uint8_t* codes, float* absmax) {
  if (f16) return to_4bit_of<true>(keys, x, blocksize, blocks, codes, absmax);
  return to_4bit_of<false>(keys, x, blocksize, blocks, codes, absmax);
}

}  // namespace berth::kernel::cpu
