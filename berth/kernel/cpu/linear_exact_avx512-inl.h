// kernel/cpu/linear_exact_avx512-inl.h — how the exact AVX-512 loops for few inputs take weights apart: codes of 16
// words as floats, scales, and the end of a row. For linear_exact_avx512.cc (one input), linear_few_exact_avx512.cc
// (several) and linear_many_exact_avx512.cc (more).
//
//   E = 8, 4 bits  words >> 4i: the 32-bit permute reads 4 bits of each lane and gives the exact fp32 code: one shift,
//                  one permute, one fma per 16 weights. i ascends, so elements come as 1 0 3 2 5 4 7 6.
//   E = 8, 5, 6    nibbles to bytes, the high plane's bits added (byte masks), then as below.
//   E = 4, 8 bits  byte b of each word under the bytes 4B 00 00 is the float 2^23 + code: less 2^23 it is exact.
//   E = 2, 1       widened.
//
// Start reading at: octet_bytes.
#pragma once

#include <immintrin.h>

#include "berth/kernel/cpu/exact_forms-inl.h"
#include "berth/kernel/cpu/inline.h"
#include "berth/kernel/cpu/linear_kernels.h"
#include "berth/kernel/cpu/linear_quads_avx512-inl.h"

namespace berth::kernel::cpu {
namespace {

// Bytes of 32 words, with what lies between them.
constexpr int64_t step_bytes(Kind kind) { return kind == Kind::kQ8Block ? 4 * kQ8BlockBytes : 128; }

// Constant operands of a loop.
struct Operands {
  __m512 book, offset;
  const float* t;
  const float* map;            // kNested: bitsandbytes' 256 values,
  const float* nested_absmax;  // their scale per 256 blocks
  __m128 nested_offset;        // and what is added
};

struct Accumulators {
  __m512 half[2];  // lanes 0..15, 16..31
};

template <bool kTail>
BERTH_INLINE __m512i load_codes(const uint8_t* p, int64_t bytes) {
  if (!kTail) return _mm512_loadu_si512(p);
  const __mmask64 mask = bytes >= 64 ? ~__mmask64{0} : bytes <= 0 ? 0 : (__mmask64{1} << bytes) - 1;
  return _mm512_maskz_loadu_epi8(mask, p);
}

// The 64 codes of two Q8_0 blocks, or those of the first or of neither.
template <bool kTail>
BERTH_INLINE __m512i load_two_blocks(const uint8_t* p, int64_t bytes) {
  const auto codes = [](const uint8_t* block) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
  };
  if (kTail && bytes <= 0) return _mm512_setzero_si512();
  const __m512i first = _mm512_castsi256_si512(codes(p));
  if (kTail && bytes <= 32) return _mm512_inserti64x4(first, _mm256_setzero_si256(), 1);
  return _mm512_inserti64x4(first, codes(p + kQ8BlockBytes), 1);
}

BERTH_INLINE __m512 fma(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }

// Byte `b` of every lane as a float, less `offset`: 0x4B0000uu = 2^23 + uu.
template <int kByte>
BERTH_INLINE __m512 byte_float(__m512i v, __m512 offset) {
  const __m512i magic = _mm512_set1_epi32(0x4b000000);
  const __m512i where = _mm512_set4_epi32(12 + kByte, 8 + kByte, 4 + kByte, kByte);
  const __m512i u = _mm512_mask_shuffle_epi8(magic, 0x1111111111111111ull, v, where);
  return _mm512_sub_ps(_mm512_castsi512_ps(u), offset);
}

// --- scales of one step of 32 words of a row ---

// The step's block scales (and minima), one float per block, in order.
struct StepScales {
  __m512 s, m;
};

// The fp16 at p in all lanes.
BERTH_INLINE __m512 half_float(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(bits)));
}

// Q4_K, Q5_K: bytes 0-3 sc0..3 and top two bits of sc4..7; 4-7 mn likewise; 8-11: low four bits of sc4..7, mn4..7.
// (Planes may be read 64 bytes past their end.)
BERTH_INLINE StepScales k45_scales(const Stream& row, int64_t step) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row.sub + step * 12));
  const __m128i first = _mm_and_si128(v, _mm_set1_epi8(63));  // sc0..3 mn0..3
  const __m128i top = _mm_and_si128(_mm_srli_epi16(v, 2), _mm_set1_epi8(0x30));
  const __m128i low =
      _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(v, 0xaa), _mm_setr_epi32(0, 4, 0, 4)), _mm_set1_epi8(15));
  const __m128i packed = _mm_unpacklo_epi32(first, _mm_or_si128(top, low));  // sc0..7 mn0..7
  const __m512 all = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(packed));
  const __m512 m = _mm512_shuffle_f32x4(all, all, 0x4e);
  const __m512 dm = _mm512_xor_ps(half_float(row.m + step * 2), _mm512_set1_ps(-0.0f));  // the minima are subtracted
  return {_mm512_mul_ps(half_float(row.s + step * 2), all), _mm512_mul_ps(dm, m)};
}

