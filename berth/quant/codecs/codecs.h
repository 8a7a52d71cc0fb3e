// quant/codecs/codecs.h — private to quant: the codec entries, one per line, and what their unpackers share.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

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

// Stores bits shift..shift+3 of 32 bytes as 32 codes.
inline void store_nibbles(const uint8_t* in, int shift, uint8_t* out) {
  for (int i = 0; i < 4; ++i) {
    const uint64_t x = load_le<uint64_t>(in + 8 * i);
    store_le<uint32_t>(out + 4 * i, nibble_pairs((x >> shift) & 0x0F0F0F0F0F0F0F0Full));
  }
}

// A GGUF block's 16 bytes (low nibble -> element j, high nibble -> j + 16) to the same 32 codes in the codes plane.
inline void halves_to_pairs(const uint8_t* in, uint8_t* out) {
  for (int i = 0; i < 2; ++i) {
    const uint64_t x = load_le<uint64_t>(in + 8 * i);
    store_le<uint32_t>(out + 4 * i, nibble_pairs(x & 0x0F0F0F0F0F0F0F0Full));
    store_le<uint32_t>(out + 8 + 4 * i, nibble_pairs((x >> 4) & 0x0F0F0F0F0F0F0F0Full));
  }
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

// Bit `bit` of 32 codes as a mask.
inline uint32_t bit_mask(const uint8_t q[32], int bit) {
  uint32_t mask = 0;
  for (int i = 0; i < 4; ++i) {
    const uint64_t b = (load_le<uint64_t>(q + 8 * i) >> bit) & 0x0101010101010101ull;
    mask |= static_cast<uint32_t>((b * 0x0102040810204080ull) >> 56) << (8 * i);
  }
  return mask;
}

}  // namespace berth::quant::codecs
