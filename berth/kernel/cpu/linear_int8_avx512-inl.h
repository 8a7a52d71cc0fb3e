// kernel/cpu/linear_int8_avx512-inl.h — how the int8 VNNI loops for few inputs take weights apart: codes of 256
// elements of two rows as unsigned bytes, their scales, what becomes of the dots, and the end of a row. For
// linear_int8_avx512.cc (one input) and linear_few_int8_avx512.cc (several). Lanes are the word lanes.
//
// Per 256 elements of two rows A, B (4 bits):
//
//   codes    A: 2 x 64 bytes = words 0..3, 4..7 of 16 bytes; byte t of a word = element 2t in the high half, 2t+1 low
//   look up  vpermb reads 6 bits of each byte, so the 16 integers (+ 128, unsigned) stand four times in a 64-byte table
//            and no byte needs a mask: one shift and two permutes give 128 codes
//   dot      vpdpbusd with q: each 128-bit lane is now one word, as four partial sums
//   reduce   two rounds of "unpack low + unpack high" turn 4 vectors into one of 16 word sums:
//            lane L = A's word L, A's word 4+L, B's word L, B's word 4+L (kInt8OrderNibbles512)
//   scale    less 128 * sum of q; to float; fma with dx * s
//
// 5 and 6 bits: the bits of the high plane become byte masks (vptestmb) that add 16 and 32. 8 bits: code ^ 0x80 is the
// unsigned operand; a word is 32 bytes, i.e. two 128-bit lanes, added once more at the end.
//
// Start reading at: nibble_codes, then add_nibbles and add_bytes.
#pragma once

#include <immintrin.h>

#include "berth/kernel/cpu/inline.h"
#include "berth/kernel/cpu/linear_kernels.h"
#include "berth/kernel/cpu/linear_quads_avx512-inl.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;

enum class Kind { kBook, kFive, kSix, kByte, kQ8Block };

constexpr bool is_byte(Kind kind) { return kind == Kind::kByte || kind == Kind::kQ8Block; }
// Codes of a step of 256 elements, with the scales between them.
constexpr int64_t step_bytes(Kind kind) {
  return kind == Kind::kQ8Block ? 8 * kQ8BlockBytes : kind == Kind::kByte ? 256 : 128;
}

// Constant operands of a loop.
struct Operands {
  __m512i table;  // kBook: integers + 128, four times
  int shift;      // what a code is too large by: 2^shift; 0: nothing (and then `offset` is false)
  bool offset;
  const float* map;            // kNested: bitsandbytes' 256 values,
  const float* nested_absmax;  // their scale per 256 blocks
  __m256 nested_offset;        // and what is added
};

// How much of a step there is: all of it, the first two or four words (rows of 576 and 896 elements, whose ends take a
// noticeable part of their time), or as many as the argument `words` of a function says.
enum class Part { kAll, kTwo, kFour, kSome };

// 64 bytes of codes, or the first `bytes` of them; none where they are known to be beyond the part.
template <Part kPart>
BERTH_INLINE __m512i load_codes(const uint8_t* p, int64_t bytes) {
  if (kPart == Part::kAll || (kPart != Part::kSome && bytes >= 64)) return _mm512_loadu_si512(p);
  if (kPart != Part::kSome) return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __mmask64 mask = bytes >= 64 ? ~__mmask64{0} : bytes <= 0 ? 0 : (__mmask64{1} << bytes) - 1;
  return _mm512_maskz_loadu_epi8(mask, p);
}

// The 64 codes of two Q8_0 blocks, or those of the first or of neither.
template <Part kPart>
BERTH_INLINE __m512i load_two_blocks(const uint8_t* p, int64_t bytes) {
  const auto codes = [](const uint8_t* block) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
  };
  if (kPart == Part::kSome && bytes <= 0) return _mm512_setzero_si512();
  const __m512i first = _mm512_castsi256_si512(codes(p));
  if (kPart == Part::kSome && bytes <= 32) return _mm512_inserti64x4(first, _mm256_setzero_si256(), 1);
  return _mm512_inserti64x4(first, codes(p + kQ8BlockBytes), 1);
}

