// quant/packed.cc — layout arithmetic, views, and decoding of one row; packing is in pack.cc.
#include "berth/quant/packed.h"

#include <algorithm>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/quant/codecs/codecs.h"
#include "berth/quant/gguf_blocks.h"
#include "berth/tensor/shape.h"

namespace berth::quant {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 40;
constexpr uint64_t kMaxElements = uint64_t{1} << 48;  // so that no byte count below can overflow 64 bits

// Calls f(k, q) for each element k of the row with its stored code q (4..8 bits, unsigned as stored).
template <typename F>
void for_each_code(const PackedMatrix& matrix, int64_t row, F&& f) {
  const CodecInfo& info = codec_info(matrix.format.codec);
  const int64_t begin = matrix.stored_row(row) * matrix.cols;
  const uint8_t* codes = matrix.codes();
  if (matrix.in_blocks) {
    codes += begin / 32 * kQ8BlockBytes;
    for (int64_t k = 0; k < matrix.cols; ++k) f(k, static_cast<uint32_t>(codes[k / 32 * kQ8BlockBytes + 2 + k % 32]));
    return;
  }
  if (info.code_bits == 8) {
    for (int64_t k = 0; k < matrix.cols; ++k) f(k, static_cast<uint32_t>(codes[begin + k]));
    return;
  }
  const int high_words = info.code_bits - 4;
  for (int64_t k = 0; k < matrix.cols; ++k) {
    const int64_t i = begin + k;
    uint32_t q = (i % 2 == 0) ? codes[i / 2] >> 4 : codes[i / 2] & 15u;
    const int64_t bit = (i % 32) / 2 + (i % 2) * 16;
    for (int h = 0; h < high_words; ++h) q |= ((matrix.high()[i / 32 * high_words + h] >> bit) & 1u) << (4 + h);
    f(k, q);
  }
}

}  // namespace

std::string_view plane_name(Plane plane) {
  constexpr std::string_view kNames[kPlaneCount] = {"codes",      "high",          "scales",     "mins",
                                                    "sub_scales", "nested_absmax", "nested_map", "nested_offset"};
  return kNames[static_cast<size_t>(plane)];
}

Result<PackedLayout> packed_layout(const StoredFormat& format, int64_t rows, int64_t cols) {
  TRY_STATUS(validate(format));
  const CodecInfo& info = codec_info(format.codec);
  const auto fail = [&](const std::string& why) {
    return Error(ErrorCode::kInvalidArgument,
                 "laying out a " + shape_text({rows, cols}) + " matrix as " + format_text(format) + ": " + why);
  };
  if (rows < 0 || cols < 0) return fail("expected extents >= 0");
  if (rows > kMaxExtent || cols > kMaxExtent ||
      (cols > 0 && static_cast<uint64_t>(rows) > kMaxElements / static_cast<uint64_t>(cols))) {
    return fail("expected at most 2^48 elements");
  }
  if (cols % info.cols_multiple != 0) {
    return fail("expected rows of a multiple of " + std::to_string(info.cols_multiple) + " elements, found " +
                std::to_string(cols));
  }
  PlaneCounts counts;
  info.plane_counts(format, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), counts);

  PackedLayout layout{format, rows, cols, {}, 0};
  uint64_t at = 0;
  for (int i = 0; i < kPlaneCount; ++i) {
    const auto [dtype, count] = counts.planes[static_cast<size_t>(i)];
    const uint64_t bytes = count * dtype_info(dtype).block_bytes;
    layout.planes[static_cast<size_t>(i)] = {dtype, count, at, bytes};
    at = align_up(at + bytes, kPlaneAlignment);
  }
  layout.total_bytes = at + kTailPadding;
  return layout;
}

MutablePackedMatrix::operator PackedMatrix() const {
  PackedMatrix view{format, rows, cols};
  std::copy(planes.begin(), planes.end(), view.planes.begin());
  return view;
}

MutablePackedMatrix bind_planes(const PackedLayout& layout, std::byte* base) {
  CHECK(reinterpret_cast<uintptr_t>(base) % kPlaneAlignment == 0);
  MutablePackedMatrix view{layout.format, layout.rows, layout.cols, {}};
  for (size_t i = 0; i < layout.planes.size(); ++i) {
    if (layout.planes[i].count > 0) view.planes[i] = base + layout.planes[i].offset;
  }
  return view;
}

PackedMatrix bind_planes(const PackedLayout& layout, const std::byte* base) {
  return bind_planes(layout, const_cast<std::byte*>(base));
}

