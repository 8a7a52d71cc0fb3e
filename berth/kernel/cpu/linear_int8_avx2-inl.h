// kernel/cpu/linear_int8_avx2-inl.h — how the int8 AVX2 loops for few inputs take weights apart, multiply and scale;
// for linear_int8_avx2.cc (one input) and linear_few_int8_avx2.cc (several).
//
// Per row and 64 elements of 4 bits:
//
//   look up   two byte shuffles give the 16 integers of the code book for the high and the low nibbles
//   dot       maddubs wants one unsigned operand: |q| * psign(code, q); nibbles that are integers themselves are
//             unsigned and need neither; a stored -128 cannot change its sign, so 8-bit codes give |code| * psign(q,
//             code)
//   reduce    16-bit pairs to 32 bits (madd with ones): 4 partial sums per word; three horizontal adds per 8 words
//   leave
//             the words in the order 0 2 4 6 1 3 5 7 (kInt8Order)
//   scale     less offset * sum of q; to float; fma with dx * s
//
// Pairs stay within 16 bits: 2 * 127 * 127 = 32258 (code books), 4 * 127 * 63 = 32004 (6 bits, high and low added).
//
// Start reading at: nibble_codes, nibble_dots.
#pragma once

#include <immintrin.h>

#include "berth/kernel/cpu/inline.h"
#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;

enum class Kind { kBook, kFour, kFive, kSix, kByte, kQ8Block };

constexpr bool is_byte(Kind kind) { return kind == Kind::kByte || kind == Kind::kQ8Block; }
// Codes of a step of 256 elements, with the scales between them.
constexpr int64_t step_bytes(Kind kind) {
  return kind == Kind::kQ8Block ? 8 * kQ8BlockBytes : kind == Kind::kByte ? 256 : 128;
}

// Where scales and minima come from: nowhere (row scale), one float per 32 elements expanded into a buffer before the
// row, or straight from their planes where rows are whole steps of 256: fp32 absmax of 64, nested absmax of 64, fp16 of
// 32, 12 bytes of Q4_K and Q5_K, 16 of Q6_K; before the codes of their block.
enum class Scale { kNone, kBuffer, kAbsmax, kNested, kHalf, kK45, kK6, kInBlock };

constexpr int64_t kPrefetch = 1536;  // bytes ahead in each of the four streams

struct Operands {
  __m256i table;               // kBook: the integers, in both halves
  const float* map;            // kNested: bitsandbytes' 256 values,
  const float* nested_absmax;  // their scale per 256 blocks
  __m128 nested_offset;        // and what is added
};

// Q4_0, Q5_0, Q6_K: unsigned codes are too large by 2^kShift.
template <Kind kKind>
constexpr int kShift = kKind == Kind::kFour   ? 3
                       : kKind == Kind::kFive ? 4
                                              : 5;
template <Kind kKind, bool kMin>
constexpr bool kOffset = !kMin && (kKind == Kind::kFour || kKind == Kind::kFive || kKind == Kind::kSix);

// One row's place in the weight planes; s, m, sub as its Scale has them. kNested: `block` is the row's first block.
struct Stream {
  const uint8_t* codes;
  const uint32_t* high;
  const void* s;
  const void* m;
  const uint8_t* sub;
  int64_t block;
};

// A step's eight scales and minima in kInt8Order; kSix: the scales of the words' first and second halves.
struct StepScales {
  __m256 s, m;
};

