// kernel/cpu/linear_kernels.h — private to cpu/linear_*: the plain values that the driver hands to the hot loops.
//
// The driver (linear_driver.cc, compiled without instruction-set flags) takes PackedMatrix and Context apart; the loops
// see pointers and counts only, so that no inline function of another header is ever compiled with their flags.
//
// Two families of loops:
//   rows   M small: vector lanes are the lanes of numerics.md; four far rows at a time, x in registers and L1.
//   gemm   M larger: vector lanes are 16 outputs; decoded weights and x are packed into tiles, lane after lane.
// Both take K a multiple of 32 (the driver sends anything else to the reference).
//
// Start reading at: RowsTask, then linear_int8_avx512.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "berth/quant/codec.h"

namespace berth::kernel::cpu {

// A weight matrix: quant/packed.h's planes as pointers.
struct WeightView {
  quant::Codec codec = quant::Codec::kF32;
  int64_t k = 0;
  int32_t blocksize = 0;  // nf4, fp4
  bool nested = false;
  const uint8_t* codes = nullptr;
  const uint32_t* high = nullptr;
  const void* scales = nullptr;
  const uint16_t* mins = nullptr;
  const uint8_t* sub_scales = nullptr;
  const float* nested_absmax = nullptr;
  const float* nested_map = nullptr;
  float nested_offset = 0;
  const float* book = nullptr;        // [16]: exact value of each 4-bit code
  const int8_t* int8_book = nullptr;  // [16]: its integer in int8 mode
  bool in_blocks = false;             // Q8_0: `codes` are the file's rows of blocks, there is no plane of scales
  int64_t interleaved_rows = 0;       // of a head (quant::PackedMatrix)

  int64_t stored_row(int64_t row) const {
    if (interleaved_rows == 0) return row;
    const int64_t half = interleaved_rows / 2, at = row % interleaved_rows;
    return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
  }
};

// Q8_0 as a file has it: the fp16 d, then 32 codes.
inline constexpr int64_t kQ8BlockBytes = 34;

// The copy of x that a format's `rows` loop reads. V = floats per vector.
//
//   kWords1, 2, 4, 8   exact, E = 1, 2, 4, 8: per 32 words, per group of V words, per element of the word in
//                      numerics.md's order: V floats. Zeros follow up to a multiple of 128 elements (E = 8: of 256),
//                      as loops take words of one and two elements several at a time. E = 8: after all of them 32
//                      floats per 32 words, the words' sums t.
//   kNibbles, kBytes   int8 mode, one Int8Step per 256 elements.
enum class InputLayout : uint8_t { kWords1, kWords2, kWords4, kWords8, kNibbles, kBytes };

// 8 words of 32 elements of x in int8 mode. kNibbles: bytes 16w.. of `q` are the elements 0, 2, ... 30 of word w, the
// others come kOdd later (a codes byte has them in its high and low half); kBytes: the 256 elements in order. What is
// per word lies in the order in which the sums of products leave the registers (int8_word_order), twice: two rows share
// a 512-bit register.
struct alignas(64) Int8Step {
  static constexpr int kOdd = 128;
  int8_t q[256];
  float dx[16];
  int32_t sum[16];          // of q over the word
  int32_t half_sum[2][16];  // over its elements 0..15 and 16..31: formats with blocks of 16
  uint8_t q_abs[256];       // |q|: AVX2 only
};

// Element p is the word in position p.
inline constexpr uint8_t kInt8OrderNibbles512[16] = {0, 4, 0, 4, 1, 5, 1, 5, 2, 6, 2, 6, 3, 7, 3, 7};
inline constexpr uint8_t kInt8Order[16] = {0, 2, 4, 6, 1, 3, 5, 7, 0, 2, 4, 6, 1, 3, 5, 7};

// A piece of work for a `rows` loop, for every m: of the outputs [row_begin, row_begin + row_count) the quads
// [quad_begin, quad_end). Quad i is the four rows i, i + q, i + 2q, i + 3q, q = quads(row_count): four long streams,
// which the next quads continue.
struct RowsTask {
  static constexpr int64_t quads(int64_t rows) { return (rows + 3) / 4; }

