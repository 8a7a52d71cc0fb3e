// kernel/cpu/linear_exact_avx512.cc — y = W x in exact mode (numerics.md 1) with AVX-512, few inputs: lanes are the
// lanes.
//
// Two registers hold a row's 32 accumulators. A 64-byte load is 16 words, one per lane; x lies in scratch so that one
// load gives every lane the element of its word (InputLayout). Four rows at a time, a quarter of the task's rows apart
// (linear_int8_avx512.cc says why).
//
//   E = 8, 4 bits  words >> 4i: the 32-bit permute reads 4 bits of each lane and gives the exact fp32 code: one shift,
//                  one permute, one fma per 16 weights. i ascends, so elements come as 1 0 3 2 5 4 7 6.
//   E = 8, 5, 6    nibbles to bytes, the high plane's bits added (byte masks), then as below.
//   E = 4, 8 bits  byte b of each word under the bytes 4B 00 00 is the float 2^23 + code: less 2^23 it is exact.
//   E = 2, 1       widened.
//
// Start reading at: octet_half.
#include <immintrin.h>

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;

// kAbsmax: kBook whose scales are read where they are stored, one fp32 per 64 elements of the row.
enum class Kind { kF32, kBF16, kF16, kInt8, kQ8, kFP8, kBook, kAbsmax, kFive, kSix };
constexpr bool is_book(Kind kind) { return kind == Kind::kBook || kind == Kind::kAbsmax; }

constexpr int64_t kPrefetch = 2048;  // bytes ahead in each of the four streams

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

struct Accumulators {
  __m512 half[2];  // lanes 0..15, 16..31
};

template <bool kTail>
BERTH_INLINE __m512i load_codes(const uint8_t* p, int64_t bytes) {
  if (!kTail) return _mm512_loadu_si512(p);
  const __mmask64 mask = bytes >= 64 ? ~__mmask64{0} : bytes <= 0 ? 0 : (__mmask64{1} << bytes) - 1;
  return _mm512_maskz_loadu_epi8(mask, p);
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

// --- E = 1 and 2: no scales ---

BERTH_INLINE void plain_step(const uint8_t* codes, const float* x, Accumulators& a) {
  const float* w = reinterpret_cast<const float*>(codes);
  a.half[0] = fma(_mm512_loadu_ps(w), _mm512_load_ps(x), a.half[0]);
  a.half[1] = fma(_mm512_loadu_ps(w + 16), _mm512_load_ps(x + 16), a.half[1]);
}

// 16 words of two elements: the low 16 bits first.
template <Kind kKind>
BERTH_INLINE __m512 pair_half(const uint8_t* codes, const float* x, __m512 a) {
  const __m512i w = _mm512_loadu_si512(codes);
  __m512 even, odd;
  if (kKind == Kind::kBF16) {
    even = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  } else {
    even = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(w));
    odd = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(w, 16)));
  }
  a = fma(even, _mm512_load_ps(x), a);
  return fma(odd, _mm512_load_ps(x + 16), a);
}

// --- E = 4 ---

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

// 16 words of four bytes. s: 2 scales of 32 elements.
template <Kind kKind, bool kTail>
BERTH_INLINE __m512 quad_half(const uint8_t* codes, int64_t bytes, const float* x, const float* s, __m512 a) {
  __m512i w = load_codes<kTail>(codes, bytes);
  if (kKind != Kind::kFP8) w = _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(0x80)));
  if (kKind == Kind::kInt8) {
    a = fma(quad_code<kKind, 0>(w), _mm512_load_ps(x), a);
    a = fma(quad_code<kKind, 1>(w), _mm512_load_ps(x + 16), a);
    a = fma(quad_code<kKind, 2>(w), _mm512_load_ps(x + 32), a);
    return fma(quad_code<kKind, 3>(w), _mm512_load_ps(x + 48), a);
  }
  __m512 p = _mm512_mul_ps(quad_code<kKind, 0>(w), _mm512_load_ps(x));
  p = fma(quad_code<kKind, 1>(w), _mm512_load_ps(x + 16), p);
  p = fma(quad_code<kKind, 2>(w), _mm512_load_ps(x + 32), p);
  p = fma(quad_code<kKind, 3>(w), _mm512_load_ps(x + 48), p);
  const __m512i where = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m128 two = _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(s)));
  return fma(p, _mm512_permutexvar_ps(where, _mm512_castps128_ps512(two)), a);
}