// Bits of the high plane as one mask bit per byte of a codes vector: byte 16L + t of the vector looks at bit t of the
// 16-bit group that `where` (a byte index for each byte) points to.
BERTH_INLINE __mmask64 high_mask(__m512i bits, __m512i where) {
  const __m512i select = _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201ull));
  return _mm512_test_epi8_mask(_mm512_permutexvar_epi8(where, bits), select);
}

// For codes vectors of four words: byte index of the group of 16 bits for even (high half) and odd elements. `stride`:
// bytes of high plane per word (4: 5 bit, 8: 6 bit); `plane`: 0 for bit 4, 4 for bit 5.
BERTH_INLINE __m512i group_index(int stride, int first) {
  const __m512i byte =
      _mm512_setr_epi64(0, 0x0101010101010101, 0, 0x0101010101010101, 0, 0x0101010101010101, 0, 0x0101010101010101);
  const int64_t ones = 0x0101010101010101;
  const int64_t s = stride, f = first;
  const __m512i base = _mm512_setr_epi64(f * ones, f * ones, (f + s) * ones, (f + s) * ones, (f + 2 * s) * ones,
                                         (f + 2 * s) * ones, (f + 3 * s) * ones, (f + 3 * s) * ones);
  return _mm512_add_epi8(byte, base);
}

// Unsigned codes of 64 bytes of nibbles: `hi` the even elements, `lo` the odd ones.
template <Kind kKind>
BERTH_INLINE void unpack(__m512i c, const uint32_t* high, const Operands& op, __m512i& hi, __m512i& lo) {
  const __m512i shifted = _mm512_srli_epi16(c, 4);
  if (kKind == Kind::kBook) {
    hi = _mm512_permutexvar_epi8(shifted, op.table);
    lo = _mm512_permutexvar_epi8(c, op.table);
    return;
  }
  const __m512i nibble = _mm512_set1_epi8(15), sixteen = _mm512_set1_epi8(16), thirty_two = _mm512_set1_epi8(32);
  hi = _mm512_and_si512(shifted, nibble);
  lo = _mm512_and_si512(c, nibble);
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

// Unsigned codes of 4 words (nibbles; `half` 0 or 1: words 0..3 or 4..7 of the step): even elements, odd ones.
struct Nibbles {
  __m512i even, odd;
};
template <Kind kKind, Part kPart>
BERTH_INLINE Nibbles nibble_codes(const Stream& row, int64_t step, int half, const Operands& op, int64_t words) {
  const int64_t bytes = words * 16 - half * 64;
  if ((kPart == Part::kTwo || kPart == Part::kFour) && bytes <= 0)
    return {_mm512_setzero_si512(), _mm512_setzero_si512()};  // q is 0 there
  const __m512i c = load_codes<kPart>(row.codes + step * 128 + half * 64, bytes);
  Nibbles codes;
  unpack<kKind>(c, row.high + (kKind == Kind::kSix ? 16 : 8) * step + (kKind == Kind::kSix ? 8 : 4) * half, op,
                codes.even, codes.odd);
  return codes;
}

// Their dots with q: partial sums of the words.
BERTH_INLINE __m512i nibble_dots(const Nibbles& codes, int half, const Int8Step& x) {
  const __m512i even = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes.even, _mm512_load_si512(x.q + half * 64));
  return _mm512_dpbusd_epi32(even, codes.odd, _mm512_load_si512(x.q + Int8Step::kOdd + half * 64));
}

BERTH_INLINE __m512i add_halves32(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
BERTH_INLINE __m512i add_halves64(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
template <int kEven, int kOdd>
BERTH_INLINE __m512i pick32(__m512i a, __m512i b) {
  return _mm512_castps_si512(
      _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), kEven | kOdd << 2 | kEven << 4 | kOdd << 6));
}

