// kernel/cpu/linear_int8_avx512.cc — y = W x in int8 mode (numerics.md 5) with VNNI, few inputs: lanes are the word
// lanes.
//
// Four rows at a time, a quarter of the task's rows apart: four long streams, which saturate memory where four
// neighbouring rows defeat the prefetcher (docs/kernels.md). Per 256 elements of two rows A, B (4 bits):
//
//   codes    A: 2 x 64 bytes = words 0..3, 4..7 of 16 bytes; byte t of a word = element 2t in the high half, 2t+1 in
//   the low look up  vpermb reads 6 bits of each byte, so the 16 integers (+ 128, unsigned) stand four times in a
//   64-byte table and
//            no byte needs a mask: one shift and two permutes give 128 codes
//   dot      vpdpbusd with q: each 128-bit lane is now one word, as four partial sums
//   reduce   two rounds of "unpack low + unpack high" turn 4 vectors into one of 16 word sums:
//            lane L = A's word L, A's word 4+L, B's word L, B's word 4+L (kInt8OrderNibbles512)
//   scale    less 128 * sum of q; to float; fma with dx * s
//
// 5 and 6 bits: the bits of the high plane become byte masks (vptestmb) that add 16 and 32. 8 bits: code ^ 0x80 is the
// unsigned operand; a word is 32 bytes, i.e. two 128-bit lanes, added once more at the end.
//
// Start reading at: pair_step.
#include <immintrin.h>

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;

enum class Kind { kBook, kFive, kSix, kByte };

constexpr int64_t kPrefetch = 2048;  // bytes ahead in each of the four streams

#define BERTH_INLINE inline __attribute__((always_inline))

// Constant operands of a loop.
struct Operands {
  __m512i table;  // kBook: integers + 128, four times
  int shift;      // what a code is too large by: 2^shift; 0: nothing (and then `offset` is false)
  bool offset;
};

// One row's place in the weight planes.
struct Stream {
  const uint8_t* codes;
  const uint32_t* high;
  const float* s;
  const float* m;
};

// 64 bytes of codes, or the first `bytes` of them.
template <bool kTail>
BERTH_INLINE __m512i load_codes(const uint8_t* p, int64_t bytes) {
  if (!kTail) return _mm512_loadu_si512(p);
  const __mmask64 mask = bytes >= 64 ? ~__mmask64{0} : bytes <= 0 ? 0 : (__mmask64{1} << bytes) - 1;
  return _mm512_maskz_loadu_epi8(mask, p);
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

// Partial sums of 4 words (nibbles; `half` 0 or 1: words 0..3 or 4..7 of the step).
template <Kind kKind, bool kTail>
BERTH_INLINE __m512i nibble_dots(const Stream& row, int64_t step, int half, const Int8Step& x, const Operands& op,
                                 int64_t tail_bytes) {
  const __m512i c = load_codes<kTail>(row.codes + step * 128 + half * 64, tail_bytes - half * 64);
  __m512i hi, lo;
  unpack<kKind>(c, row.high + (kKind == Kind::kSix ? 16 : 8) * step + (kKind == Kind::kSix ? 8 : 4) * half, op, hi, lo);
  const __m512i even = _mm512_dpbusd_epi32(_mm512_setzero_si512(), hi, _mm512_load_si512(x.even + half * 64));
  return _mm512_dpbusd_epi32(even, lo, _mm512_load_si512(x.odd + half * 64));
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

// A byte format's row: 8 words as four partial sums per 128-bit lane: lanes 0+1 are the words 0 2 4 6, lanes 2+3 1 3
// 5 7.
template <bool kTail>
BERTH_INLINE __m512i byte_dots(const Stream& row, int64_t step, const Int8Step& x, int64_t tail_bytes) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i v[4];
  for (int i = 0; i < 4; ++i) {
    const __m512i c = load_codes<kTail>(row.codes + step * 256 + i * 64, tail_bytes - i * 64);
    v[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(c, flip), _mm512_load_si512(x.even + i * 64));
  }
  return add_halves64(add_halves32(v[0], v[1]), add_halves32(v[2], v[3]));
}

BERTH_INLINE __m512 scale_sums(__m512i i, __m512i excess, const Operands& op, __m512 dx, __m512 s, __m512 acc) {
  if (op.offset) i = _mm512_sub_epi32(i, _mm512_slli_epi32(excess, static_cast<unsigned>(op.shift)));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), _mm512_mul_ps(dx, s), acc);
}