// `words`: how many words of the step exist (kTail). Scales of absent blocks are 0.
template <Kind kKind, bool kMin, Scale kScale, bool kTail>
BERTH_INLINE StepScales step_scales(const Stream& row, int64_t step, const Operands& op, int64_t words) {
  constexpr int kBlocks = word_elements(kKind);  // of 32 elements in a step of 32 words
  StepScales v{_mm512_setzero_ps(), _mm512_setzero_ps()};
  const __mmask16 real = static_cast<__mmask16>((1u << (words * kBlocks / 32)) - 1);
  if (kScale == Scale::kBuffer) {
    v.s = _mm512_maskz_loadu_ps(kTail ? real : static_cast<__mmask16>((1u << kBlocks) - 1), row.s + step * kBlocks * 4);
  } else if (kScale == Scale::kAbsmax) {
    const __mmask8 blocks = static_cast<__mmask8>((1u << (words + 7) / 8) - 1);
    const float* a = reinterpret_cast<const float*>(row.s + step * 16);
    v.s = _mm512_castps128_ps512(kTail ? _mm_maskz_loadu_ps(blocks, a) : _mm_loadu_ps(a));
  } else if (kScale == Scale::kNested) {
    // fp32(map * nested_absmax) + offset, rounded twice; four blocks that begin at a multiple of four share
    // nested_absmax.
    const __m128 value = _mm_i32gather_ps(op.map, _mm_cvtepu8_epi32(_mm_loadu_si32(row.s + step * 4)), 4);
    const __m128 scale = _mm_set1_ps(op.nested_absmax[(row.block + 4 * step) / 256]);
    v.s = _mm512_castps128_ps512(_mm_add_ps(_mm_mul_ps(value, scale), op.nested_offset));
  } else if (kScale == Scale::kHalf) {
    const auto widened = [&](const uint8_t* plane) {
      const uint8_t* p = plane + step * kBlocks * 2;
      const __mmask8 mask = kTail ? static_cast<__mmask8>(real) : static_cast<__mmask8>((1u << kBlocks) - 1);
      const __m128i h =
          kTail || kBlocks < 8 ? _mm_maskz_loadu_epi16(mask, p) : _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
      return _mm512_castps256_ps512(_mm256_cvtph_ps(h));
    };
    v.s = widened(row.s);
    if (kMin) v.m = widened(row.m);
  } else if (kScale == Scale::kE8M0) {
    const uint8_t* p = row.s + step * 8;
    const __m128i e = kTail ? _mm_maskz_loadu_epi8(real, p) : _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m256i wide = _mm256_cvtepu8_epi32(e);
    const __mmask8 subnormal = _mm256_testn_epi32_mask(wide, wide);  // 2^-127
    v.s = _mm512_castsi512_ps(_mm512_castsi256_si512(
        _mm256_mask_mov_epi32(_mm256_slli_epi32(wide, 23), subnormal, _mm256_set1_epi32(0x00400000))));
  } else if (kScale == Scale::kInBlock) {
    const uint8_t* const p = row.codes + step * step_bytes(kKind);
    const auto d = [&](int64_t block) {
      uint16_t bits = 0;
      if (!kTail || block * 8 < words) __builtin_memcpy(&bits, p + block * kQ8BlockBytes, 2);
      return static_cast<int16_t>(bits);
    };
    v.s = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_setr_epi16(d(0), d(1), d(2), d(3), 0, 0, 0, 0)));
  } else if (kScale == Scale::kK45) {
    v = k45_scales(row, step);
  } else if (kScale == Scale::kK6) {
    const __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row.sub + step * 16)));
    v.s = _mm512_mul_ps(half_float(row.s + step * 2), _mm512_cvtepi32_ps(q));
  }
  return v;
}