BERTH_INLINE __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// The high plane's bits of 32 bytes of nibbles: byte 16L + t becomes `value` if bit t of the 16-bit group at byte
// first + stride * L of `bits` is set, else 0. `bits` has the same 16 bytes in both halves.
BERTH_INLINE __m256i high_bits(__m256i bits, int stride, int first, int value) {
  const char a = static_cast<char>(first), b = static_cast<char>(first + 1);
  const char c = static_cast<char>(first + stride), d = static_cast<char>(first + stride + 1);
  const __m256i where = _mm256_setr_epi8(a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b,  //
                                         c, c, c, c, c, c, c, c, d, d, d, d, d, d, d, d);
  const __m256i select = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ull));
  // The bit that is left, 1 .. 64 or -128, gives `value` its sign, and 0 makes it 0.
  const char v = static_cast<char>(value), minus = static_cast<char>(-value);
  const __m256i values = _mm256_setr_epi8(v, v, v, v, v, v, v, minus, v, v, v, v, v, v, v, minus,  //
                                          v, v, v, v, v, v, v, minus, v, v, v, v, v, v, v, minus);
  return _mm256_sign_epi8(values, _mm256_and_si256(_mm256_shuffle_epi8(bits, where), select));
}

// Codes of 64 elements (2 words), those of the high and of the low nibbles: of a code book signed, else unsigned.
struct Nibbles {
  __m256i hi, lo;
};
template <Kind kKind>
BERTH_INLINE Nibbles nibble_codes(const uint8_t* codes, const uint32_t* high, const Operands& op) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i c = load(codes);
  __m256i hi = _mm256_and_si256(_mm256_srli_epi16(c, 4), nibble);
  __m256i lo = _mm256_and_si256(c, nibble);
  if (kKind == Kind::kBook) return {_mm256_shuffle_epi8(op.table, hi), _mm256_shuffle_epi8(op.table, lo)};
  if (kKind == Kind::kFive) {
    int64_t two_words;
    __builtin_memcpy(&two_words, high, 8);
    const __m256i bits = _mm256_set1_epi64x(two_words);
    hi = _mm256_or_si256(hi, high_bits(bits, 4, 0, 16));
    lo = _mm256_or_si256(lo, high_bits(bits, 4, 2, 16));
  }
  if (kKind == Kind::kSix) {
    const __m256i bits = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(high)));
    hi = _mm256_or_si256(hi, _mm256_or_si256(high_bits(bits, 8, 0, 16), high_bits(bits, 8, 4, 32)));
    lo = _mm256_or_si256(lo, _mm256_or_si256(high_bits(bits, 8, 2, 16), high_bits(bits, 8, 6, 32)));
  }
  return {hi, lo};
}

// Their products with the elements of `part`: four 32-bit partial sums per word.
template <Kind kKind>
BERTH_INLINE __m256i nibble_dots(const Nibbles& c, const Int8Step& x, int part) {
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i even = load(x.q + part * 32), odd = load(x.q + Int8Step::kOdd + part * 32);
  if (kKind == Kind::kBook) {
    const __m256i h = _mm256_maddubs_epi16(load(x.q_abs + part * 32), _mm256_sign_epi8(c.hi, even));
    const __m256i l = _mm256_maddubs_epi16(load(x.q_abs + Int8Step::kOdd + part * 32), _mm256_sign_epi8(c.lo, odd));
    return _mm256_add_epi32(_mm256_madd_epi16(h, ones), _mm256_madd_epi16(l, ones));
  }
  return _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(c.hi, even), _mm256_maddubs_epi16(c.lo, odd)), ones);
}

// One word of 32 bytes `w`, whose magnitudes are `w_abs`: eight 32-bit partial sums.
BERTH_INLINE __m256i byte_dots(__m256i w, __m256i w_abs, const int8_t* q) {
  const __m256i pairs = _mm256_maddubs_epi16(w_abs, _mm256_sign_epi8(load(q), w));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// dots(w): a word's eight partial sums. The sums of 8 words in kInt8Order.
template <typename F>
BERTH_INLINE __m256i byte_sums(F&& dots) {
  const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(dots(0), dots(2)), _mm256_hadd_epi32(dots(4), dots(6)));
  const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(dots(1), dots(3)), _mm256_hadd_epi32(dots(5), dots(7)));
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

template <Kind kKind, bool kMin>
BERTH_INLINE __m256 scale_sums(__m256i i, const int32_t* sum, __m256 dx, __m256 s, __m256 acc) {
  if (kOffset<kKind, kMin>) i = _mm256_sub_epi32(i, _mm256_slli_epi32(load(sum), kShift<kKind>));
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), _mm256_mul_ps(dx, s), acc);
}