// --- E = 8 ---

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

// p = the run's sum over 16 words of 8 elements, each of its own lane.
template <Kind kKind, bool kTail>
BERTH_INLINE __m512 octet_products(const uint8_t* codes, int64_t bytes, const uint32_t* high, const float* x,
                                   __m512 book, __m512 offset) {
  const __m512i w = load_codes<kTail>(codes, bytes);
  if (kKind == Kind::kBook) {
    __m512 p = _mm512_mul_ps(_mm512_permutexvar_ps(w, book), _mm512_load_ps(x));
    p = fma(_mm512_permutexvar_ps(_mm512_srli_epi32(w, 4), book), _mm512_load_ps(x + 16), p);
    p = fma(_mm512_permutexvar_ps(_mm512_srli_epi32(w, 8), book), _mm512_load_ps(x + 32), p);
    p = fma(_mm512_permutexvar_ps(_mm512_srli_epi32(w, 12), book), _mm512_load_ps(x + 48), p);
    p = fma(_mm512_permutexvar_ps(_mm512_srli_epi32(w, 16), book), _mm512_load_ps(x + 64), p);
    p = fma(_mm512_permutexvar_ps(_mm512_srli_epi32(w, 20), book), _mm512_load_ps(x + 80), p);
    p = fma(_mm512_permutexvar_ps(_mm512_srli_epi32(w, 24), book), _mm512_load_ps(x + 96), p);
    return fma(_mm512_permutexvar_ps(_mm512_srli_epi32(w, 28), book), _mm512_load_ps(x + 112), p);
  }
  const __m512i nibble = _mm512_set1_epi8(15), sixteen = _mm512_set1_epi8(16), thirty_two = _mm512_set1_epi8(32);
  __m512i hi = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
  __m512i lo = _mm512_and_si512(w, nibble);
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
  __m512 p = _mm512_mul_ps(byte_float<0>(lo, offset), _mm512_load_ps(x));
  p = fma(byte_float<0>(hi, offset), _mm512_load_ps(x + 16), p);
  p = fma(byte_float<1>(lo, offset), _mm512_load_ps(x + 32), p);
  p = fma(byte_float<1>(hi, offset), _mm512_load_ps(x + 48), p);
  p = fma(byte_float<2>(lo, offset), _mm512_load_ps(x + 64), p);
  p = fma(byte_float<2>(hi, offset), _mm512_load_ps(x + 80), p);
  p = fma(byte_float<3>(lo, offset), _mm512_load_ps(x + 96), p);
  return fma(byte_float<3>(hi, offset), _mm512_load_ps(x + 112), p);
}

// 16 floats from 4 (blocks of 32) or 8 (blocks of 16): a word's block is word / 4 or word / 2.
template <Kind kKind>
BERTH_INLINE __m512 spread(const float* s) {
  if (kKind == Kind::kSix) {
    const __m512i where = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(where, _mm512_castps256_ps512(_mm256_loadu_ps(s)));
  }
  const __m512i where = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(where, _mm512_castps128_ps512(_mm_loadu_ps(s)));
}

