// kernel/cpu/linear_exact_avx2.cc — y = W x in exact mode (numerics.md 1) with AVX2, few inputs: lanes are the lanes.
//
// Four registers hold a row's 32 accumulators; a group is 8 words, one per lane of one register. Two rows at a time,
// half of the task's rows apart. x lies in scratch so that one load gives every lane the element of its word
// (InputLayout).
//
//   E = 8, 4 bits  byte b of 4 words side by side (one shuffle), then four byte shuffles per nibble look up the four
//   bytes
//                  of the fp32 code and unpacks interleave them: 3 instructions per 8 weights
//   E = 8, 5, 6    nibbles to bytes, the high plane's bits added, then as below
//   E = 4, 8 bits  byte b of each word under the bytes 4B 00 00 is the float 2^23 + code: less 2^23 it is exact
//   E = 2, 1       widened
//
// Start reading at: octet_group.
#include <immintrin.h>

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;

enum class Kind { kF32, kBF16, kF16, kInt8, kQ8, kQ8Block, kFP8, kBook, kFive, kSix };

constexpr int64_t kPrefetch = 1536;  // bytes ahead in each stream

#define BERTH_INLINE inline __attribute__((always_inline))

constexpr int word_elements(Kind kind) {
  switch (kind) {
    case Kind::kF32:
      return 1;
    case Kind::kBF16:
    case Kind::kF16:
      return 2;
    case Kind::kInt8:
    case Kind::kQ8:
    case Kind::kQ8Block:
    case Kind::kFP8:
      return 4;
    default:
      return 8;
  }
}

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

// 8 words of two elements: the low 16 bits first.
template <Kind kKind>
BERTH_INLINE __m256 pair_group(const uint8_t* codes, const float* x, __m256 a) {
  const __m256i w = load(codes);
  __m256 even, odd;
  if (kKind == Kind::kBF16) {
    even = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
    odd = _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  } else {
    const __m256i halves = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                                            0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i sorted = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(w, halves), 0xd8);
    even = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
    odd = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
  }
  return fma(odd, _mm256_load_ps(x + 8), fma(even, _mm256_load_ps(x), a));
}

