// kernel/cpu/linear_exact_avx2-inl.h — how the exact AVX2 loops for few inputs take weights apart: codes of 8 words as
// floats, scales, and the end of a row. For linear_exact_avx2.cc (one input) and linear_few_exact_avx2.cc (several).
//
// A group is 8 words, one per lane of one register:
//
//   E = 8, 4 bits  byte b of 4 words side by side (one shuffle), then four byte shuffles per nibble look up the four
//                  bytes of the fp32 code and unpacks interleave them: 3 instructions per 8 weights
//   E = 8, 5, 6    nibbles to bytes, the high plane's bits added, then as below
//   E = 4, 8 bits  byte b of each word under the bytes 4B 00 00 is the float 2^23 + code: less 2^23 it is exact
//   E = 2, 1       widened
//
// Start reading at: octet_codes.
#pragma once

#include <immintrin.h>

#include "berth/kernel/cpu/exact_forms-inl.h"
#include "berth/kernel/cpu/inline.h"
#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

constexpr int64_t kPrefetch = 1536;  // bytes ahead in each stream

struct Stream {
  const uint8_t* codes;
  const uint32_t* high;
  const float* s;
  const float* m;
};

struct Operands {
  __m256i book[4];  // byte b of each of the 16 code values, in both halves
  __m256 offset;
  const float* t;  // sums of x per word
};

BERTH_INLINE __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
BERTH_INLINE __m256 fma(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }

// Byte kByte of every lane as a float, less `offset`.
template <int kByte>
BERTH_INLINE __m256 byte_float(__m256i v, __m256 offset) {
  const __m256i byte = _mm256_and_si256(_mm256_srli_epi32(v, 8 * kByte), _mm256_set1_epi32(255));
  return _mm256_sub_ps(_mm256_castsi256_ps(_mm256_or_si256(byte, _mm256_set1_epi32(0x4b000000))), offset);
}

// e4m3 in the top byte: its exponent and mantissa moved to bits 20..26 of a float are the value * 2^-120.
template <int kByte>
BERTH_INLINE __m256 fp8_float(__m256i w) {
  const __m256i top = _mm256_slli_epi32(w, 24 - 8 * kByte);
  const __m256i bits = _mm256_and_si256(_mm256_srai_epi32(top, 4), _mm256_set1_epi32(static_cast<int>(0x87f00000u)));
  return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
}

template <Kind kKind, int kByte>
BERTH_INLINE __m256 quad_code(__m256i w) {
  return kKind == Kind::kFP8 ? fp8_float<kByte>(w) : byte_float<kByte>(w, _mm256_set1_ps(0x1p23f + 128));
}

// The codes of 8 words of two elements: the low 16 bits first.
template <Kind kKind>
BERTH_INLINE void pair_codes(const uint8_t* codes, __m256 c[2]) {
  const __m256i w = load(codes);
  if (kKind == Kind::kBF16) {
    c[0] = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
    c[1] = _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  } else {
    const __m256i halves = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                                            0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i sorted = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(w, halves), 0xd8);
    c[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
    c[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
  }
}

// The codes of 8 words of four bytes.
template <Kind kKind>
BERTH_INLINE void quad_codes(const uint8_t* codes, __m256 c[4]) {
  __m256i w = load(codes);
  if (kKind != Kind::kFP8) w = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
  c[0] = quad_code<kKind, 0>(w);
  c[1] = quad_code<kKind, 1>(w);
  c[2] = quad_code<kKind, 2>(w);
  c[3] = quad_code<kKind, 3>(w);
}

// The fp32 codes of 8 words' nibbles of one half; code[b]: of byte b. `index` holds byte b of 4 words side by side.
BERTH_INLINE void look_up(__m256i index, const Operands& op, __m256 code[4]) {
  const __m256i b0 = _mm256_shuffle_epi8(op.book[0], index), b1 = _mm256_shuffle_epi8(op.book[1], index);
  const __m256i b2 = _mm256_shuffle_epi8(op.book[2], index), b3 = _mm256_shuffle_epi8(op.book[3], index);
  const __m256i low = _mm256_unpacklo_epi8(b0, b1), low_up = _mm256_unpacklo_epi8(b2, b3);
  const __m256i high = _mm256_unpackhi_epi8(b0, b1), high_up = _mm256_unpackhi_epi8(b2, b3);
  code[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(low, low_up));
  code[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(low, low_up));
  code[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(high, high_up));
  code[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(high, high_up));
}

// Byte 16L + t becomes `value` if bit t of the 16-bit group at byte first + stride * L of `bits` is set.
BERTH_INLINE __m256i high_bits(__m256i bits, int stride, int first, int value) {
  const char a = static_cast<char>(first), b = static_cast<char>(first + 1);
  const char c = static_cast<char>(first + stride), d = static_cast<char>(first + stride + 1);
  const __m256i where = _mm256_setr_epi8(a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b,  //
                                         c, c, c, c, c, c, c, c, d, d, d, d, d, d, d, d);
  const __m256i select = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ull));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(bits, where), select), select);
  return _mm256_and_si256(set, _mm256_set1_epi8(static_cast<char>(value)));
}