// Where each position of the reduced vector finds its word's scale among A's 8 (or 16) and B's.
BERTH_INLINE __m512 spread_scales(const float* a, const float* b, __m512i index) {
  return _mm512_permutex2var_ps(_mm512_castps256_ps512(_mm256_loadu_ps(a)), index,
                                _mm512_castps256_ps512(_mm256_loadu_ps(b)));
}

// 8 words of the rows A and B added to their 16 lanes.
template <Kind kKind, bool kMin, bool kScaled, bool kTail>
BERTH_INLINE __m512 pair_step(const Stream& a, const Stream& b, int64_t step, const Int8Step& x, const Operands& op,
                              int64_t tail_bytes, __m512 acc) {
  const __m512 dx = _mm512_load_ps(x.dx);
  const __m512i sum = _mm512_load_si512(x.sum);
  if (kKind == Kind::kByte) {
    const __m512i ra = byte_dots<kTail>(a, step, x, tail_bytes), rb = byte_dots<kTail>(b, step, x, tail_bytes);
    const __m512i i = _mm512_add_epi32(_mm512_shuffle_i32x4(ra, rb, 0x88), _mm512_shuffle_i32x4(ra, rb, 0xdd));
    if (!kScaled) return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(i, _mm512_slli_epi32(sum, 7))), dx, acc);
    const __m512i where = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 16, 18, 20, 22, 17, 19, 21, 23);
    return scale_sums(i, sum, op, dx, spread_scales(a.s + step * 8, b.s + step * 8, where), acc);
  }
  const __m512i a0 = nibble_dots<kKind, kTail>(a, step, 0, x, op, tail_bytes);
  const __m512i a1 = nibble_dots<kKind, kTail>(a, step, 1, x, op, tail_bytes);
  const __m512i b0 = nibble_dots<kKind, kTail>(b, step, 0, x, op, tail_bytes);
  const __m512i b1 = nibble_dots<kKind, kTail>(b, step, 1, x, op, tail_bytes);
  if (kKind ==
      Kind::kSix) {  // blocks of 16: the first two partial sums of a word and the other two are runs of their own
    const __m512i ra = _mm512_add_epi32(pick32<0, 2>(a0, a1), pick32<1, 3>(a0, a1));
    const __m512i rb = _mm512_add_epi32(pick32<0, 2>(b0, b1), pick32<1, 3>(b0, b1));
    const __m512 sa = _mm512_loadu_ps(a.s + step * 16), sb = _mm512_loadu_ps(b.s + step * 16);
    const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 2, 10, 18, 26, 4, 12, 20, 28, 6, 14, 22, 30);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(1));
    acc = scale_sums(pick32<0, 2>(ra, rb), _mm512_load_si512(x.half_sum[0]), op, dx,
                     _mm512_permutex2var_ps(sa, first, sb), acc);
    return scale_sums(pick32<1, 3>(ra, rb), _mm512_load_si512(x.half_sum[1]), op, dx,
                      _mm512_permutex2var_ps(sa, second, sb), acc);
  }
  const __m512i where = _mm512_setr_epi32(0, 4, 16, 20, 1, 5, 17, 21, 2, 6, 18, 22, 3, 7, 19, 23);
  const __m512i i = add_halves64(add_halves32(a0, a1), add_halves32(b0, b1));
  acc = scale_sums(i, sum, op, dx, spread_scales(a.s + step * 8, b.s + step * 8, where), acc);
  if (kMin) {
    const __m512 m = spread_scales(a.m + step * 8, b.m + step * 8, where);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(dx, m), acc);
  }
  return acc;
}