// 8 words of four bytes, i.e. one block of 32.
template <Kind kKind>
BERTH_INLINE __m256 quad_group(const uint8_t* codes, const float* x, const float* s, __m256 a) {
  __m256i w = load(codes);
  if (kKind != Kind::kFP8) w = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
  const __m256 c0 = quad_code<kKind, 0>(w), c1 = quad_code<kKind, 1>(w);
  const __m256 c2 = quad_code<kKind, 2>(w), c3 = quad_code<kKind, 3>(w);
  if (kKind == Kind::kInt8) {
    a = fma(c1, _mm256_load_ps(x + 8), fma(c0, _mm256_load_ps(x), a));
    return fma(c3, _mm256_load_ps(x + 24), fma(c2, _mm256_load_ps(x + 16), a));
  }
  __m256 p = fma(c1, _mm256_load_ps(x + 8), _mm256_mul_ps(c0, _mm256_load_ps(x)));
  p = fma(c3, _mm256_load_ps(x + 24), fma(c2, _mm256_load_ps(x + 16), p));
  return fma(p, _mm256_broadcast_ss(s), a);
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

// 8 words of 8 elements of one row.
template <Kind kKind, bool kMin>
BERTH_INLINE __m256 octet_group(const uint8_t* codes, const Stream& row, int64_t group, const float* x,
                                const Operands& op, __m256 a) {
  constexpr int64_t kScales = kKind == Kind::kSix ? 4 : 2;  // scales per group
  constexpr int64_t kHigh = kKind == Kind::kSix ? 4 : 2;    // words of the high plane per group
  __m256 lo[4], hi[4];
  octet_codes<kKind>(load(codes), row.high + group * kHigh, op, lo, hi);
  __m256 p = _mm256_mul_ps(lo[0], _mm256_load_ps(x));
  p = fma(hi[0], _mm256_load_ps(x + 8), p);
  p = fma(lo[1], _mm256_load_ps(x + 16), p);
  p = fma(hi[1], _mm256_load_ps(x + 24), p);
  p = fma(lo[2], _mm256_load_ps(x + 32), p);
  p = fma(hi[2], _mm256_load_ps(x + 40), p);
  p = fma(lo[3], _mm256_load_ps(x + 48), p);
  p = fma(hi[3], _mm256_load_ps(x + 56), p);
  a = fma(p, spread<kKind>(row.s + group * kScales), a);
  if (kMin) a = fma(spread<kKind>(row.m + group * kScales), _mm256_load_ps(op.t + group * 8), a);
  return a;
}

// Group `group` of 8 words of one row; `codes`: its 32 bytes.
template <Kind kKind, bool kMin>
BERTH_INLINE __m256 group_of(const uint8_t* codes, const Stream& row, int64_t group, const float* x, const Operands& op,
                             __m256 a) {
  const float* xg = x + group * 8 * word_elements(kKind);
  if (kKind == Kind::kF32) return fma(_mm256_loadu_ps(reinterpret_cast<const float*>(codes)), _mm256_load_ps(xg), a);
  if (word_elements(kKind) == 2) return pair_group<kKind>(codes, xg, a);
  if (word_elements(kKind) == 4) return quad_group<kKind>(codes, xg, row.s + group, a);
  return octet_group<kKind, kMin>(codes, row, group, xg, op, a);
}

struct Accumulators {
  __m256 a0, a1, a2, a3;  // lanes 0..7, 8..15, 16..23, 24..31
};

// Bytes from one group of 8 words to the next, and before the first one's codes.
constexpr int64_t group_bytes(Kind kind) { return kind == Kind::kQ8Block ? kQ8BlockBytes : 32; }
constexpr int64_t group_codes(Kind kind) { return group_bytes(kind) - 32; }

// One step of 32 words.
template <Kind kKind, bool kMin>
BERTH_INLINE void row_step(const Stream& row, int64_t step, const float* x, const Operands& op, Accumulators& a) {
  constexpr int64_t kGroup = group_bytes(kKind);
  const uint8_t* codes = row.codes + step * 4 * kGroup + group_codes(kKind);
  _mm_prefetch(reinterpret_cast<const char*>(codes + kPrefetch), _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(codes + 64 + kPrefetch), _MM_HINT_T0);
  a.a0 = group_of<kKind, kMin>(codes, row, 4 * step, x, op, a.a0);
  a.a1 = group_of<kKind, kMin>(codes + kGroup, row, 4 * step + 1, x, op, a.a1);
  a.a2 = group_of<kKind, kMin>(codes + 2 * kGroup, row, 4 * step + 2, x, op, a.a2);
  a.a3 = group_of<kKind, kMin>(codes + 3 * kGroup, row, 4 * step + 3, x, op, a.a3);
}

// What is left after the last whole step: `words` of 32. Absent words have x = 0, their codes are 0.
template <Kind kKind, bool kMin>
BERTH_INLINE void row_tail(const Stream& row, int64_t step, int64_t words, const float* x, const Operands& op,
                           Accumulators& a) {
  alignas(32) uint8_t codes[128] = {};
  const uint8_t* const from = row.codes + step * 4 * group_bytes(kKind);
  if (kKind == Kind::kQ8Block) {
    for (int64_t group = 0; group * 8 < words; ++group)
      __builtin_memcpy(codes + group * 32, from + group * kQ8BlockBytes + group_codes(kKind), 32);
  } else {
    __builtin_memcpy(codes, from, static_cast<size_t>(words * 4));
  }
  a.a0 = group_of<kKind, kMin>(codes, row, 4 * step, x, op, a.a0);
  if (words > 8) a.a1 = group_of<kKind, kMin>(codes + 32, row, 4 * step + 1, x, op, a.a1);
  if (words > 16) a.a2 = group_of<kKind, kMin>(codes + 64, row, 4 * step + 2, x, op, a.a2);
  if (words > 24) a.a3 = group_of<kKind, kMin>(codes + 96, row, 4 * step + 3, x, op, a.a3);
}

// h = 16, 8, 4, 2, 1, and + 0.
BERTH_INLINE float finish(const Accumulators& a) {
  const __m256 h8 = _mm256_add_ps(_mm256_add_ps(a.a0, a.a2), _mm256_add_ps(a.a1, a.a3));
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_shuffle_ps(h2, h2, 1))) + 0.0f;
}