// A step's eight scales in kInt8Order.
template <Scale kScale>
BERTH_INLINE __m256 in_order(const void* plane, int64_t step) {
  if (kScale == Scale::kAbsmax)  // each stands for two words
    return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(static_cast<const float*>(plane) + step * 4));
  __m256 s;
  if (kScale == Scale::kHalf)
    s = _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint16_t*>(plane) + step * 8)));
  else
    s = _mm256_loadu_ps(static_cast<const float*>(plane) + step * 8);
  return _mm256_permutevar8x32_ps(s, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

// The d of eight blocks in kInt8Order.
BERTH_INLINE __m256 in_order_of_blocks(const uint8_t* p) {
  const auto d = [p](int64_t block) {
    int16_t bits;
    __builtin_memcpy(&bits, p + block * kQ8BlockBytes, 2);
    return bits;
  };
  return _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7)));
}

template <int kOdd>
BERTH_INLINE __m256i alternate(__m256i a, __m256i b) {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), kOdd == 0 ? 0x88 : 0xdd));
}

// The fp16 of step `step` in all lanes.
BERTH_INLINE __m256 half_float(const void* plane, int64_t step) {
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<const int16_t*>(plane)[step]));
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
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m128i both = _mm_shuffle_epi8(packed, order);
  const __m256 sc = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(both));
  const __m256 mn = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(both, both)));
  const __m256 dm = _mm256_xor_ps(half_float(row.m, step), _mm256_set1_ps(-0.0f));  // the minima are subtracted
  return {_mm256_mul_ps(half_float(row.s, step), sc), _mm256_mul_ps(dm, mn)};
}

// Q6_K: 2w and 2w + 1 are the scales of word w's halves.
BERTH_INLINE StepScales k6_scales(const Stream& row, int64_t step) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row.sub + step * 16));
  const __m128i halves = _mm_shuffle_epi8(v, _mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15));
  const __m256 d = half_float(row.s, step);
  return {_mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(halves))),
          _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(halves, halves))))};
}

// fp32(map * nested_absmax) + offset, rounded twice, of the step's four blocks, which share nested_absmax; each stands
// for two words.
BERTH_INLINE __m256 nested_scales(const Stream& row, int64_t step, const Operands& op) {
  uint32_t q;
  __builtin_memcpy(&q, static_cast<const uint8_t*>(row.s) + step * 4, 4);
  const __m128 value = _mm_setr_ps(op.map[q & 255], op.map[(q >> 8) & 255], op.map[(q >> 16) & 255], op.map[q >> 24]);
  const __m128 scale = _mm_broadcast_ss(op.nested_absmax + (row.block + 4 * step) / 256);
  const __m128 a = _mm_add_ps(_mm_mul_ps(value, scale), op.nested_offset);
  return _mm256_set_m128(a, a);
}

template <bool kMin, Scale kScale>
BERTH_INLINE StepScales step_scales(const Stream& row, int64_t step, const Operands& op) {
  if (kScale == Scale::kNested) return {nested_scales(row, step, op), _mm256_setzero_ps()};
  if (kScale == Scale::kK45) return k45_scales(row, step);
  if (kScale == Scale::kK6) return k6_scales(row, step);
  return {in_order<kScale>(row.s, step), kMin ? in_order<kScale>(row.m, step) : _mm256_setzero_ps()};
}

// The scales of 8 words of bytes; `codes`: the step's bytes. (kNone: none.)
template <Scale kScale>
BERTH_INLINE __m256 byte_scales(const uint8_t* codes, const Stream& row, int64_t step) {
  if (kScale == Scale::kNone) return _mm256_setzero_ps();
  return kScale == Scale::kInBlock ? in_order_of_blocks(codes) : in_order<kScale>(row.s, step);
}

