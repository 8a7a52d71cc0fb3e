// quant/packed.h — a weight matrix in memory: one allocation of planes. Sizes, views, packing and the scalar decoder.
//
//   | codes | high | scales | mins | sub_scales | nested_absmax | nested_map | nested_offset | 64 bytes |
//
// Every plane that a codec has starts on a 64-byte boundary of the allocation (whose base is 64-byte aligned too), in
// this order; the others have no bytes. At least 64 readable bytes follow the last plane. r = rows, c = cols:
//
//   codes       f32, bf16, f16: elements, row-major. 8 bit: int8 or e4m3 bytes, row-major.
//               4, 5, 6 bit: low 4 bits; element i = row*c + k of the flattened matrix is in byte i/2, even i in the
//               HIGH nibble. (bitsandbytes' own bytes; rows begin in mid-byte where c is odd. GGUF, mxfp4: rows of c/2
//               bytes.)
//   high        5 bit: per 32 elements one u32; 6 bit: two (bit 4, then bit 5). Bit t < 16 is element 2t's, bit 16 + t
//   is
//               element 2t+1's. Together with the nibble this is q, unsigned; CodecInfo::code_offset is subtracted on
//               use.
//   scales      nf4, fp4: f32 absmax[n], n = ceil(r*c/blocksize); nested: u8[n]
//               q4_0 q4_1 q5_0 q5_1 q8_0 iq4_nl: fp16 d [r, c/32]; q4_k q5_k q6_k: fp16 d [r, c/256]
//               mxfp4: e8m0 u8 [r, c/32]; int8: f32 SCB[r]; fp8: f32 [ceil(r/128), ceil(c/128)]
//   mins        q4_1 q5_1: fp16 m [r, c/32]; q4_k q5_k: fp16 dmin [r, c/256]
//   sub_scales  q4_k q5_k: the 12 bytes of 6-bit scales and minima [r, c/256, 12]; q6_k: int8 [r, c/256, 16]
//   nested_absmax f32[ceil(n/256)], nested_map f32[256], nested_offset f32[1]: nested nf4 and fp4
//
// Thread-safe: calls on different rows of one matrix (bitsandbytes with odd c: rows share bytes; pack_plane only).
// Start reading at: packed_layout, then decode_row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "berth/base/result.h"
#include "berth/quant/codec.h"

namespace berth::quant {

inline constexpr uint64_t kPlaneAlignment = 64;
inline constexpr uint64_t kTailPadding = 64;

enum class Plane : uint8_t { kCodes, kHigh, kScales, kMins, kSubScales, kNestedAbsmax, kNestedMap, kNestedOffset };
inline constexpr int kPlaneCount = 8;
std::string_view plane_name(Plane plane);

// Elements of each plane; what a codec states. count 0: the codec has no such plane.
struct PlaneCounts {
  struct Entry {
    DType dtype = DType::kU8;
    uint64_t count = 0;
  };
  std::array<Entry, kPlaneCount> planes;
  void set(Plane plane, DType dtype, uint64_t count) { planes[static_cast<size_t>(plane)] = {dtype, count}; }
};

struct PlaneLayout {
  DType dtype = DType::kU8;  // of one element
  uint64_t count = 0;        // elements
  uint64_t offset = 0;       // bytes from the base
  uint64_t bytes = 0;        // without padding
};

struct PackedLayout {
  StoredFormat format;
  int64_t rows = 0, cols = 0;
  std::array<PlaneLayout, kPlaneCount> planes;
  uint64_t total_bytes = 0;  // what to allocate: a multiple of 64, tail padding included
  const PlaneLayout& plane(Plane p) const { return planes[static_cast<size_t>(p)]; }
};

// Layout of a [rows, cols] matrix. Pure arithmetic, checked; what sizing, arenas and kernels all use.
// Errors: kInvalidArgument naming the format and the shape (negative, too large, cols not whole blocks).
Result<PackedLayout> packed_layout(const StoredFormat& format, int64_t rows, int64_t cols);

// A view of a packed matrix; does not own. Planes a codec does not have are null.
//
// The last two members are for weights that are used from a mapped GGUF file as they are there (load/): nothing else
// makes such views, and only what reads rows by number (below, and kernels) takes them.
struct PackedMatrix {
  StoredFormat format;
  int64_t rows = 0, cols = 0;
  std::array<const std::byte*, kPlaneCount> planes{};
  // Q8_0: the plane of codes is the file's rows of blocks (fp16 d, 32 codes: 34 bytes); there is no plane of scales.
  bool in_blocks = false;
  // Not 0: rows of each head of so many rows lie interleaved, row i of its first half before row i of its second
  // (llama's q and k in GGUF).
  int32_t interleaved_rows = 0;