template <Kind kKind, bool kMin>
void tile(const Stream row[2], const float* x, int64_t k, Operands op, float y[2]) {
  constexpr int kElements = word_elements(kKind);
  const int64_t steps = k / (32 * kElements), words = k % (32 * kElements) / kElements;
  const Stream a = row[0], b = row[1];
  const __m256 zero = _mm256_setzero_ps();
  Accumulators ya{zero, zero, zero, zero}, yb = ya;
  op.t = x + (k + 255) / 256 * 256;
  for (int64_t step = 0; step < steps; ++step) {
    row_step<kKind, kMin>(a, step, x, op, ya);
    row_step<kKind, kMin>(b, step, x, op, yb);
  }
  if (words != 0) {
    row_tail<kKind, kMin>(a, steps, words, x, op, ya);
    row_tail<kKind, kMin>(b, steps, words, x, op, yb);
  }
  y[0] = finish(ya);
  y[1] = finish(yb);
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

template <Kind kKind, bool kMin>
void rows(const RowsTask& t) {
  constexpr int kElements = word_elements(kKind);
  const Operands op = operands(t.w);
  const int64_t k = t.w.k, blocks = k / 32;
  const int64_t scale_stride = (blocks + 7) / 8 * 8 * (kKind == Kind::kSix ? 2 : 1);
  const int64_t high_words = kKind == Kind::kFive ? blocks : kKind == Kind::kSix ? 2 * blocks : 0;
  const int64_t row_bytes = k / kElements * group_bytes(kKind) / 8;
  float* const buffer = reinterpret_cast<float*>(t.scratch);
  const int64_t half = (t.row_count + 1) / 2;  // two streams: a quad is two pairs
  for (int64_t i = t.quad_begin * 2, end = t.quad_end * 2 < half ? t.quad_end * 2 : half; i < end; ++i) {
    Stream stream[2];
    int64_t n[2];
    for (int r = 0; r < 2; ++r) {
      n[r] = i + r * half;
      if (n[r] >= t.row_count) n[r] = t.row_count - 1;  // again: the same bits to the same place
      const int64_t row = t.w.stored_row(t.row_begin + n[r]);
      float* s = buffer + r * scale_stride;
      float* m = buffer + (2 + r) * scale_stride;
      if (kElements > 2 && kKind != Kind::kInt8) expand_scales_avx2(t.w, row, s, m);
      stream[r] = {t.w.codes + row * row_bytes, t.w.high + row * high_words, s, m};
    }
    for (int64_t m = 0; m < t.m; ++m) {
      float y[2];
      tile<kKind, kMin>(stream, reinterpret_cast<const float*>(t.x + m * t.x_bytes), k, op, y);
      for (int r = 0; r < 2; ++r) {
        float v = y[r];
        if (kKind == Kind::kInt8) v = v * (static_cast<const float*>(t.w.scales)[t.row_begin + n[r]] * kInt8RowScale);
        if (t.bias != nullptr) v = v + t.bias[n[r]];
        t.y[m * t.y_stride + n[r]] = v;
      }
    }
  }
}

}  // namespace

RowsFn rows_exact_avx2(const WeightView& w) {
  if (w.in_blocks) return rows<Kind::kQ8Block, false>;
  switch (w.codec) {
    case Codec::kF32:
      return rows<Kind::kF32, false>;
    case Codec::kBF16:
      return rows<Kind::kBF16, false>;
    case Codec::kF16:
      return rows<Kind::kF16, false>;
    case Codec::kInt8Row:
      return rows<Kind::kInt8, false>;
    case Codec::kQ8_0:
      return rows<Kind::kQ8, false>;
    case Codec::kFP8Block:
      return rows<Kind::kFP8, false>;
    case Codec::kNF4:
    case Codec::kFP4:
    case Codec::kMXFP4:
    case Codec::kQ4_0:
    case Codec::kIQ4_NL:
      return rows<Kind::kBook, false>;
    case Codec::kQ4_1:
    case Codec::kQ4_K:
      return rows<Kind::kBook, true>;
    case Codec::kQ5_0:
      return rows<Kind::kFive, false>;
    case Codec::kQ5_1:
    case Codec::kQ5_K:
      return rows<Kind::kFive, true>;
    case Codec::kQ6_K:
      return rows<Kind::kSix, false>;
  }
  return nullptr;
}

}  // namespace berth::kernel::cpu