// 16 words of 8 elements of one row: words 16 * half .. of the step of 32.
template <Kind kKind, bool kMin, bool kTail>
BERTH_INLINE __m512 octet_half(const Stream& row, int64_t step, int half, int64_t tail_bytes, const float* x,
                               const float* t, __m512 book, __m512 offset, __m512 a) {
  constexpr int64_t kHigh = kKind == Kind::kFive ? 4 : kKind == Kind::kSix ? 8 : 0;  // high words and scales per half
  constexpr int64_t kScales = kKind == Kind::kSix ? 8 : 4;
  const int64_t at = 2 * step + half;
  const __m512 p = octet_products<kKind, kTail>(row.codes + at * 64, tail_bytes - half * 64, row.high + at * kHigh,
                                                x + at * 128, book, offset);
  a = fma(p, spread<kKind>(row.s + at * kScales), a);
  if (kMin) a = fma(spread<kKind>(row.m + at * kScales), _mm512_load_ps(t + at * 16), a);
  return a;
}

// The same for four rows of 4-bit codes side by side, so that one load of x serves four rows.
template <bool kTail>
BERTH_INLINE void book_products(const uint8_t* const codes[4], int64_t bytes, const float* x, __m512 book, __m512& pa,
                                __m512& pb, __m512& pc, __m512& pd) {
  __m512i a = load_codes<kTail>(codes[0], bytes), b = load_codes<kTail>(codes[1], bytes);
  __m512i c = load_codes<kTail>(codes[2], bytes), d = load_codes<kTail>(codes[3], bytes);
  const __m512 first = _mm512_load_ps(x);
  pa = _mm512_mul_ps(_mm512_permutexvar_ps(a, book), first);
  pb = _mm512_mul_ps(_mm512_permutexvar_ps(b, book), first);
  pc = _mm512_mul_ps(_mm512_permutexvar_ps(c, book), first);
  pd = _mm512_mul_ps(_mm512_permutexvar_ps(d, book), first);
#if defined(__clang__)
#pragma unroll
#else
#pragma GCC unroll 8
#endif
  for (int i = 1; i < 8; ++i) {
    const __m512 xi = _mm512_load_ps(x + 16 * i);
    a = _mm512_srli_epi32(a, 4);
    b = _mm512_srli_epi32(b, 4);
    c = _mm512_srli_epi32(c, 4);
    d = _mm512_srli_epi32(d, 4);
    pa = fma(_mm512_permutexvar_ps(a, book), xi, pa);
    pb = fma(_mm512_permutexvar_ps(b, book), xi, pb);
    pc = fma(_mm512_permutexvar_ps(c, book), xi, pc);
    pd = fma(_mm512_permutexvar_ps(d, book), xi, pd);
  }
}

// `left`: bytes of codes from this half's first (kTail).
template <Kind kKind, bool kMin, bool kTail>
BERTH_INLINE __m512 book_scaled(const Stream& row, int64_t at, int64_t left, __m512 p, const float* t, __m512 a) {
  if (kKind == Kind::kAbsmax) {
    const __mmask8 mask = left > 32 ? 3 : 1;  // a block is 32 bytes
    const __m128 two = kTail ? _mm_maskz_loadu_ps(mask, row.s + at * 2)
                             : _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(row.s + at * 2)));
    const __m512i where = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    return fma(p, _mm512_permutexvar_ps(where, _mm512_castps128_ps512(two)), a);
  }
  a = fma(p, spread<kKind>(row.s + at * 4), a);
  if (kMin) a = fma(spread<kKind>(row.m + at * 4), _mm512_load_ps(t + at * 16), a);
  return a;
}

// --- the loop ---

struct Operands {
  __m512 book, offset;
  const float* t;
};

// One step of 32 words of one row. `tail_bytes`: of its codes that exist.
template <Kind kKind, bool kMin, bool kTail>
BERTH_INLINE void row_step(const Stream& row, int64_t step, int64_t tail_bytes, const float* x, const Operands& op,
                           Accumulators& a) {
  const uint8_t* codes = row.codes + step * 128;
  if (kKind == Kind::kF32) {
    plain_step(codes, x + step * 32, a);
  } else if (kKind == Kind::kBF16 || kKind == Kind::kF16) {
    a.half[0] = pair_half<kKind>(codes, x + step * 64, a.half[0]);
    if (!kTail) a.half[1] = pair_half<kKind>(codes + 64, x + step * 64 + 32, a.half[1]);
  } else if (word_elements(kKind) == 4) {
    a.half[0] = quad_half<kKind, kTail>(codes, tail_bytes, x + step * 128, row.s + step * 4, a.half[0]);
    a.half[1] =
        quad_half<kKind, kTail>(codes + 64, tail_bytes - 64, x + step * 128 + 64, row.s + step * 4 + 2, a.half[1]);
  } else {
    a.half[0] = octet_half<kKind, kMin, kTail>(row, step, 0, tail_bytes, x, op.t, op.book, op.offset, a.half[0]);
    a.half[1] = octet_half<kKind, kMin, kTail>(row, step, 1, tail_bytes, x, op.t, op.book, op.offset, a.half[1]);
  }
}

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