// The finish of numerics.md for the rows A, B (ab) and C, D (cd): h = 4, 2, 1.
template <Kind kKind>
BERTH_INLINE __m128 finish(__m512 ab, __m512 cd) {
  if (kKind == Kind::kByte) {  // a lane: words 0 2 4 6, the next 1 3 5 7
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
  constexpr int64_t kBytes = kKind == Kind::kByte ? 256 : 128;
  for (int64_t at = 0; at < kBytes; at += 64)
    _mm_prefetch(reinterpret_cast<const char*>(row.codes + step * kBytes + at + kPrefetch), _MM_HINT_NTA);
}

template <Kind kKind, bool kMin, bool kScaled>
__m128 tile(const Stream row[4], const Int8Step* x, int64_t k, const Operands& op) {
  constexpr int64_t kCodeBytes = kKind == Kind::kByte ? 32 : 16;  // per word
  const Stream a = row[0], b = row[1], c = row[2], d = row[3];
  __m512 ab = _mm512_setzero_ps(), cd = _mm512_setzero_ps();
  const int64_t steps = k / 256;
  for (int64_t step = 0; step < steps; ++step) {
    prefetch<kKind>(a, step);
    prefetch<kKind>(b, step);
    prefetch<kKind>(c, step);
    prefetch<kKind>(d, step);
    ab = pair_step<kKind, kMin, kScaled, false>(a, b, step, x[step], op, 0, ab);
    cd = pair_step<kKind, kMin, kScaled, false>(c, d, step, x[step], op, 0, cd);
  }
  if (const int64_t tail = k % 256 / 32 * kCodeBytes; tail != 0) {
    ab = pair_step<kKind, kMin, kScaled, true>(a, b, steps, x[steps], op, tail, ab);
    cd = pair_step<kKind, kMin, kScaled, true>(c, d, steps, x[steps], op, tail, cd);
  }
  return _mm_add_ps(finish<kKind>(ab, cd), _mm_setzero_ps());
}

Operands operands(const WeightView& w) {
  Operands op{_mm512_setzero_si512(), 7, true};
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

constexpr float kInt8RowScale = 0x1.020408p-7f;  // 0x3c010204

template <Kind kKind, bool kMin, bool kScaled>
void rows(const RowsTask& t) {
  const Operands op = operands(t.w);
  const int64_t k = t.w.k, words = k / 32;
  const int64_t scale_stride = (words + 7) / 8 * 8 * (kKind == Kind::kSix ? 2 : 1);
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
      if (kScaled) expand_scales_avx2(t.w, row, s, m);
      const int64_t high_words = kKind == Kind::kFive ? words : kKind == Kind::kSix ? 2 * words : 0;
      stream[r] = {t.w.codes + row * (kKind == Kind::kByte ? k : k / 2), t.w.high + row * high_words, s, m};
    }
    for (int64_t m = 0; m < t.m; ++m) {
      alignas(16) float y[4];
      _mm_store_ps(y,
                   tile<kKind, kMin, kScaled>(stream, reinterpret_cast<const Int8Step*>(t.x + m * t.x_bytes), k, op));
      for (int r = 0; r < 4; ++r) {
        float v = y[r];
        if (t.kappa != 1.0f) v = v * t.kappa;
        if (t.w.codec == Codec::kInt8Row)
          v = v * (static_cast<const float*>(t.w.scales)[t.row_begin + n[r]] * kInt8RowScale);
        if (t.bias != nullptr) v = v + t.bias[n[r]];
        t.y[m * t.y_stride + n[r]] = v;
      }
    }
  }
}

}  // namespace

RowsFn rows_int8_avx512(Codec codec) {
  switch (codec) {
    case Codec::kNF4:
    case Codec::kFP4:
    case Codec::kMXFP4:
    case Codec::kQ4_0:
    case Codec::kIQ4_NL:
      return rows<Kind::kBook, false, true>;
    case Codec::kQ4_1:
    case Codec::kQ4_K:
      return rows<Kind::kBook, true, true>;
    case Codec::kQ5_0:
      return rows<Kind::kFive, false, true>;
    case Codec::kQ5_1:
    case Codec::kQ5_K:
      return rows<Kind::kFive, true, true>;
    case Codec::kQ6_K:
      return rows<Kind::kSix, false, true>;
    case Codec::kQ8_0:
      return rows<Kind::kByte, false, true>;
    case Codec::kInt8Row:
      return rows<Kind::kByte, false, false>;
    default:
      return nullptr;
  }
}

}  // namespace berth::kernel::cpu
