// quant/codecs/codecs.h — private to quant: the codec entries, one per line, and what their unpackers share.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "berth/base/bytes.h"
#include "berth/quant/codec.h"
#include "berth/quant/packed.h"
#include "berth/tensor/float16.h"

namespace berth::quant::codecs {

extern const CodecInfo kF32, kBF16, kF16, kInt8Row, kFP8Block, kNF4, kFP4, kMXFP4;
extern const CodecInfo kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL;

// 2^(e-127); e = 255 is NaN.
inline float e8m0_to_f32(uint8_t e) {
  if (e == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(e == 0 ? 0x00400000u : static_cast<uint32_t>(e) << 23);
}

// Eight codes, one per byte (element 0 lowest), to four bytes of the codes plane: even elements in the high nibbles.
inline uint32_t nibble_pairs(uint64_t q) {
  uint64_t w = ((q << 4) | (q >> 8)) & 0x00FF00FF00FF00FFull;  // byte 2t: low nibble of element 2t, then of 2t+1
  w = (w | (w >> 8)) & 0x0000FFFF0000FFFFull;
  return static_cast<uint32_t>(w | (w >> 16));
}

#if defined(__SSE2__)  // every x86-64 has it
// 32 codes below 16, one per byte, to 16 bytes of the codes plane.
inline __m128i nibble_pairs(__m128i first, __m128i second) {
  const auto pairs = [](__m128i q) {
    const __m128i even = _mm_slli_epi16(q, 4), odd = _mm_srli_epi16(q, 8);
    return _mm_and_si128(_mm_or_si128(even, odd), _mm_set1_epi16(0x00FF));
  };
  return _mm_packus_epi16(pairs(first), pairs(second));
}
inline __m128i load_16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline void store_16(uint8_t* p, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x); }
inline __m128i low_nibbles(__m128i x) { return _mm_and_si128(x, _mm_set1_epi8(0x0F)); }
#endif

// Stores bits shift..shift+3 of 32 bytes as 32 codes.
inline void store_nibbles(const uint8_t* in, int shift, uint8_t* out) {
#if defined(__SSE2__)
  const __m128i by = _mm_cvtsi32_si128(shift);
  store_16(out,
           nibble_pairs(low_nibbles(_mm_srl_epi16(load_16(in), by)), low_nibbles(_mm_srl_epi16(load_16(in + 16), by))));
  return;
#else
  for (int i = 0; i < 4; ++i) {
    const uint64_t x = load_le<uint64_t>(in + 8 * i);
    store_le<uint32_t>(out + 4 * i, nibble_pairs((x >> shift) & 0x0F0F0F0F0F0F0F0Full));
  }
#endif
}

// A GGUF block's 16 bytes (low nibble -> element j, high nibble -> j + 16) to the same 32 codes in the codes plane.
inline void halves_to_pairs(const uint8_t* in, uint8_t* out) {
#if defined(__SSE2__)
  const __m128i x = load_16(in);
  store_16(out, nibble_pairs(low_nibbles(x), low_nibbles(_mm_srli_epi16(x, 4))));
#else
  for (int i = 0; i < 2; ++i) {
    const uint64_t x = load_le<uint64_t>(in + 8 * i);
    store_le<uint32_t>(out + 4 * i, nibble_pairs(x & 0x0F0F0F0F0F0F0F0Full));
    store_le<uint32_t>(out + 8 + 4 * i, nibble_pairs((x >> 4) & 0x0F0F0F0F0F0F0F0Full));
  }
#endif
}

// A mask with bit j for element j to a word of the high plane: even elements in bits 0..15, odd ones in 16..31.
inline uint32_t even_odd_bits(uint32_t x) {
  uint32_t t = (x ^ (x >> 1)) & 0x22222222u;
  x ^= t ^ (t << 1);
  t = (x ^ (x >> 2)) & 0x0C0C0C0Cu;
  x ^= t ^ (t << 2);
  t = (x ^ (x >> 4)) & 0x00F000F0u;
  x ^= t ^ (t << 4);
  t = (x ^ (x >> 8)) & 0x0000FF00u;
  return x ^ t ^ (t << 8);
}

// Bit `bit` of 32 codes as a word of the high plane.
class HighWords {
 public:
#if defined(__SSE2__)
  explicit HighWords(const uint8_t q[32]) {
    const __m128i a = load_16(q), b = load_16(q + 16), low = _mm_set1_epi16(0x00FF);
    even_ = _mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low));
    odd_ = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
  }
  uint32_t word(int bit) const {
    const __m128i by = _mm_cvtsi32_si128(7 - bit);  // what comes from the byte below does not reach its top bit
    const auto mask = [&](__m128i x) { return static_cast<uint32_t>(_mm_movemask_epi8(_mm_sll_epi16(x, by))); };
    return mask(even_) | mask(odd_) << 16;
  }

 private:
  __m128i even_, odd_;
#else
  explicit HighWords(const uint8_t q[32]) : q_(q) {}
  uint32_t word(int bit) const {
    uint32_t mask = 0;
    for (int i = 0; i < 4; ++i) {
      const uint64_t b = (load_le<uint64_t>(q_ + 8 * i) >> bit) & 0x0101010101010101ull;
      mask |= static_cast<uint32_t>((b * 0x0102040810204080ull) >> 56) << (8 * i);
    }
    return even_odd_bits(mask);
  }

 private:
  const uint8_t* q_;
#endif
};

}  // namespace berth::quant::codecs