BERTH_INLINE void prefetch(const Stream& row, int64_t step) {
  _mm_prefetch(reinterpret_cast<const char*>(row.codes + step * 128 + kPrefetch), _MM_HINT_NTA);
  _mm_prefetch(reinterpret_cast<const char*>(row.codes + step * 128 + 64 + kPrefetch), _MM_HINT_NTA);
}

// Words 16 * kHalf .. of a step, of four rows of 4-bit codes.
template <Kind kKind, bool kMin, bool kTail, int kHalf>
BERTH_INLINE void book_half(const Stream row[4], int64_t step, int64_t tail_bytes, const float* x, const Operands& op,
                            Accumulators& a, Accumulators& b, Accumulators& c, Accumulators& d) {
  const int64_t at = 2 * step + kHalf;
  const uint8_t* codes[4] = {row[0].codes + at * 64, row[1].codes + at * 64, row[2].codes + at * 64,
                             row[3].codes + at * 64};
  __m512 pa, pb, pc, pd;
  const int64_t left = tail_bytes - kHalf * 64;
  book_products<kTail>(codes, left, x + at * 128, op.book, pa, pb, pc, pd);
  a.half[kHalf] = book_scaled<kKind, kMin, kTail>(row[0], at, left, pa, op.t, a.half[kHalf]);
  b.half[kHalf] = book_scaled<kKind, kMin, kTail>(row[1], at, left, pb, op.t, b.half[kHalf]);
  c.half[kHalf] = book_scaled<kKind, kMin, kTail>(row[2], at, left, pc, op.t, c.half[kHalf]);
  d.half[kHalf] = book_scaled<kKind, kMin, kTail>(row[3], at, left, pd, op.t, d.half[kHalf]);
}

// One step of 32 words of four rows.
template <Kind kKind, bool kMin, bool kTail>
BERTH_INLINE void step_of_four(const Stream row[4], int64_t step, int64_t tail_bytes, const float* x, const Operands& op,
                               Accumulators& a, Accumulators& b, Accumulators& c, Accumulators& d) {
  if (is_book(kKind)) {
    book_half<kKind, kMin, kTail, 0>(row, step, tail_bytes, x, op, a, b, c, d);
    if (!kTail || tail_bytes > 64) book_half<kKind, kMin, kTail, 1>(row, step, tail_bytes, x, op, a, b, c, d);
    return;
  }
  row_step<kKind, kMin, kTail>(row[0], step, tail_bytes, x, op, a);
  row_step<kKind, kMin, kTail>(row[1], step, tail_bytes, x, op, b);
  row_step<kKind, kMin, kTail>(row[2], step, tail_bytes, x, op, c);
  row_step<kKind, kMin, kTail>(row[3], step, tail_bytes, x, op, d);
}

template <Kind kKind, bool kMin>
__m128 tile(const Stream row[4], const float* x, int64_t k, Operands op) {
  constexpr int kElements = word_elements(kKind);
  const int64_t steps = k / (32 * kElements);
  const Stream a = row[0], b = row[1], c = row[2], d = row[3];
  Accumulators aa{{_mm512_setzero_ps(), _mm512_setzero_ps()}}, ab = aa, ac = aa, ad = aa;
  op.t = x + (k + 255) / 256 * 256;
  for (int64_t step = 0; step < steps; ++step) {
    prefetch(a, step);
    prefetch(b, step);
    prefetch(c, step);
    prefetch(d, step);
    step_of_four<kKind, kMin, false>(row, step, 0, x, op, aa, ab, ac, ad);
  }
  if (const int64_t words = k % (32 * kElements) / kElements; words != 0) {
    step_of_four<kKind, kMin, true>(row, steps, words * 4, x, op, aa, ab, ac, ad);
  }
  return finish(aa, ab, ac, ad);
}