// The products' sums i of 8 words of bytes to the row's sums.
template <Scale kScale>
BERTH_INLINE __m256 add_bytes(__m256i i, __m256 dx, __m256 s, __m256 acc) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), kScale == Scale::kNone ? dx : _mm256_mul_ps(dx, s), acc);
}

// The partial sums of 8 words of nibbles, those of words 0..3 and of 4..7, to the row's sums.
template <Kind kKind, bool kMin>
BERTH_INLINE __m256 add_nibbles(__m256i h01, __m256i h23, const Int8Step& x, const StepScales& scales, __m256 acc) {
  const __m256 dx = _mm256_load_ps(x.dx);
  if (kKind == Kind::kSix) {  // blocks of 16: the two halves of a word are runs of their own
    acc = scale_sums<kKind, kMin>(alternate<0>(h01, h23), x.half_sum[0], dx, scales.s, acc);
    return scale_sums<kKind, kMin>(alternate<1>(h01, h23), x.half_sum[1], dx, scales.m, acc);
  }
  acc = scale_sums<kKind, kMin>(_mm256_hadd_epi32(h01, h23), x.sum, dx, scales.s, acc);
  if (kMin) acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(load(x.sum)), _mm256_mul_ps(dx, scales.m), acc);
  return acc;
}

// h = 4, 2, 1 with the words in kInt8Order, and + 0.
BERTH_INLINE float finish(__m256 a) {
  const __m256 h4 = _mm256_add_ps(a, _mm256_permute_ps(a, 0x4e));
  const __m256 h2 = _mm256_add_ps(h4, _mm256_permute_ps(h4, 0xb1));
  const __m128 h1 = _mm_add_ss(_mm256_castps256_ps128(h2), _mm256_extractf128_ps(h2, 1));
  return _mm_cvtss_f32(h1) + 0.0f;
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
  Operands op{_mm256_setzero_si256(), w.nested_map, w.nested_absmax, _mm_set1_ps(w.nested_offset)};
  if (w.int8_book != nullptr)
    op.table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.int8_book)));
  return op;
}

constexpr float kInt8RowScale = 0x1.020408p-7f;  // 0x3c010204

// A later row's scales: 256 bytes or a row ahead in this stream.
BERTH_INLINE void prefetch_scales(const void* plane, int64_t bytes) {
  const char* const ahead = static_cast<const char*>(plane) + (bytes < 256 ? 256 : bytes);
  for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(ahead + at, _MM_HINT_T0);
}

// Bytes of a row in the planes of its scales where they are read in place: those of s, m and sub.
struct RowBytes {
  int64_t s, m, sub;
};
template <bool kMin, Scale kScale>
RowBytes row_bytes(int64_t k) {
  switch (kScale) {
    case Scale::kNested:
      return {k / 64, 0, 0};
    case Scale::kAbsmax:
    case Scale::kHalf:
      return {k / 16, kMin ? k / 16 : 0, 0};
    case Scale::kK45:
      return {k / 128, k / 128, k / 256 * 12};
    case Scale::kK6:
      return {k / 128, 0, k / 16};
    default:
      return {0, 0, 0};
  }
}