// The scale of each of words 16 * kHalf .. + 15: words per block are 16 / kE, twice that for absmax of 64, half for
// Q6_K.
template <Kind kKind, Scale kScale, int kHalf>
BERTH_INLINE __m512 spread(__m512 blocks) {
  const __m512i word = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  constexpr bool k64 = kScale == Scale::kAbsmax || kScale == Scale::kNested;
  constexpr int kShift = k64 ? 3 : kScale == Scale::kK6 ? 1 : word_elements(kKind) == 4 ? 3 : 2;
  const __m512i block = _mm512_srli_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(16 * kHalf)), kShift);
  return _mm512_permutexvar_ps(block, blocks);
}

// --- codes ---

// 16 words of two elements: the low 16 bits first.
template <Kind kKind>
BERTH_INLINE void pair_codes(__m512i w, __m512 v[2]) {
  if (kKind == Kind::kBF16) {
    v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
    v[1] = _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  } else {
    v[0] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(w));
    v[1] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(w, 16)));
  }
}

// e4m3 in the top byte: its exponent and mantissa moved to bits 20..26 of a float are the value * 2^-120.
template <int kByte>
BERTH_INLINE __m512 fp8_float(__m512i w) {
  const __m512i top = kByte == 3 ? w : _mm512_slli_epi32(w, 24 - 8 * kByte);
  const __m512i bits = _mm512_and_si512(_mm512_srai_epi32(top, 4), _mm512_set1_epi32(static_cast<int>(0x87f00000u)));
  return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
}

template <Kind kKind, int kByte>
BERTH_INLINE __m512 quad_code(__m512i w) {
  if (kKind == Kind::kFP8) return fp8_float<kByte>(w);
  return byte_float<kByte>(w, _mm512_set1_ps(0x1p23f + 128));
}

BERTH_INLINE __mmask64 high_mask(__m512i bits, __m512i where) {
  const __m512i select = _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201ull));
  return _mm512_test_epi8_mask(_mm512_permutexvar_epi8(where, bits), select);
}

// Byte index of the high plane's 16-bit group for each byte of four words' codes (linear_int8_avx512.cc).
BERTH_INLINE __m512i group_index(int64_t stride, int64_t first) {
  const int64_t ones = 0x0101010101010101;
  const __m512i byte = _mm512_setr_epi64(0, ones, 0, ones, 0, ones, 0, ones);
  const __m512i base = _mm512_setr_epi64(first * ones, first * ones, (first + stride) * ones, (first + stride) * ones,
                                         (first + 2 * stride) * ones, (first + 2 * stride) * ones,
                                         (first + 3 * stride) * ones, (first + 3 * stride) * ones);
  return _mm512_add_epi8(byte, base);
}

// Codes of 64 bytes of nibbles with their high bits: odd elements (`hi`: the high halves) and even ones.
template <Kind kKind, bool kTail>
BERTH_INLINE void octet_bytes(const uint8_t* codes, int64_t bytes, const uint32_t* high, __m512i& hi, __m512i& lo) {
  const __m512i w = load_codes<kTail>(codes, bytes);
  const __m512i nibble = _mm512_set1_epi8(15), sixteen = _mm512_set1_epi8(16), thirty_two = _mm512_set1_epi8(32);
  hi = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
  lo = _mm512_and_si512(w, nibble);
  if (kKind == Kind::kFive) {
    const __m512i bits = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(high)));
    hi = _mm512_mask_add_epi8(hi, high_mask(bits, group_index(4, 0)), hi, sixteen);
    lo = _mm512_mask_add_epi8(lo, high_mask(bits, group_index(4, 2)), lo, sixteen);
  } else {
    const __m512i bits = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)));
    hi = _mm512_mask_add_epi8(hi, high_mask(bits, group_index(8, 0)), hi, sixteen);
    lo = _mm512_mask_add_epi8(lo, high_mask(bits, group_index(8, 2)), lo, sixteen);
    hi = _mm512_mask_add_epi8(hi, high_mask(bits, group_index(8, 4)), hi, thirty_two);
    lo = _mm512_mask_add_epi8(lo, high_mask(bits, group_index(8, 6)), lo, thirty_two);
  }
}

// --- codes of half a step, for several inputs ---

// Words of one and two elements are taken four and two steps at a time, so that a sum is touched once per four
// elements.
constexpr int terms(Kind kind) { return word_elements(kind) == 8 ? 8 : 4; }
constexpr int64_t steps_at_once(Kind kind) { return terms(kind) / word_elements(kind); }