  // Where row `row` lies, in rows.
  int64_t stored_row(int64_t row) const {
    if (interleaved_rows == 0) return row;
    const int64_t half = interleaved_rows / 2, at = row % interleaved_rows;
    return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
  }

  template <typename T>
  const T* plane(Plane p) const {
    return reinterpret_cast<const T*>(planes[static_cast<size_t>(p)]);
  }
  const uint8_t* codes() const { return plane<uint8_t>(Plane::kCodes); }
  const uint32_t* high() const { return plane<uint32_t>(Plane::kHigh); }
  template <typename T>
  const T* scales() const {
    return plane<T>(Plane::kScales);
  }
};

struct MutablePackedMatrix {
  StoredFormat format;
  int64_t rows = 0, cols = 0;
  std::array<std::byte*, kPlaneCount> planes{};

  template <typename T>
  T* plane(Plane p) const {
    return reinterpret_cast<T*>(planes[static_cast<size_t>(p)]);
  }
  operator PackedMatrix() const;  // NOLINT: a view of a view
};

// The view of an allocation of layout.total_bytes at `base` (64-byte aligned).
PackedMatrix bind_planes(const PackedLayout& layout, const std::byte* base);
MutablePackedMatrix bind_planes(const PackedLayout& layout, std::byte* base);

// --- reading ---

// The blocks that a row's elements fall into: block 0 has the row's first `first` elements, the next ones `size` each,
// the last what is left. first < size only where blocks straddle rows (nf4, fp4). count 0: unscaled. Row scale: one
// block.
struct RowBlocks {
  int64_t count = 0, first = 0, size = 0;
  int64_t block_of(int64_t k) const { return k < first ? 0 : 1 + (k - first) / size; }
  int64_t begin(int64_t block) const { return block == 0 ? 0 : first + (block - 1) * size; }
};
RowBlocks row_blocks(const PackedMatrix& matrix, int64_t row);

// The exact code values c of a row, [cols]. For kFloat codecs the values themselves.
void row_codes(const PackedMatrix& matrix, int64_t row, float* c);
// The integers of int8 mode, [cols]; only where codec_info().int8_mode.
void row_int8_codes(const PackedMatrix& matrix, int64_t row, int8_t* c);
// s and m of each of the row's row_blocks().count blocks, as numerics.md 1 has them (int8: fp32(SCB * 0x3c010204)).
// `m` may be null where the codec has no minimum.
void row_scales(const PackedMatrix& matrix, int64_t row, float* s, float* m);

// The row as a vector: fp32(c*s), plus m with one more rounding where there is one. [cols].
void decode_row(const PackedMatrix& matrix, int64_t row, float* out);

// --- writing ---

// Bytes of one row in a file whose main tensor has element type `dtype`. Errors: kUnsupported where such rows cannot
// become this format without being quantized (see encode.h), naming both.
Result<uint64_t> file_row_bytes(const StoredFormat& format, DType dtype, int64_t cols);

// Puts whole rows [row_begin, row_begin + row_count), as a file has them back to back, into the planes:
// GGUF blocks into their own codec; F32/F16/BF16 into f32, bf16, f16 (rounded to nearest even); I8 into int8 codes;
// F8_E4M3 into fp8 codes; U8 [.., cols/32, 16] low nibble first (gpt-oss) into mxfp4 codes. Scales that are tensors of
// their own come by pack_plane. Rows may come in any order and chunking. Errors: kInvalidArgument (sizes, rows out of
// range), kUnsupported (no such conversion), kCorruptData (a NaN weight: row and column named).
Status pack_rows(const MutablePackedMatrix& matrix, DType dtype, std::span<const std::byte> rows, int64_t row_begin,
                 int64_t row_count);

// Bytes of a Q8_0 block: in files, and where in_blocks.
inline constexpr int64_t kQ8BlockBytes = 34;

// Looks for what pack_rows and pack_plane refuse in elements [first, first + count) of a plane that is already where it
// stays (a mapped file): kCorruptData naming a NaN weight's row and column, or a NaN scale's plane and index. Elements
// are counted as they lie; in_blocks: whole rows of codes.
Status check_finite(const PackedMatrix& matrix, Plane plane, uint64_t first, uint64_t count);

// Puts elements [first, first + n) of a tensor that is one plane (bitsandbytes packed bytes and absmax, SCB,
// weight_scale_inv, mxfp4 scales...) into it; `n` follows from bytes and dtype. Floats of another width are widened
// exactly, or rounded to nearest even. F8_E8M0 scales become 2^(e-127) in an f32 plane. Errors: kInvalidArgument (no
// such plane, out of range), kUnsupported (no such conversion), kCorruptData (a NaN scale).
Status pack_plane(const MutablePackedMatrix& matrix, Plane plane, DType dtype, std::span<const std::byte> bytes,
                  uint64_t first);

}  // namespace berth::quant