// Unsigned codes of two words of a byte format's row, `quarter` 0 to 3.
template <Kind kKind, Part kPart>
BERTH_INLINE __m512i byte_codes(const Stream& row, int64_t step, int quarter, int64_t words) {
  const uint8_t* const at = row.codes + step * step_bytes(kKind);
  const int64_t bytes = words * 32 - quarter * 64;
  if ((kPart == Part::kTwo || kPart == Part::kFour) && bytes <= 0) return _mm512_setzero_si512();
  const __m512i c = kKind == Kind::kQ8Block ? load_two_blocks<kPart>(at + quarter * 2 * kQ8BlockBytes, bytes)
                                            : load_codes<kPart>(at + quarter * 64, bytes);
  return _mm512_xor_si512(c, _mm512_set1_epi8(static_cast<char>(0x80)));
}
BERTH_INLINE __m512i byte_dots(__m512i codes, int quarter, const Int8Step& x) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, _mm512_load_si512(x.q + quarter * 64));
}
// A row's 8 words as four partial sums per 128-bit lane: lanes 0+1 are the words 0 2 4 6, lanes 2+3 1 3 5 7.
BERTH_INLINE __m512i row_sums(__m512i v0, __m512i v1, __m512i v2, __m512i v3) {
  return add_halves64(add_halves32(v0, v1), add_halves32(v2, v3));
}

BERTH_INLINE __m512 scale_sums(__m512i i, __m512i excess, const Operands& op, __m512 dx, __m512 s, __m512 acc) {
  if (op.offset) i = _mm512_sub_epi32(i, _mm512_slli_epi32(excess, static_cast<unsigned>(op.shift)));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), _mm512_mul_ps(dx, s), acc);
}

// --- scales of 8 words of the rows A and B, in the order of the reduced vector ---

// Position -> word of A (0..7) or 8 + word of B.
struct WordOrder {
  uint8_t at[16];
};
template <Kind kKind>
constexpr WordOrder kOrder = {{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}};
template <>
constexpr WordOrder kOrder<Kind::kByte> = {{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}};
template <>
constexpr WordOrder kOrder<Kind::kQ8Block> = kOrder<Kind::kByte>;

// The order as byte indices, and as 16- and 32-bit ones; constants once inlined.
template <Kind kKind>
BERTH_INLINE __m128i order8() {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(kOrder<kKind>.at));
}
template <Kind kKind>
BERTH_INLINE __m256i order16() {
  return _mm256_cvtepu8_epi16(order8<kKind>());
}
template <Kind kKind>
BERTH_INLINE __m512i order32() {
  return _mm512_cvtepu8_epi32(order8<kKind>());
}

struct PairScales {
  __m512 s, m;  // kK6: of the words' first and second halves
};

BERTH_INLINE __m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
BERTH_INLINE __m128i load8_8(const uint8_t* a, const uint8_t* b) {
  const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(a));
  return _mm_unpacklo_epi64(low, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b)));
}

// 8 fp16, or the first `words` of them.
template <Part kPart>
BERTH_INLINE __m128i load_halves(const uint8_t* p, int64_t words) {
  switch (kPart) {
    case Part::kAll:
      return load16(p);
    case Part::kTwo:
      return _mm_loadu_si32(p);
    case Part::kFour:
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    default:
      return _mm_maskz_loadu_epi16(static_cast<__mmask8>((1u << words) - 1), p);
  }
}

// 8 fp16 of A and of B.
template <Kind kKind, Part kPart>
BERTH_INLINE __m512 half_scales(const uint8_t* a, const uint8_t* b, int64_t words) {
  const __m128i ha = load_halves<kPart>(a, words), hb = load_halves<kPart>(b, words);
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(ha), hb, 1);
  return _mm512_cvtph_ps(_mm256_permutexvar_epi16(order16<kKind>(), both));
}

BERTH_INLINE int half_at(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return bits;
}