// The words 16 * kHalf .. of a step (of each of steps_at_once), decoded: element after element.
template <Kind kKind, bool kTail, int kHalf>
BERTH_INLINE void decode_half(const Stream& row, int64_t step, int64_t tail_bytes, const Operands& op,
                              __m512 v[terms(kKind)]) {
  const uint8_t* const codes =
      row.codes + step * steps_at_once(kKind) * step_bytes(kKind) + kHalf * step_bytes(kKind) / 2;
  const int64_t bytes = tail_bytes - kHalf * 64;
  if constexpr (word_elements(kKind) == 1) {
    v[0] = _mm512_castsi512_ps(load_codes<kTail>(codes, bytes));
    v[1] = _mm512_castsi512_ps(load_codes<kTail>(codes + 128, bytes - 128));
    v[2] = _mm512_castsi512_ps(load_codes<kTail>(codes + 256, bytes - 256));
    v[3] = _mm512_castsi512_ps(load_codes<kTail>(codes + 384, bytes - 384));
  } else if constexpr (word_elements(kKind) == 2) {
    pair_codes<kKind>(load_codes<kTail>(codes, bytes), v);
    pair_codes<kKind>(load_codes<kTail>(codes + 128, bytes - 128), v + 2);
  } else if constexpr (word_elements(kKind) == 4) {
    __m512i w = kKind == Kind::kQ8Block ? load_two_blocks<kTail>(codes, bytes) : load_codes<kTail>(codes, bytes);
    if (kKind != Kind::kFP8) w = _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(0x80)));
    v[0] = quad_code<kKind, 0>(w);
    v[1] = quad_code<kKind, 1>(w);
    v[2] = quad_code<kKind, 2>(w);
    v[3] = quad_code<kKind, 3>(w);
  } else if constexpr (kKind == Kind::kBook) {
    const __m512i w = load_codes<kTail>(codes, bytes);
    v[0] = _mm512_permutexvar_ps(w, op.book);
    v[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 4), op.book);
    v[2] = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 8), op.book);
    v[3] = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 12), op.book);
    v[4] = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 16), op.book);
    v[5] = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 20), op.book);
    v[6] = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 24), op.book);
    v[7] = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 28), op.book);
  } else {
    constexpr int64_t kHigh = kKind == Kind::kFive ? 4 : 8;  // words of the high plane
    __m512i hi, lo;
    octet_bytes<kKind, kTail>(codes, bytes, row.high + (2 * step + kHalf) * kHigh, hi, lo);
    v[0] = byte_float<0>(lo, op.offset);
    v[1] = byte_float<0>(hi, op.offset);
    v[2] = byte_float<1>(lo, op.offset);
    v[3] = byte_float<1>(hi, op.offset);
    v[4] = byte_float<2>(lo, op.offset);
    v[5] = byte_float<2>(hi, op.offset);
    v[6] = byte_float<3>(lo, op.offset);
    v[7] = byte_float<3>(hi, op.offset);
  }
}

// A load that stays one: g++ would make it an operand of both fma, and then loads are the limit.
BERTH_INLINE __m512 loaded(const float* p) {
  __m512 v = _mm512_load_ps(p);
  __asm__("" : "+v"(v));
  return v;
}

// --- rows ---

// The finish of numerics.md for four rows: h = 16, 8, 4, 2, 1, and + 0.
BERTH_INLINE __m128 finish(const Accumulators& ra, const Accumulators& rb, const Accumulators& rc,
                           const Accumulators& rd) {
  const __m512 a = _mm512_add_ps(ra.half[0], ra.half[1]), b = _mm512_add_ps(rb.half[0], rb.half[1]);
  const __m512 c = _mm512_add_ps(rc.half[0], rc.half[1]), d = _mm512_add_ps(rd.half[0], rd.half[1]);
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));  // h = 8
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  const __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));  // h = 4
  const __m512 y2 = _mm512_add_ps(y, _mm512_permute_ps(y, 0x4e));
  const __m512 y1 = _mm512_add_ps(y2, _mm512_permute_ps(y2, 0xb1));
  const __m512i where = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm_add_ps(_mm512_castps512_ps128(_mm512_permutexvar_ps(where, y1)), _mm_setzero_ps());
}

template <Kind kKind>
BERTH_INLINE void prefetch(const Stream& row, int64_t step) {
  const auto* const ahead = reinterpret_cast<const char*>(row.codes + step * step_bytes(kKind) + kPrefetch);
  _mm_prefetch(ahead, _MM_HINT_T0);
  _mm_prefetch(ahead + 64, _MM_HINT_T0);
}