Operands operands(const WeightView& w) {
  alignas(64) float book[16];
  const int zero = w.codec == Codec::kQ4_0 ? 8 : 0;
  for (int q = 0; q < 16; ++q) book[q] = w.book != nullptr ? w.book[q] : static_cast<float>(q - zero);
  const int offset = w.codec == Codec::kQ5_0 ? 16 : w.codec == Codec::kQ6_K ? 32 : 0;
  return {_mm512_load_ps(book), _mm512_set1_ps(0x1p23f + static_cast<float>(offset)), nullptr};
}

constexpr float kInt8RowScale = 0x1.020408p-7f;  // 0x3c010204

template <Kind kKind, bool kMin>
void rows(const RowsTask& t) {
  constexpr int kElements = word_elements(kKind);
  const Operands op = operands(t.w);
  const int64_t k = t.w.k, blocks = k / 32;
  const int64_t scale_stride = (blocks + 7) / 8 * 8 * (kKind == Kind::kSix ? 2 : 1);
  const int64_t row_bytes = k / kElements * 4;
  float* const buffer = reinterpret_cast<float*>(t.scratch);
  const int64_t quarter = (t.row_count + 3) / 4;
  for (int64_t i = 0; i < quarter; ++i) {
    Stream stream[4];
    int64_t n[4];
    for (int r = 0; r < 4; ++r) {
      n[r] = i + r * quarter;
      if (n[r] >= t.row_count) n[r] = t.row_count - 1;  // again: the same bits to the same place
      const int64_t row = t.row_begin + n[r];
      float* s = buffer + r * scale_stride;
      float* m = buffer + (4 + r) * scale_stride;
      if (kElements > 2 && kKind != Kind::kInt8 && kKind != Kind::kAbsmax) expand_scales_avx2(t.w, row, s, m);
      const int64_t high_words = kKind == Kind::kFive ? blocks : kKind == Kind::kSix ? 2 * blocks : 0;
      stream[r] = {t.w.codes + row * row_bytes, t.w.high + row * high_words, s, m};
      if (kKind == Kind::kAbsmax) {
        stream[r].s = static_cast<const float*>(t.w.scales) + row * (k / 64);
        for (int64_t at = 0; at < k / 64; at += 16)
          _mm_prefetch(reinterpret_cast<const char*>(stream[r].s + (k < 4096 ? 64 : k / 64) + at), _MM_HINT_T0);
      }
    }
    for (int64_t m = 0; m < t.m; ++m) {
      alignas(16) float y[4];
      _mm_store_ps(y, tile<kKind, kMin>(stream, reinterpret_cast<const float*>(t.x + m * t.x_bytes), k, op));
      for (int r = 0; r < 4; ++r) {
        float v = y[r];
        if (kKind == Kind::kInt8) v = v * (static_cast<const float*>(t.w.scales)[t.row_begin + n[r]] * kInt8RowScale);
        if (t.bias != nullptr) v = v + t.bias[n[r]];
        t.y[m * t.y_stride + n[r]] = v;
      }
    }
  }
}

// Absmax straight from its plane where every row begins with a block of 64; else expanded.
void rows_bnb(const RowsTask& t) {
  if (t.w.blocksize == 64 && !t.w.nested && t.w.k % 64 == 0) return rows<Kind::kAbsmax, false>(t);
  rows<Kind::kBook, false>(t);
}

}  // namespace

RowsFn rows_exact_avx512(Codec codec) {
  switch (codec) {
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
      return rows_bnb;
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