// The d of 8 blocks in kOrder of the byte formats; zeros for those from `words` on.
template <Part kPart>
BERTH_INLINE __m128i block_halves(const uint8_t* p, int64_t words) {
  const auto d = [&](int64_t word) {
    return static_cast<int16_t>(kPart != Part::kAll && word >= words ? 0 : half_at(p + word * kQ8BlockBytes));
  };
  return _mm_setr_epi16(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7));
}

// Q4_K, Q5_K: bytes 0-3 sc0..3 and top two bits of sc4..7; 4-7 mn likewise; 8-11: low four bits of sc4..7, mn4..7.
template <Kind kKind>
BERTH_INLINE PairScales k45_scales(const Stream& a, const Stream& b, int64_t step) {
  const uint8_t *pa = a.sub + step * 12, *pb = b.sub + step * 12;
  const __m128i six = load8_8(pa, pb);  // sc0..3 mn0..3 of A, of B
  const __m128i four = _mm_insert_epi32(_mm_loadu_si32(pa + 8), *reinterpret_cast<const int32_t*>(pb + 8), 1);
  const __m128i nibbles =
      _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(four, 0x50), _mm_setr_epi32(0, 4, 0, 4)), _mm_set1_epi8(15));
  const __m128i first = _mm_and_si128(six, _mm_set1_epi8(63));
  const __m128i second = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(six, 2), _mm_set1_epi8(0x30)), nibbles);
  // Word w of A is byte w of `first` or byte w - 4 of `second` (16 + ...); B's stand 8 further; minima 4 further.
  const __m128i word = order8<kKind>();
  const __m128i of_row = _mm_and_si128(word, _mm_set1_epi8(7)), row = _mm_and_si128(word, _mm_set1_epi8(8));
  const __m128i upper = _mm_and_si128(of_row, _mm_set1_epi8(4));
  const __m128i where =
      _mm_or_si128(_mm_or_si128(_mm_and_si128(of_row, _mm_set1_epi8(3)), row), _mm_slli_epi16(upper, 2));
  const __m128i sc = _mm_permutex2var_epi8(first, where, second);
  const __m128i mn = _mm_permutex2var_epi8(first, _mm_or_si128(where, _mm_set1_epi8(4)), second);
  __m128i d = _mm_cvtsi32_si128(half_at(a.s + 2 * step));
  d = _mm_insert_epi16(d, half_at(b.s + 2 * step), 1);
  d = _mm_insert_epi16(d, half_at(a.m + 2 * step), 2);
  d = _mm_insert_epi16(d, half_at(b.m + 2 * step), 3);
  const __m128 of_rows =
      _mm_xor_ps(_mm_cvtph_ps(d), _mm_setr_ps(0.0f, 0.0f, -0.0f, -0.0f));  // the minima are subtracted
  const __m512 wide = _mm512_castps128_ps512(of_rows);
  const __m512i row32 = _mm512_srli_epi32(order32<kKind>(), 3);
  const __m512 ds = _mm512_permutexvar_ps(row32, wide);
  const __m512 dm = _mm512_permutexvar_ps(_mm512_add_epi32(row32, _mm512_set1_epi32(2)), wide);
  return {_mm512_mul_ps(ds, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sc))),
          _mm512_mul_ps(dm, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(mn)))};
}

// Q6_K: int8 scales of 16 elements.
template <Kind kKind>
BERTH_INLINE PairScales k6_scales(const Stream& a, const Stream& b, int64_t step) {
  const __m256i both =
      _mm256_inserti128_si256(_mm256_castsi128_si256(load16(a.sub + step * 16)), load16(b.sub + step * 16), 1);
  const __m128i first = _mm_add_epi8(order8<kKind>(), order8<kKind>());
  const __m256i where =
      _mm256_inserti128_si256(_mm256_castsi128_si256(first), _mm_add_epi8(first, _mm_set1_epi8(1)), 1);
  const __m256i sc = _mm256_permutexvar_epi8(where, both);
  const __m128i d = _mm_insert_epi16(_mm_cvtsi32_si128(half_at(a.s + 2 * step)), half_at(b.s + 2 * step), 1);
  const __m512 ds =
      _mm512_permutexvar_ps(_mm512_srli_epi32(order32<kKind>(), 3), _mm512_castps128_ps512(_mm_cvtph_ps(d)));
  return {_mm512_mul_ps(ds, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(sc)))),
          _mm512_mul_ps(ds, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(sc, 1))))};
}