Operands operands(const WeightView& w) {
  alignas(64) float book[16];
  const int zero = w.codec == Codec::kQ4_0 ? 8 : 0;
  for (int q = 0; q < 16; ++q) book[q] = w.book != nullptr ? w.book[q] : static_cast<float>(q - zero);
  const int offset = w.codec == Codec::kQ5_0 ? 16 : w.codec == Codec::kQ6_K ? 32 : 0;
  return {_mm512_load_ps(book),
          _mm512_set1_ps(0x1p23f + static_cast<float>(offset)),
          nullptr,
          w.nested_map,
          w.nested_absmax,
          _mm_set1_ps(w.nested_offset)};
}

template <Kind kKind, bool kMin, Scale kScale>
inline void begin_quad(const RowsTask& t, int64_t i, Quad& quad) {
  const int64_t high_words = high_planes(kKind) * (t.w.k / 32);
  begin_quad<kMin, kScale>(t, i, t.w.k / word_elements(kKind) * step_bytes(kKind) / 32, high_words, quad);
}

// The four outputs of input m, of which only the row's scale and the bias are missing.
template <Kind kKind>
BERTH_INLINE void put(const RowsTask& t, const Quad& quad, int64_t m, __m128 sums) {
  alignas(16) float y[4];
  _mm_store_ps(y, sums);
  for (int r = 0; r < 4; ++r) {
    const int64_t n = quad.n[r];
    float v = y[r];
    if (kKind == Kind::kInt8) v = v * (static_cast<const float*>(t.w.scales)[t.row_begin + n] * kInt8RowScale);
    if (t.bias != nullptr) v = v + t.bias[n];
    t.y[m * t.y_stride + n] = v;
  }
}

// Absmax straight from its plane where every row begins with a block of 64 (nested: with four); else expanded.
template <typename Loop>
void rows_bnb(const RowsTask& t) {
  if (t.w.blocksize == 64 && t.w.nested && t.w.k % 256 == 0)
    return Loop::template rows<Kind::kBook, false, Scale::kNested>(t);
  if (t.w.blocksize == 64 && !t.w.nested && t.w.k % 64 == 0)
    return Loop::template rows<Kind::kBook, false, Scale::kAbsmax>(t);
  Loop::template rows<Kind::kBook, false, Scale::kBuffer>(t);
}

// The form of `Loop::rows` for a weight.
template <typename Loop>
RowsFn form_of(const WeightView& w) {
  if (w.in_blocks) return Loop::template rows<Kind::kQ8Block, false, Scale::kInBlock>;
  switch (w.codec) {
    case Codec::kF32:
      return Loop::template rows<Kind::kF32, false, Scale::kNone>;
    case Codec::kBF16:
      return Loop::template rows<Kind::kBF16, false, Scale::kNone>;
    case Codec::kF16:
      return Loop::template rows<Kind::kF16, false, Scale::kNone>;
    case Codec::kInt8Row:
      return Loop::template rows<Kind::kInt8, false, Scale::kNone>;
    case Codec::kQ8_0:
      return Loop::template rows<Kind::kQ8, false, Scale::kHalf>;
    case Codec::kFP8Block:
      return Loop::template rows<Kind::kFP8, false, Scale::kBuffer>;
    case Codec::kNF4:
    case Codec::kFP4:
      return rows_bnb<Loop>;
    case Codec::kMXFP4:
      return Loop::template rows<Kind::kBook, false, Scale::kE8M0>;
    case Codec::kQ4_0:
    case Codec::kIQ4_NL:
      return Loop::template rows<Kind::kBook, false, Scale::kHalf>;
    case Codec::kQ4_1:
      return Loop::template rows<Kind::kBook, true, Scale::kHalf>;
    case Codec::kQ4_K:
      return Loop::template rows<Kind::kBook, true, Scale::kK45>;
    case Codec::kQ5_0:
      return Loop::template rows<Kind::kFive, false, Scale::kHalf>;
    case Codec::kQ5_1:
      return Loop::template rows<Kind::kFive, true, Scale::kHalf>;
    case Codec::kQ5_K:
      return Loop::template rows<Kind::kFive, true, Scale::kK45>;
    case Codec::kQ6_K:
      return Loop::template rows<Kind::kSix, false, Scale::kK6>;
  }
  return nullptr;
}

}  // namespace
}  // namespace berth::kernel::cpu
