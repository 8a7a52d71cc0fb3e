// kernel/cpu/linear_many_exact_avx512.cc — y = W x in exact mode (numerics.md 1) with AVX-512, more inputs than
// linear_few_exact_avx512.cc has room for in the first-level cache.
//
// Lanes are the lanes. A block of a few steps of eight rows, one half of their words, is decoded into that cache once;
// then three inputs at a time pass over it, their sums in registers. So decoding is shared by all inputs however many
// they are, and their x comes from the second-level cache once per eight rows.
//
// Start reading at: pass_inputs.
#include "berth/kernel/cpu/linear_exact_avx512-inl.h"
#include "berth/kernel/cpu/linear_groups-inl.h"

namespace berth::kernel::cpu {
namespace {

// Rows decoded together: two quads.
constexpr int kQuads = 2;

// Where the sums of eight rows and all inputs stand: [input][quad][half][row][16].
constexpr int64_t kQuadSums = 2 * 4 * 16;
constexpr int64_t kManySums = kQuads * kQuadSums;

// Steps of a block: 4 KiB of decoded weights per quad.
constexpr int64_t block_steps(Kind kind) { return 16 / terms(kind); }

// One half of a block of four rows, decoded: [step][term][row][16]; its scales and minima: [half][step][row][16].
struct alignas(64) Decoded {
  float w[16 * 4 * 16];
  float s[2 * 4 * 4 * 16];
  float m[2 * 4 * 4 * 16];
};
static_assert(kQuads * sizeof(Decoded) <= kDecodedBytes);

// The scales of a block of `steps` steps from `begin` on, of which the last may be a part (`tail_bytes` of its codes).
template <Kind kKind, bool kMin, Scale kScale>
BERTH_INLINE void decode_scales(const Stream row[4], int64_t begin, int64_t steps, int64_t tail_bytes,
                                const Operands& op, Decoded& to) {
  if (kScale == Scale::kNone) return;
  constexpr int64_t kHalf = block_steps(kKind) * 64;
  for (int64_t i = 0; i < steps; ++i) {
    const bool tail = tail_bytes != 0 && i + 1 == steps;
    for (int64_t r = 0; r < 4; ++r) {
      const StepScales v = tail ? step_scales<kKind, kMin, kScale, true>(row[r], begin + i, op, tail_bytes / 4)
                                : step_scales<kKind, kMin, kScale, false>(row[r], begin + i, op, 0);
      float* const s = to.s + (i * 4 + r) * 16;
      _mm512_store_ps(s, spread<kKind, kScale, 0>(v.s));
      _mm512_store_ps(s + kHalf, spread<kKind, kScale, 1>(v.s));
      if (!kMin) continue;
      float* const m = to.m + (i * 4 + r) * 16;
      _mm512_store_ps(m, spread<kKind, kScale, 0>(v.m));
      _mm512_store_ps(m + kHalf, spread<kKind, kScale, 1>(v.m));
    }
  }
}

// The words 16 * kHalf .. of the same steps.
template <Kind kKind, int kHalf>
BERTH_INLINE void decode_block(const Stream row[4], int64_t begin, int64_t steps, int64_t tail_bytes,
                               const Operands& op, Decoded& to) {
  constexpr int kTerms = terms(kKind);
  for (int64_t i = 0; i < steps; ++i) {
    const bool tail = tail_bytes != 0 && i + 1 == steps;
    for (int64_t r = 0; r < 4; ++r) {
      __m512 v[kTerms];
      if (tail)
        decode_half<kKind, true, kHalf>(row[r], begin + i, tail_bytes, op, v);
      else
        decode_half<kKind, false, kHalf>(row[r], begin + i, 0, op, v);
      float* const w = to.w + (i * kTerms * 4 + r) * 16;
      BERTH_UNROLL
      for (int e = 0; e < kTerms; ++e) _mm512_store_ps(w + e * 64, v[e]);
    }
  }
}

// Floats of x from the first term of half a step to term e.
template <Kind kKind>
constexpr int64_t term_at(int e) {
  return e / word_elements(kKind) * 32 * word_elements(kKind) + e % word_elements(kKind) * 16;
}

// Half a block, as all inputs meet it.
struct HalfBlock {
  const float* w;
  const float* s;
  const float* m;
  int64_t steps, x_bytes;
  bool first;  // of the row: sums begin
};

// kInputs inputs pass over half a block of four rows. `x`: the first one's at its first step, `t` its words' sums,
// `next` that of inputs that come after, half of which is asked for.
template <Kind kKind, bool kMin, Scale kScale, int kInputs>
BERTH_INLINE void pass_inputs(const HalfBlock& block, const std::byte* x, const std::byte* t, const std::byte* next,
                              float* sums) {
  constexpr int kTerms = terms(kKind);
  constexpr bool kChain = kScale == Scale::kNone;  // products go to the sums at once
  const float* w = block.w;
  const float* s = block.s;
  const float* least = block.m;
  const int64_t x_bytes = block.x_bytes;
  __m512 a[kInputs][4];
  BERTH_UNROLL
  for (int i = 0; i < kInputs; ++i) {
    BERTH_UNROLL
    for (int r = 0; r < 4; ++r)
      a[i][r] = block.first ? _mm512_setzero_ps() : _mm512_load_ps(sums + i * kManySums + r * 16);
  }
  for (int64_t step = 0; step < block.steps; ++step) {
    __m512 p[kInputs][4];
    BERTH_UNROLL
    for (int e = 0; e < kTerms; ++e) {
      __m512 xe[kInputs];
      BERTH_UNROLL
      for (int i = 0; i < kInputs; ++i) {
        xe[i] = _mm512_load_ps(reinterpret_cast<const float*>(x + i * x_bytes) + term_at<kKind>(e));
        if (e % kQuads == 0)
          _mm_prefetch(reinterpret_cast<const float*>(next + i * x_bytes) + term_at<kKind>(e / kQuads), _MM_HINT_T0);
      }
      BERTH_UNROLL
      for (int r = 0; r < 4; ++r) {
        const __m512 we = loaded(w + (e * 4 + r) * 16);
        BERTH_UNROLL
        for (int i = 0; i < kInputs; ++i) {
          if (kChain)
            a[i][r] = fma(we, xe[i], a[i][r]);
          else
            p[i][r] = e == 0 ? _mm512_mul_ps(we, xe[i]) : fma(we, xe[i], p[i][r]);
        }
      }
    }
    if (!kChain) {
      BERTH_UNROLL
      for (int r = 0; r < 4; ++r) {
        const __m512 sr = loaded(s + r * 16);
        BERTH_UNROLL
        for (int i = 0; i < kInputs; ++i) a[i][r] = fma(p[i][r], sr, a[i][r]);
      }
    }
    if (kMin) {
      __m512 ti[kInputs];
      BERTH_UNROLL
      for (int i = 0; i < kInputs; ++i)
        ti[i] = _mm512_load_ps(reinterpret_cast<const float*>(t + i * x_bytes + step * 2 * 64));
      BERTH_UNROLL
      for (int r = 0; r < 4; ++r) {
        const __m512 mr = loaded(least + r * 16);
        BERTH_UNROLL
        for (int i = 0; i < kInputs; ++i) a[i][r] = fma(mr, ti[i], a[i][r]);
      }
    }
    w += kTerms * 64;
    s += 64;
    least += 64;
    x += 32 * kTerms * 4;
    next += 32 * kTerms * 4;
  }
  BERTH_UNROLL
  for (int i = 0; i < kInputs; ++i) {
    BERTH_UNROLL
    for (int r = 0; r < 4; ++r) _mm512_store_ps(sums + i * kManySums + r * 16, a[i][r]);
  }
}

// kInputs inputs, both quads.
template <Kind kKind, bool kMin, Scale kScale, int kInputs>
BERTH_INLINE void pass_quads(const HalfBlock& half, int64_t quads, const std::byte* x, const std::byte* t,
                             const std::byte* next, float* sums) {
  HalfBlock of_quad = half;
  for (int64_t q = 0; q < quads; ++q) {
    const std::byte* const ask = next + term_at<kKind>(static_cast<int>(q) * terms(kKind) / kQuads) * 4;
    pass_inputs<kKind, kMin, kScale, kInputs>(of_quad, x, t, ask, sums);
    of_quad.w += sizeof(Decoded) / 4;
    of_quad.s += sizeof(Decoded) / 4;
    of_quad.m += sizeof(Decoded) / 4;
    sums += kQuadSums;
  }
}

// Rows whose codes are read next.
struct Rows {
  Stream row[4 * kQuads];
  int64_t quads;
};

// All inputs, by threes and at the end by twos, over one half of a block of `steps` steps that begins with step
// `begin`. `then`: bytes of x from this half block to the one that comes next. The weights' next blocks are asked for a
// little at a time.
template <Kind kKind, bool kMin, Scale kScale>
__attribute__((noinline)) void pass_all(const Decoded* block, int half, int64_t begin, int64_t steps, int64_t then,
                                        const RowsTask& task, const Rows& rows, float* sums) {
  constexpr int kElements = word_elements(kKind), kTerms = terms(kKind);
  constexpr int64_t kRowBytes = block_steps(kKind) * steps_at_once(kKind) * step_bytes(kKind);  // of a block
  const int64_t x_bytes = task.x_bytes, inputs = task.m, quads = rows.quads;
  const HalfBlock of_half{
      block->w,  block->s + half * block_steps(kKind) * 64, block->m + half * block_steps(kKind) * 64, steps, x_bytes,
      begin == 0};
  const std::byte* x = task.x + (begin * 32 * kTerms + half * 16 * kElements) * 4;
  const std::byte* t = task.x + ((task.w.k + 255) / 256 * 256 + (2 * begin + half) * 16) * 4;
  const std::byte* const again = x + then;
  float* to = sums + half * 64;
  const int64_t twos = inputs % 3 == 0 ? 0 : 3 - inputs % 3, tiles = (inputs + twos) / 3, threes = tiles - twos;
  // The block that comes next, after the last one the first of two rows on.
  const int64_t ahead = (begin + block_steps(kKind)) * 32 * kTerms < task.w.k
                            ? (begin + block_steps(kKind)) * steps_at_once(kKind) * step_bytes(kKind)
                            : kQuads * (task.w.k / kElements * step_bytes(kKind) / 32);
  int asked = 0;
  for (int64_t i = 0; i < tiles; ++i) {
    for (; asked < 4 * quads * (i + 1) / tiles; ++asked) {
      const uint8_t* const codes = rows.row[asked].codes + ahead + half * (kRowBytes / 2);
      for (int64_t at = 0; at < kRowBytes / 2; at += 64)
        _mm_prefetch(reinterpret_cast<const char*>(codes + at), _MM_HINT_T0);
    }
    const int64_t count = i < threes ? 3 : 2;
    // Three inputs from there: not beyond the last one, where a thread's scratch lies.
    const bool last_three = i + 1 == threes && twos == 1;
    const std::byte* const next = i + 1 < tiles ? x + (last_three ? 2 : count) * x_bytes : again;
    if (count == 3)
      pass_quads<kKind, kMin, kScale, 3>(of_half, quads, x, t, next, to);
    else
      pass_quads<kKind, kMin, kScale, 2>(of_half, quads, x, t, next, to);
    x += count * x_bytes;
    t += count * x_bytes;
    to += count * kManySums;
  }
}

// One or two quads, all inputs: their sums.
template <Kind kKind, bool kMin, Scale kScale>
__attribute__((noinline)) void many_inputs(const Rows& rows, const RowsTask& t, const Operands& op, Decoded* block,
                                           float* sums) {
  constexpr int kElements = word_elements(kKind), kTerms = terms(kKind);
  constexpr int64_t kBlock = block_steps(kKind), kHalfBytes = 16 * kElements * 4, kStepBytes = 32 * kTerms * 4;
  const int64_t whole = t.w.k / (32 * kTerms);
  const int64_t tail_bytes = t.w.k % (32 * kTerms) / kElements * 4, steps = whole + (tail_bytes != 0 ? 1 : 0);
  for (int64_t begin = 0; begin < steps; begin += kBlock) {
    const int64_t count = begin + kBlock < steps ? kBlock : steps - begin;
    const int64_t tail = begin + count > whole ? tail_bytes : 0;
    for (int64_t q = 0; q < rows.quads; ++q) {
      decode_scales<kKind, kMin, kScale>(rows.row + 4 * q, begin, count, tail, op, block[q]);
      decode_block<kKind, 0>(rows.row + 4 * q, begin, count, tail, op, block[q]);
    }
    pass_all<kKind, kMin, kScale>(block, 0, begin, count, kHalfBytes, t, rows, sums);
    // A part of a step may have no second half.
    const bool lacks_half = tail != 0 && tail <= 64;
    const int64_t second = lacks_half ? count - 1 : count;
    if (second == 0 && begin != 0) break;
    for (int64_t q = 0; q < rows.quads; ++q)
      decode_block<kKind, 1>(rows.row + 4 * q, begin, second, lacks_half ? 0 : tail, op, block[q]);
    const int64_t next = begin + kBlock < steps ? kBlock * kStepBytes - kHalfBytes : -begin * kStepBytes - kHalfBytes;
    pass_all<kKind, kMin, kScale>(block, 1, begin, second, next, t, rows, sums);
  }
}

struct ManyInputs {
  template <Kind kKind, bool kMin, Scale kScale>
  static void rows_of_group(const RowsTask& t) {  // at most kMostInputs inputs
    const Operands op = operands(t.w);
    std::byte* const scratch = t.scratch + rows_scales_bytes(t.w.k);
    Decoded* const block = reinterpret_cast<Decoded*>(scratch);
    float* const sums = reinterpret_cast<float*>(scratch + kDecodedBytes);
    for (int64_t i = t.quad_begin; i < t.quad_end; i += kQuads) {
      Quad quad[kQuads];
      Rows rows;
      rows.quads = i + kQuads <= t.quad_end ? kQuads : 1;
      for (int64_t q = 0; q < rows.quads; ++q) {
        RowsTask of_quad = t;  // its expanded scales lie behind those of the first one
        of_quad.scratch += q * ((t.w.k + 255) / 256 * 256);
        begin_quad<kKind, kMin, kScale>(of_quad, i + q, quad[q]);
        for (int r = 0; r < 4; ++r) rows.row[4 * q + r] = quad[q].row[r];
      }
      many_inputs<kKind, kMin, kScale>(rows, t, op, block, sums);
      for (int64_t m = 0; m < t.m; ++m) {
        for (int64_t q = 0; q < rows.quads; ++q) {
          const auto at = [&](int row) {
            const float* const of = sums + m * kManySums + q * kQuadSums + row * 16;
            return Accumulators{{_mm512_load_ps(of), _mm512_load_ps(of + 64)}};
          };
          put<kKind>(t, quad[q], m, finish(at(0), at(1), at(2), at(3)));
        }
      }
    }
  }
  template <Kind kKind, bool kMin, Scale kScale>
  static void rows(const RowsTask& t) {
    by_groups(t, many_inputs_avx512(t.w.k), rows_of_group<kKind, kMin, kScale>);
  }
};

}  // namespace

RowsFn many_exact_avx512(const WeightView& w) { return form_of<ManyInputs>(w); }

}  // namespace berth::kernel::cpu