// Four absmax of the rows A and B: fp32(map * nested_absmax) + offset, rounded twice. A step begins a multiple of four
// blocks into the matrix, so its blocks share one nested_absmax.
BERTH_INLINE __m512 nested_scales(const Stream& a, const Stream& b, int64_t step, const Operands& op) {
  const __m128i q = _mm_unpacklo_epi32(_mm_loadu_si32(a.s + step * 4), _mm_loadu_si32(b.s + step * 4));
  const __m256 value = _mm256_i32gather_ps(op.map, _mm256_cvtepu8_epi32(q), 4);
  const __m256 scale = _mm256_set_m128(_mm_set1_ps(op.nested_absmax[(b.block + 4 * step) / 256]),
                                       _mm_set1_ps(op.nested_absmax[(a.block + 4 * step) / 256]));
  return _mm512_castps256_ps512(_mm256_add_ps(_mm256_mul_ps(value, scale), op.nested_offset));
}

// `words`: how many of the step's words exist. Absent words get scale 0.
template <Kind kKind, bool kMin, Scale kScale, Part kPart>
BERTH_INLINE PairScales pair_scales(const Stream& a, const Stream& b, int64_t step, const Operands& op, int64_t words) {
  const __m512i word = order32<kKind>();
  PairScales p{_mm512_setzero_ps(), _mm512_setzero_ps()};
  if (kScale == Scale::kHalf) {
    p.s = half_scales<kKind, kPart>(a.s + step * 16, b.s + step * 16, words);
    if (kMin) p.m = half_scales<kKind, kPart>(a.m + step * 16, b.m + step * 16, words);
  } else if (kScale == Scale::kAbsmax) {
    const __mmask8 mask = static_cast<__mmask8>((1u << (words + 1) / 2) - 1);
    const float *fa = reinterpret_cast<const float*>(a.s + step * 16),
                *fb = reinterpret_cast<const float*>(b.s + step * 16);
    const __m128 sa = kPart != Part::kAll ? _mm_maskz_loadu_ps(mask, fa) : _mm_loadu_ps(fa);
    const __m128 sb = kPart != Part::kAll ? _mm_maskz_loadu_ps(mask, fb) : _mm_loadu_ps(fb);
    const __m512 both = _mm512_insertf32x4(_mm512_castps128_ps512(sa), sb, 1);
    p.s = _mm512_permutexvar_ps(_mm512_srli_epi32(word, 1), both);
  } else if (kScale == Scale::kNested) {
    p.s = _mm512_permutexvar_ps(_mm512_srli_epi32(word, 1), nested_scales(a, b, step, op));
  } else if (kScale == Scale::kE8M0) {
    const __mmask16 mask = static_cast<__mmask16>((1u << words) - 1);
    __m128i e = load8_8(a.s + step * 8, b.s + step * 8);
    if (kPart != Part::kAll)
      e = _mm_unpacklo_epi64(_mm_maskz_loadu_epi8(mask, a.s + step * 8), _mm_maskz_loadu_epi8(mask, b.s + step * 8));
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(e, order8<kKind>()));
    const __mmask16 subnormal = _mm512_testn_epi32_mask(wide, wide);  // 2^-127
    p.s = _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(_mm512_slli_epi32(wide, 23), subnormal, _mm512_set1_epi32(0x00400000)));
  } else if (kScale == Scale::kInBlock) {
    const __m128i of_a = block_halves<kPart>(a.codes + step * step_bytes(kKind), words);
    const __m128i of_b = block_halves<kPart>(b.codes + step * step_bytes(kKind), words);
    p.s = _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(of_a), of_b, 1));
  } else if (kScale == Scale::kK45) {
    return k45_scales<kKind>(a, b, step);
  } else if (kScale == Scale::kK6) {
    return k6_scales<kKind>(a, b, step);
  } else if (kScale == Scale::kBuffer) {
    const __m512 both =
        _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(reinterpret_cast<const float*>(a.s) + step * 8)),
                           _mm256_loadu_ps(reinterpret_cast<const float*>(b.s) + step * 8), 1);
    p.s = _mm512_permutexvar_ps(word, both);
  }
  return p;
}