// lo[b], hi[b]: the codes of byte b's low and high nibbles of 8 words, as floats.
template <Kind kKind>
BERTH_INLINE void octet_codes(__m256i w, const uint32_t* high, const Operands& op, __m256 lo[4], __m256 hi[4]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  if (kKind == Kind::kBook) {
    const __m256i by_byte = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                             0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    w = _mm256_shuffle_epi8(w, by_byte);
    look_up(_mm256_and_si256(w, nibble), op, lo);
    look_up(_mm256_and_si256(_mm256_srli_epi16(w, 4), nibble), op, hi);
    return;
  }
  __m256i h = _mm256_and_si256(_mm256_srli_epi16(w, 4), nibble);
  __m256i l = _mm256_and_si256(w, nibble);
  if (kKind == Kind::kFive) {
    int64_t two_words;
    __builtin_memcpy(&two_words, high, 8);
    const __m256i bits = _mm256_set1_epi64x(two_words);
    h = _mm256_or_si256(h, high_bits(bits, 4, 0, 16));
    l = _mm256_or_si256(l, high_bits(bits, 4, 2, 16));
  } else {
    const __m256i bits = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(high)));
    h = _mm256_or_si256(h, _mm256_or_si256(high_bits(bits, 8, 0, 16), high_bits(bits, 8, 4, 32)));
    l = _mm256_or_si256(l, _mm256_or_si256(high_bits(bits, 8, 2, 16), high_bits(bits, 8, 6, 32)));
  }
  lo[0] = byte_float<0>(l, op.offset);
  lo[1] = byte_float<1>(l, op.offset);
  lo[2] = byte_float<2>(l, op.offset);
  lo[3] = byte_float<3>(l, op.offset);
  hi[0] = byte_float<0>(h, op.offset);
  hi[1] = byte_float<1>(h, op.offset);
  hi[2] = byte_float<2>(h, op.offset);
  hi[3] = byte_float<3>(h, op.offset);
}

// 8 floats from 2 (blocks of 32) or 4 (blocks of 16).
template <Kind kKind>
BERTH_INLINE __m256 spread(const float* s) {
  if (kKind == Kind::kSix)
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(s)), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_broadcast_ss(s)), _mm_broadcast_ss(s + 1), 1);
}

// Bytes from one group of 8 words to the next, and before the first one's codes.
constexpr int64_t group_bytes(Kind kind) { return kind == Kind::kQ8Block ? kQ8BlockBytes : 32; }
constexpr int64_t group_codes(Kind kind) { return group_bytes(kind) - 32; }

// The codes of what is left after the last whole step, `words` of 32; the others are 0, and so is their x.
template <Kind kKind>
BERTH_INLINE void tail_codes(const Stream& row, int64_t step, int64_t words, uint8_t* codes) {
  const uint8_t* const from = row.codes + step * 4 * group_bytes(kKind);
  if (kKind == Kind::kQ8Block) {
    for (int64_t group = 0; group * 8 < words; ++group)
      __builtin_memcpy(codes + group * 32, from + group * kQ8BlockBytes + group_codes(kKind), 32);
  } else {
    __builtin_memcpy(codes, from, static_cast<size_t>(words * 4));
  }
}

// A step's codes of one row, some bytes ahead.
template <Kind kKind>
BERTH_INLINE void prefetch_step(const uint8_t* codes) {
  _mm_prefetch(reinterpret_cast<const char*>(codes + kPrefetch), _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(codes + 64 + kPrefetch), _MM_HINT_T0);
}

struct Accumulators {
  __m256 a0, a1, a2, a3;  // lanes 0..7, 8..15, 16..23, 24..31
};

// h = 16, 8, 4, 2, 1, and + 0.
BERTH_INLINE float finish(const Accumulators& a) {
  const __m256 h8 = _mm256_add_ps(_mm256_add_ps(a.a0, a.a2), _mm256_add_ps(a.a1, a.a3));
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_shuffle_ps(h2, h2, 1))) + 0.0f;
}

Operands operands(const WeightView& w) {
  Operands op;
  uint8_t bytes[4][16];
  for (int q = 0; q < 16; ++q) {
    const float c = w.book != nullptr ? w.book[q] : static_cast<float>(w.codec == Codec::kQ4_0 ? q - 8 : q);
    uint8_t of_code[4];
    __builtin_memcpy(of_code, &c, 4);
    for (int b = 0; b < 4; ++b) bytes[b][q] = of_code[b];
  }
  for (int b = 0; b < 4; ++b)
    op.book[b] = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes[b])));
  const int offset = w.codec == Codec::kQ5_0 ? 16 : w.codec == Codec::kQ6_K ? 32 : 0;
  op.offset = _mm256_set1_ps(0x1p23f + static_cast<float>(offset));
  op.t = nullptr;
  return op;
}

constexpr float kInt8RowScale = 0x1.020408p-7f;  // 0x3c010204

// What a finished sum still lacks.
template <Kind kKind>
BERTH_INLINE float output(const RowsTask& t, int64_t n, float v) {
  if (kKind == Kind::kInt8) v = v * (static_cast<const float*>(t.w.scales)[t.row_begin + n] * kInt8RowScale);
  return t.bias != nullptr ? v + t.bias[n] : v;
}

// The form of `Loop::rows` for a weight.
template <typename Loop>
RowsFn form_of(const WeightView& w) {
  return w.in_blocks ? RowsFn{Loop::template rows<Kind::kQ8Block, false>} : exact_form<Loop>(w.codec);
}

}  // namespace
}  // namespace berth::kernel::cpu