  WeightView w;
  int64_t row_begin = 0, row_count = 0;
  int64_t quad_begin = 0, quad_end = 0;
  const std::byte* x = nullptr;  // prepared inputs, x_bytes apart
  int64_t x_bytes = 0;
  int64_t m = 0;
  float* y = nullptr;  // of row_begin, m = 0
  int64_t y_stride = 0;
  const float* bias = nullptr;  // of row_begin, or null
  float kappa = 1;
  std::byte* scratch = nullptr;  // of this thread, rows_scratch_bytes(k, m)
};

using RowsFn = void (*)(const RowsTask&);

// `m` inputs are cut into so many equal groups of at most `most`.
constexpr int64_t groups_of(int64_t m, int64_t most) { return (m + most - 1) / most; }

// Scales of four rows, each one float per 16 elements at most, and as many minima.
constexpr int64_t rows_scales_bytes(int64_t k) { return (k + 255) / 256 * 256 / 16 * 4 * 2 * 4 + 64; }
// After them room for decoded weights, and the sums of eight rows and up to kMostInputs inputs, 32 lanes each.
inline constexpr int64_t kDecodedBytes = 16 * 1024;
inline constexpr int64_t kMostInputs = 64;
constexpr int64_t rows_scratch_bytes(int64_t k, int64_t m) {
  return rows_scales_bytes(k) + kDecodedBytes + (m < kMostInputs ? m : kMostInputs) * 8 * 32 * 4;
}

// --- gemm ---
//
// Lanes are taken one after the other in bit-reversed order (`LaneOrder`), so that adding finished lanes like a binary
// counter is the finish of numerics.md: 0 + 16, 8 + 24, their sum, ... A "position" counts words in that order.

inline constexpr int kPanelN = 32;  // outputs per panel of decoded weights
inline constexpr int kBlockM = 96;  // inputs whose partial sums wait for the other lanes: a multiple of 6
inline constexpr int kPanelGaps = 32 * kPanelN * 4;  // bytes: lanes of a panel may lie kPanelN floats further apart
inline constexpr int kMaxLevels = 6;                 // 32 lanes: sums of 1, 2, 4, 8, 16, 32

// How M inputs are cut into register tiles of 6, then 5, then 4: no padding but for M = 1, 2, 3 and 7.
struct Tiling {
  int64_t sixes = 0, fives = 0, fours = 0;