// 8 words of the rows A and B added to their 16 lanes: from the dots of A's halves and B's (nibbles), or from the rows'
// sums (bytes).
template <Kind kKind, bool kMin>
BERTH_INLINE __m512 add_nibbles(__m512i a0, __m512i a1, __m512i b0, __m512i b1, const Int8Step& x,
                                const PairScales& scales, const Operands& op, __m512 acc) {
  const __m512 dx = _mm512_load_ps(x.dx);
  const __m512i sum = _mm512_load_si512(x.sum);
  if (kKind == Kind::kSix) {  // blocks of 16: a word's first two partial sums and its other two are runs of their own
    const __m512i ra = _mm512_add_epi32(pick32<0, 2>(a0, a1), pick32<1, 3>(a0, a1));
    const __m512i rb = _mm512_add_epi32(pick32<0, 2>(b0, b1), pick32<1, 3>(b0, b1));
    acc = scale_sums(pick32<0, 2>(ra, rb), _mm512_load_si512(x.half_sum[0]), op, dx, scales.s, acc);
    return scale_sums(pick32<1, 3>(ra, rb), _mm512_load_si512(x.half_sum[1]), op, dx, scales.m, acc);
  }
  acc = scale_sums(row_sums(a0, a1, b0, b1), sum, op, dx, scales.s, acc);
  if (kMin) acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(dx, scales.m), acc);
  return acc;
}
template <Scale kScale>
BERTH_INLINE __m512 add_bytes(__m512i ra, __m512i rb, const Int8Step& x, const PairScales& scales, __m512 acc) {
  const __m512 dx = _mm512_load_ps(x.dx);
  const __m512i i = _mm512_add_epi32(_mm512_shuffle_i32x4(ra, rb, 0x88), _mm512_shuffle_i32x4(ra, rb, 0xdd));
  const __m512 dot = _mm512_cvtepi32_ps(_mm512_sub_epi32(i, _mm512_slli_epi32(_mm512_load_si512(x.sum), 7)));
  return _mm512_fmadd_ps(dot, kScale == Scale::kNone ? dx : _mm512_mul_ps(dx, scales.s), acc);
}

// The finish of numerics.md for the rows A, B (ab) and C, D (cd): h = 4, 2, 1.
template <Kind kKind>
BERTH_INLINE __m128 finish(__m512 ab, __m512 cd) {
  if (is_byte(kKind)) {  // a lane: words 0 2 4 6, the next 1 3 5 7
    ab = _mm512_add_ps(ab, _mm512_permute_ps(ab, 0x4e));
    cd = _mm512_add_ps(cd, _mm512_permute_ps(cd, 0x4e));
    ab = _mm512_add_ps(ab, _mm512_permute_ps(ab, 0xb1));
    cd = _mm512_add_ps(cd, _mm512_permute_ps(cd, 0xb1));
    const __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    return _mm512_castps512_ps128(
        _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), y));
  }
  ab = _mm512_add_ps(ab, _mm512_permute_ps(ab, 0xb1));
  cd = _mm512_add_ps(cd, _mm512_permute_ps(cd, 0xb1));
  __m512 y = _mm512_shuffle_ps(ab, cd, 0x88);
  y = _mm512_add_ps(y, _mm512_shuffle_f32x4(y, y, 0x4e));
  return _mm_add_ps(_mm512_castps512_ps128(y), _mm512_castps512_ps128(_mm512_shuffle_f32x4(y, y, 0x01)));
}