// Four rows and which outputs of the task they are: quad `i`. Scales that are not read in place are expanded into
// scratch.
struct Quad {
  Stream row[4];
  int64_t n[4];
};
template <Kind kKind, bool kMin, Scale kScale>
inline void begin_quad(const RowsTask& t, int64_t i, Quad& quad) {
  const int64_t k = t.w.k, words = k / 32;
  const int64_t scale_stride = (words + 7) / 8 * 8;
  const int64_t high_words = kKind == Kind::kFive ? words : kKind == Kind::kSix ? 2 * words : 0;
  const RowBytes bytes = row_bytes<kMin, kScale>(k);
  float* const buffer = reinterpret_cast<float*>(t.scratch);
  const int64_t quarter = RowsTask::quads(t.row_count);
  for (int r = 0; r < 4; ++r) {
    quad.n[r] = i + r * quarter;
    if (quad.n[r] >= t.row_count) quad.n[r] = t.row_count - 1;  // again: the same bits to the same place
    const int64_t row = t.w.stored_row(t.row_begin + quad.n[r]);
    quad.row[r] = {t.w.codes + row * words * (step_bytes(kKind) / 8),
                   t.w.high + row * high_words,
                   nullptr,
                   nullptr,
                   nullptr,
                   row * (k / 64)};
    if (kScale == Scale::kBuffer) {
      float* const s = buffer + r * scale_stride;
      float* const m = buffer + (4 + r) * scale_stride;
      expand_scales_avx2(t.w, row, s, m);
      quad.row[r].s = s;
      quad.row[r].m = m;
    }
    if (bytes.s != 0) {
      quad.row[r].s = static_cast<const uint8_t*>(t.w.scales) + row * bytes.s;
      prefetch_scales(quad.row[r].s, bytes.s);
    }
    if (bytes.m != 0) {
      quad.row[r].m = reinterpret_cast<const uint8_t*>(t.w.mins) + row * bytes.m;
      prefetch_scales(quad.row[r].m, bytes.m);
    }
    if (bytes.sub != 0) {
      quad.row[r].sub = t.w.sub_scales + row * bytes.sub;
      prefetch_scales(quad.row[r].sub, bytes.sub);
    }
  }
}

// What a finished sum still lacks.
BERTH_INLINE float output(const RowsTask& t, int64_t n, float v) {
  if (t.kappa != 1.0f) v = v * t.kappa;
  if (t.w.codec == Codec::kInt8Row) v = v * (static_cast<const float*>(t.w.scales)[t.row_begin + n] * kInt8RowScale);
  return t.bias != nullptr ? v + t.bias[n] : v;
}

// Scales straight from their planes where a row is whole steps; else by way of the buffer.
template <typename Loop, Kind kKind, bool kMin>
void rows_half(const RowsTask& t) {
  t.w.k % 256 == 0 ? Loop::template rows<kKind, kMin, Scale::kHalf>(t)
                   : Loop::template rows<kKind, kMin, Scale::kBuffer>(t);
}
template <typename Loop>
void rows_bnb(const RowsTask& t) {
  if (t.w.blocksize == 64 && t.w.k % 256 == 0)
    return t.w.nested ? Loop::template rows<Kind::kBook, false, Scale::kNested>(t)
                      : Loop::template rows<Kind::kBook, false, Scale::kAbsmax>(t);
  Loop::template rows<Kind::kBook, false, Scale::kBuffer>(t);
}

// The form of `Loop::rows` for a weight; none for those that int8 mode leaves to exact.
template <typename Loop>
RowsFn form_of(const WeightView& w) {
  if (w.in_blocks) return Loop::template rows<Kind::kQ8Block, false, Scale::kInBlock>;
  switch (w.codec) {
    case Codec::kNF4:
    case Codec::kFP4:
      return rows_bnb<Loop>;
    case Codec::kMXFP4:
      return Loop::template rows<Kind::kBook, false, Scale::kBuffer>;
    case Codec::kIQ4_NL:
      return rows_half<Loop, Kind::kBook, false>;
    case Codec::kQ4_0:
      return rows_half<Loop, Kind::kFour, false>;
    case Codec::kQ4_1:
      return rows_half<Loop, Kind::kFour, true>;
    case Codec::kQ4_K:
      return Loop::template rows<Kind::kFour, true, Scale::kK45>;
    case Codec::kQ5_0:
      return rows_half<Loop, Kind::kFive, false>;
    case Codec::kQ5_1:
      return rows_half<Loop, Kind::kFive, true>;
    case Codec::kQ5_K:
      return Loop::template rows<Kind::kFive, true, Scale::kK45>;
    case Codec::kQ6_K:
      return Loop::template rows<Kind::kSix, false, Scale::kK6>;
    case Codec::kQ8_0:
      return rows_half<Loop, Kind::kByte, false>;
    case Codec::kInt8Row:
      return Loop::template rows<Kind::kByte, false, Scale::kNone>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace berth::kernel::cpu