RowBlocks row_blocks(const PackedMatrix& matrix, int64_t row) {
  const CodecInfo& info = codec_info(matrix.format.codec);
  if (matrix.cols == 0 || info.scaling == Scaling::kNone) return {};
  if (info.scaling == Scaling::kRow) return {1, matrix.cols, matrix.cols};
  const int64_t size = matrix.format.blocksize > 0 ? matrix.format.blocksize : info.block_elements;
  const int64_t skipped = matrix.format.blocksize > 0 ? row * matrix.cols % size : 0;  // of the row's first block
  const int64_t first = std::min(size - skipped, matrix.cols);
  return {1 + ceil_div(matrix.cols - first, size), first, size};
}

void row_codes(const PackedMatrix& matrix, int64_t row, float* c) {
  const CodecInfo& info = codec_info(matrix.format.codec);
  const auto n = static_cast<size_t>(matrix.cols);
  const size_t begin = static_cast<size_t>(matrix.stored_row(row)) * n;
  switch (info.code_kind) {
    case CodeKind::kFloat:
      if (info.codec == Codec::kF32) {
        if (n > 0) std::memcpy(c, matrix.plane<float>(Plane::kCodes) + begin, n * sizeof(float));
        return;
      }
      for (size_t k = 0; k < n; ++k) {
        const uint16_t bits = matrix.plane<uint16_t>(Plane::kCodes)[begin + k];
        c[k] = info.codec == Codec::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
      }
      return;
    case CodeKind::kSigned:
      for_each_code(matrix, row, [&](int64_t k, uint32_t q) { c[k] = static_cast<float>(static_cast<int8_t>(q)); });
      return;
    case CodeKind::kE4M3:
      for (size_t k = 0; k < n; ++k) c[k] = e4m3_to_f32(matrix.codes()[begin + k]);
      return;
    case CodeKind::kOffset:
      for_each_code(matrix, row, [&](int64_t k, uint32_t q) {
        c[k] = static_cast<float>(static_cast<int32_t>(q) - info.code_offset);
      });
      return;
    case CodeKind::kBook:
      for_each_code(matrix, row, [&](int64_t k, uint32_t q) { c[k] = info.code_book[q]; });
      return;
  }
}

void row_int8_codes(const PackedMatrix& matrix, int64_t row, int8_t* c) {
  const CodecInfo& info = codec_info(matrix.format.codec);
  CHECK(info.int8_mode);
  for_each_code(matrix, row, [&](int64_t k, uint32_t q) {
    c[k] = info.code_kind == CodeKind::kBook ? info.int8_book[q]
                                             : static_cast<int8_t>(static_cast<int32_t>(q) - info.code_offset);
  });
}

void row_scales(const PackedMatrix& matrix, int64_t row, float* s, float* m) {
  const CodecInfo& info = codec_info(matrix.format.codec);
  if (matrix.in_blocks) {
    const std::byte* at = matrix.planes[0] + matrix.stored_row(row) * matrix.cols / 32 * kQ8BlockBytes;
    for (int64_t b = 0; b < matrix.cols / 32; ++b) s[b] = f16_to_f32(load_le<uint16_t>(at + b * kQ8BlockBytes));
    return;
  }
  if (info.row_scales != nullptr && matrix.cols > 0) info.row_scales(matrix, matrix.stored_row(row), s, m);
}

void decode_row(const PackedMatrix& matrix, int64_t row, float* out) {
  const CodecInfo& info = codec_info(matrix.format.codec);
  if (matrix.in_blocks) {
    const auto n = static_cast<uint64_t>(matrix.cols), bytes = dtype_bytes(info.file_dtype, n).value_or(0);
    const std::byte* const at = matrix.planes[0] + static_cast<uint64_t>(matrix.stored_row(row)) * bytes;
    CHECK(decode_blocks(info.file_dtype, {at, bytes}, {out, n}).has_value());
    return;
  }
  row_codes(matrix, row, out);
  if (info.scaling == Scaling::kNone || matrix.cols == 0) return;
  const RowBlocks blocks = row_blocks(matrix, row);
  // Rows up to 16384 elements (of 16 per block) need no allocation.
  constexpr int64_t kOnStack = 1024;
  float stack[2 * kOnStack];
  std::vector<float> heap(blocks.count > kOnStack ? static_cast<size_t>(2 * blocks.count) : 0);
  float* s = heap.empty() ? stack : heap.data();
  float* m = s + (heap.empty() ? kOnStack : blocks.count);
  row_scales(matrix, row, s, m);
  for (int64_t b = 0; b < blocks.count; ++b) {
    const int64_t end = std::min(blocks.begin(b + 1), matrix.cols);
    for (int64_t k = blocks.begin(b); k < end; ++k) {
      out[k] = out[k] * s[b];
      if (info.has_min) out[k] = out[k] + m[b];
    }
  }
}

}  // namespace berth::quant