template <Kind kKind>
BERTH_INLINE void prefetch(const Stream& row, int64_t step) {
  constexpr int64_t kBytes = step_bytes(kKind);
  for (int64_t at = 0; at < kBytes; at += 64)
    _mm_prefetch(reinterpret_cast<const char*>(row.codes + step * kBytes + at + kPrefetch), _MM_HINT_T0);
  // The high plane: a quarter (5 bits) or half (6) of that.
  if (kKind == Kind::kFive)
    _mm_prefetch(reinterpret_cast<const char*>(row.high + step * 8) + kPrefetch / 4, _MM_HINT_T0);
  if (kKind == Kind::kSix)
    _mm_prefetch(reinterpret_cast<const char*>(row.high + step * 16) + kPrefetch / 2, _MM_HINT_T0);
}

Operands operands(const WeightView& w) {
  Operands op{_mm512_setzero_si512(), 7, true, w.nested_map, w.nested_absmax, _mm256_set1_ps(w.nested_offset)};
  switch (w.codec) {
    case Codec::kQ5_0:
      op.shift = 4;
      break;
    case Codec::kQ6_K:
      op.shift = 5;
      break;
    case Codec::kQ4_1:
    case Codec::kQ4_K:
    case Codec::kQ5_1:
    case Codec::kQ5_K:
      op.offset = false;
      break;
    default:
      break;
  }
  alignas(64) uint8_t table[64];
  for (int i = 0; i < 64; ++i) {
    const int q = i % 16;
    int code = q;  // Q4_1, Q4_K: as they are
    if (w.int8_book != nullptr) code = w.int8_book[q] + 128;
    if (w.codec == Codec::kQ4_0) code = q - 8 + 128;
    table[i] = static_cast<uint8_t>(code);
  }
  op.table = _mm512_load_si512(table);
  return op;
}

template <Kind kKind, bool kMin, Scale kScale>
BERTH_INLINE void begin_quad(const RowsTask& t, int64_t i, Quad& quad) {
  const int64_t words = t.w.k / 32;
  const int64_t high_words = kKind == Kind::kFive ? words : kKind == Kind::kSix ? 2 * words : 0;
  begin_quad<kMin, kScale>(t, i, words * (step_bytes(kKind) / 8), high_words, quad);
}

// What finished sums still lack, and where they go.
template <Kind kKind, Scale kScale>
BERTH_INLINE void put(const RowsTask& t, const Quad& quad, int64_t m, __m512 ab, __m512 cd) {
  alignas(16) float y[4];
  _mm_store_ps(y, _mm_add_ps(finish<kKind>(ab, cd), _mm_setzero_ps()));
  for (int r = 0; r < 4; ++r) {
    float v = y[r];
    if (t.kappa != 1.0f) v = v * t.kappa;
    if (kScale == Scale::kNone)
      v = v * (static_cast<const float*>(t.w.scales)[t.row_begin + quad.n[r]] * kInt8RowScale);
    if (t.bias != nullptr) v = v + t.bias[quad.n[r]];
    t.y[m * t.y_stride + quad.n[r]] = v;
  }
}

// f<Part>(words) for the words that remain of a row of k elements, if any.
template <typename F>
BERTH_INLINE void with_rest(int64_t k, F&& f) {
  switch (const int64_t words = k % 256 / 32) {
    case 0:
      return;
    case 2:
      return f.template operator()<Part::kTwo>(2);
    case 4:
      return f.template operator()<Part::kFour>(4);
    default:
      return f.template operator()<Part::kSome>(words);
  }
}

// Absmax straight from its plane where every row begins with a block of 64 (nested: with four); else from the buffer.
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
    case Codec::kQ8_0:
      return Loop::template rows<Kind::kByte, false, Scale::kHalf>;
    case Codec::kInt8Row:
      return Loop::template rows<Kind::kByte, false, Scale::kNone>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace berth::kernel::cpu