  constexpr int64_t count() const { return sixes + fives + fours; }
  constexpr int64_t padded() const { return 6 * sixes + 5 * fives + 4 * fours; }
  // Of the tile that begins with input m.
  constexpr int tile_at(int64_t m) const { return m < 6 * sixes ? 6 : m < 6 * sixes + 5 * fives ? 5 : 4; }
  // The first input of the i-th tile.
  constexpr int64_t begin(int64_t i) const {
    const int64_t in_sixes = i < sixes ? i : sixes, in_fives = i - in_sixes < fives ? i - in_sixes : fives;
    return 6 * in_sixes + 5 * in_fives + 4 * (i - in_sixes - in_fives);
  }
};
constexpr Tiling tiling(int64_t m) {
  const int64_t sixes = m / 6;
  switch (m % 6) {
    case 0:
      return {sixes, 0, 0};
    case 1:
      return sixes >= 2 ? Tiling{sixes - 2, 1, 2} : Tiling{0, 0, sixes + 1};
    case 2:
      return sixes >= 1 ? Tiling{sixes - 1, 0, 2} : Tiling{0, 0, 1};
    case 3:
      return sixes >= 1 ? Tiling{sixes - 1, 1, 1} : Tiling{0, 0, 1};
    case 4:
      return {sixes, 0, 1};
    default:
      return {sixes, 1, 0};
  }
}

// One word of a tile of R inputs in int8 mode, as 4-byte columns of R: 8 of q (kNibbles: even elements 0 2 4 6, odd
// elements 1 3 5 7, even 8 .. 14, ...; kBytes: in order), then -128 * sum of q over the word and over its two halves,
// then dx and the sum as floats.
//
// The three start values have kIntFloat added: an accumulator that starts with one ends as kIntFloat + i, which are the
// bits of the float 1.5 * 2^23 + i (|i| < 2^20). So a float subtraction converts it, on a port that dots leave idle.
inline constexpr int kInt8TileColumns = 13;
inline constexpr int32_t kIntFloat = 0x4b400000;
inline constexpr float kIntFloatValue = 12582912.0f;

// Bytes of one input in a tile. Exact: its elements by position, after them (E = 8) the words' sums t.
constexpr int64_t tile_bytes(InputLayout layout, int64_t k) {
  switch (layout) {
    case InputLayout::kNibbles:
    case InputLayout::kBytes:
      return k / 32 * kInt8TileColumns * 4;
    case InputLayout::kWords8:
      return (k + k / 8) * 4;
    default:
      return k * 4;
  }
}

struct GemmTask {
  WeightView w;
  int64_t row_begin = 0, row_count = 0;  // any count: the last panel is padded
  const std::byte* x = nullptr;          // the tiles one after the other
  int64_t m = 0;
  float* y = nullptr;  // of row_begin, m = 0
  int64_t y_stride = 0;
  const float* bias = nullptr;
  float kappa = 1;
  int64_t next_begin = 0, next_rows = 0;  // outputs whose weights this thread is likely to read after these; 0: none
  std::byte* scratch = nullptr;           // of this thread, gemm_scratch_bytes(k)
};

using GemmFn = void (*)(const GemmTask&);

// int8 on AVX-512: kInt8Panels panels at a time pass over kInt8BlockM inputs, so that these come from beyond the
// second-level cache once for all of them. The panels and the inputs of a block fit that cache together.
inline constexpr int kInt8Panels = 4;
inline constexpr int kInt8BlockM = 48;
// Of long rows fewer panels: what does not fit comes from beyond that cache for each block of inputs again.
constexpr int64_t int8_panels(int64_t k) {
  constexpr int64_t kCacheBytes = 1400 * 1024;
  const int64_t panel = k * kPanelN + k / 32 * kPanelN * 4, inputs = k / 32 * kInt8TileColumns * 4 * kInt8BlockM;
  const int64_t fit = (kCacheBytes - inputs) / panel;
  return fit < 1 ? 1 : fit < kInt8Panels ? fit : kInt8Panels;
}

// A panel of weights as fp32 (or kInt8Panels of bytes), its scales and minima by output and by block, the sums that
// wait.
constexpr int64_t gemm_scratch_bytes(int64_t k) {
  const int64_t padded = (k + 255) / 256 * 256, scales = padded / 16 * kPanelN * 4;
  return padded * kPanelN * 4 + kPanelGaps + (kInt8Panels + 2) * scales + int64_t{kMaxLevels} * kBlockM * kPanelN * 4;
}

// Inputs m .. m + rows - 1 (rows <= tile, the others are zeros) as a tile of 6 or 4.
void prepare_tile_avx2(const float* x, int64_t x_stride, int rows, int tile, int64_t k, InputLayout layout,
                       std::byte* out);
void prepare_tile_avx512(const float* x, int64_t x_stride, int rows, int tile, int64_t k, InputLayout layout,
                         std::byte* out);
// One word of a whole tile in int8 mode.
void int8_tile_word_avx2(const float* x, int64_t x_stride, int tile, bool nibbles, int32_t* out);

// --- made for AVX2, used by AVX-512 too (linear_prepare_avx2.cc, linear_scales_avx2.cc) ---

// x of one input to `layout` for vectors of `v` floats; prepared_bytes(layout, k) bytes at `out`, 64-byte aligned.
void prepare_input_avx2(const float* x, int64_t k, InputLayout layout, int v, std::byte* out);
constexpr int64_t prepared_bytes(InputLayout layout, int64_t k) {
  const int64_t steps = (k + 255) / 256;
  switch (layout) {
    case InputLayout::kNibbles:
    case InputLayout::kBytes:
      return steps * static_cast<int64_t>(sizeof(Int8Step));
    case InputLayout::kWords8:
      return steps * (256 + 32) * 4;
    default:
      return steps * 256 * 4;
  }
}

// The scales of a row, one per 32 elements (Q6_K: per 16), zeros up to a multiple of 256 elements; `m` likewise where
// the format has minima.
void expand_scales_avx2(const WeightView& w, int64_t row, float* s, float* m);

// --- exact mode on AVX-512: how many inputs are one group (linear_avx512.cc) ---

// Of the loop that keeps decoded weights in registers, and of the one that keeps them in the first-level cache.
int64_t few_inputs_avx512(const quant::CodecInfo& info);
int64_t many_inputs_avx512(int64_t k);

// --- one table per instruction set ---

struct LinearKernels {
  int vector = 0;  // floats
  decltype(prepare_tile_avx2)* prepare_tile = nullptr;
  // For m inputs.
  RowsFn (*rows)(const WeightView& w, bool int8, int64_t m) = nullptr;
  GemmFn (*gemm)(quant::Codec codec, bool int8) = nullptr;
  // The least M for which gemm takes no longer per input than rows.
  int64_t (*gemm_from)(const quant::CodecInfo& info, bool int8) = nullptr;
  // Panels of a chunk of outputs in int8 mode, many inputs.
  int int8_panels = 1;
};

extern const LinearKernels kLinearAvx512;
extern const LinearKernels kLinearAvx2;

}  // namespace berth::kernel::cpu
