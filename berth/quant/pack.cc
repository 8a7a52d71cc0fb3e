// quant/pack.cc — from a file's rows and tensors to planes, in chunks. Declared in packed.h.
#include <algorithm>
#include <string>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/quant/codecs/codecs.h"
#include "berth/quant/packed.h"

namespace berth::quant {
namespace {

bool is_wide_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

Error no_conversion(const StoredFormat& format, DType dtype) {
  return Error(ErrorCode::kUnsupported, "packing " + std::string(dtype_name(dtype)) + " data as " +
                                            format_text(format) + ": there is no direct conversion");
}

bool is_nan16(uint16_t bits, uint16_t infinity) { return (bits & 0x7FFFu) > infinity; }
bool is_nan32(uint32_t bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u; }

// Whether there may be a NaN among `n` elements of 2 or 4 bytes at each of p, p + far, p + 2 far, p + 3 far: magnitudes
// above `infinity` make the difference negative. Four streams, since one does not keep memory busy; a loop that the
// compiler makes vectors of.
template <typename T>
bool above(const std::byte* p, uint64_t far, uint64_t n, T infinity) {
  constexpr T kMagnitude = static_cast<T>(static_cast<T>(~T{0}) >> 1);
  constexpr uint64_t kBlock = 1024 / sizeof(T), kAhead = 2048;  // elements; bytes
  T top = 0;
  const auto looked = [&](uint64_t at) { return static_cast<T>(infinity - (load_le<T>(p + at) & kMagnitude)); };
  for (uint64_t begin = 0; begin < n; begin += kBlock) {
    const uint64_t end = std::min(n, begin + kBlock);
    for (uint64_t at = begin * sizeof(T); at < end * sizeof(T); at += 64)
      for (int stream = 0; stream < 4; ++stream)
        __builtin_prefetch(p + at + static_cast<uint64_t>(stream) * far + kAhead);
    for (uint64_t i = begin * sizeof(T); i < end * sizeof(T); i += sizeof(T))
      top = static_cast<T>(top | looked(i) | looked(i + far) | looked(i + 2 * far) | looked(i + 3 * far));
  }
  return (top & static_cast<T>(~kMagnitude)) != 0;
}

bool may_have_nan(DType dtype, const std::byte* p, uint64_t n) {
  if (dtype == DType::kF32) return above<uint32_t>(p, n, n / 4, 0x7F800000u);
  if (dtype == DType::kF16) return above<uint16_t>(p, n / 2, n / 4, 0x7C00);
  if (dtype == DType::kBF16) return above<uint16_t>(p, n / 2, n / 4, 0x7F80);
  uint8_t top = 0;  // e4m3: 7F and FF
  for (uint64_t i = 0; i < n; ++i)
    top = static_cast<uint8_t>(top | static_cast<uint8_t>((std::to_integer<uint8_t>(p[i]) & 0x7Fu) + 1));
  return (top & 0x80u) != 0;
}

// The index of the first NaN among `n` floats of `dtype` (F32, F16, BF16, F8_E4M3) at `p`, or n.
uint64_t find_nan(DType dtype, const std::byte* p, uint64_t n) {
  const auto is_nan = [&](uint64_t i) {
    switch (dtype) {
      case DType::kF32:
        return is_nan32(load_le<uint32_t>(p + 4 * i));
      case DType::kF16:
        return is_nan16(load_le<uint16_t>(p + 2 * i), 0x7C00);
      case DType::kBF16:
        return is_nan16(load_le<uint16_t>(p + 2 * i), 0x7F80);
      default:
        return (std::to_integer<uint8_t>(p[i]) & 0x7Fu) == 0x7Fu;
    }
  };
  // Whole quarters first; only where one may be, and what is left over, are walked.
  const uint64_t quarters = n / 4 * 4;
  for (uint64_t i = may_have_nan(dtype, p, quarters) ? 0 : quarters; i < n; ++i)
    if (is_nan(i)) return i;
  return n;
}

float load_float(DType dtype, const std::byte* p) {
  if (dtype == DType::kF32) return load_le<float>(p);
  return dtype == DType::kBF16 ? bf16_to_f32(load_le<uint16_t>(p)) : f16_to_f32(load_le<uint16_t>(p));
}

// `n` floats of `from` at `in` to `to` at `out`: widened exactly or rounded to nearest even.
void convert_floats(DType from, const std::byte* in, DType to, std::byte* out, uint64_t n) {
  if (from == to) {
    if (n > 0 && in != out) std::memcpy(out, in, n * dtype_info(to).block_bytes);  // equal: read in place
    return;
  }
  const uint64_t step = dtype_info(from).block_bytes;
  for (uint64_t i = 0; i < n; ++i) {
    const float value = load_float(from, in + i * step);
    if (to == DType::kF32) {
      store_le(out + 4 * i, value);
    } else {
      store_le(out + 2 * i, to == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value));
    }
  }
}

std::string position(const PackedMatrix& matrix, uint64_t element) {
  const auto cols = static_cast<uint64_t>(matrix.cols);
  return "row " + std::to_string(element / cols) + ", column " + std::to_string(element % cols);
}

Error nan_weight(const PackedMatrix& matrix, uint64_t element) {
  return Error(ErrorCode::kCorruptData, "expected finite weights, found NaN at " + position(matrix, element));
}

// gpt-oss' bytes to the codes plane: nibbles change places.
void swap_nibbles(const std::byte* in, std::byte* out, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) out[i] = (in[i] << 4) | (in[i] >> 4);
}

// Whether one of `n` fp16 numbers is NaN or an infinity.
bool any_special(const uint16_t* d, uint64_t n) {
  uint16_t most = 0;
  for (uint64_t i = 0; i < n; ++i) most = std::max(most, static_cast<uint16_t>(d[i] & 0x7C00u));
  return most == 0x7C00u;
}

// A scale that is NaN or infinite may make a NaN of a code: such rows are decoded to see.
Status check_rows(const PackedMatrix& matrix, int64_t row_begin, int64_t row_count) {
  const CodecInfo& info = codec_info(matrix.format.codec);
  TRY(const PackedLayout row, packed_layout(matrix.format, 1, matrix.cols));
  const PlaneLayout &d = row.plane(Plane::kScales), &mins = row.plane(Plane::kMins);
  if (d.dtype == DType::kF16 && (mins.count == 0 || mins.dtype == DType::kF16)) {
    // Products of finite ones with sub-scales are finite.
    const auto finite = [&](Plane plane, uint64_t per_row) {
      return !any_special(matrix.plane<uint16_t>(plane) + static_cast<uint64_t>(row_begin) * per_row,
                          static_cast<uint64_t>(row_count) * per_row);
    };
    if (finite(Plane::kScales, d.count) && (mins.count == 0 || finite(Plane::kMins, mins.count))) return {};
  }
  const RowBlocks blocks = row_blocks(matrix, row_begin);
  std::vector<float> s(static_cast<size_t>(blocks.count)), m(info.has_min ? s.size() : 0), values;
  for (int64_t r = row_begin; r < row_begin + row_count; ++r) {
    row_scales(matrix, r, s.data(), m.data());
    uint32_t special = 0;
    for (const float v : s) special |= (std::bit_cast<uint32_t>(v) & 0x7F800000u) == 0x7F800000u;
    for (const float v : m) special |= (std::bit_cast<uint32_t>(v) & 0x7F800000u) == 0x7F800000u;
    if (special == 0) continue;
    values.resize(static_cast<size_t>(matrix.cols));
    decode_row(matrix, r, values.data());
    for (size_t k = 0; k < values.size(); ++k) {
      if (values[k] != values[k]) {
        return nan_weight(matrix, static_cast<uint64_t>(r * matrix.cols) + k);
      }
    }
  }
  return {};
}

// Blocks where a file has them, counted as they lie: one whose d is NaN or infinite, with a code that makes it NaN.
Status check_blocks(const PackedMatrix& matrix, uint64_t first, uint64_t count) {
  const std::byte* at = matrix.planes[0] + first / 32 * kQ8BlockBytes;
  for (uint64_t b = 0; b < count / 32; ++b, at += kQ8BlockBytes) {
    const auto d = load_le<uint16_t>(at);
    if ((d & 0x7C00u) != 0x7C00u) continue;
    for (uint64_t k = 0; k < 32; ++k)
      if (is_nan16(d, 0x7C00) || std::to_integer<uint8_t>(at[2 + k]) == 0)
        return nan_weight(matrix, first + 32 * b + k);
  }
  return {};
}

}  // namespace

Result<uint64_t> file_row_bytes(const StoredFormat& format, DType dtype, int64_t cols) {
  TRY(const PackedLayout layout, packed_layout(format, 1, cols));  // checks the format and cols
  const CodecInfo& info = codec_info(format.codec);
  const auto n = static_cast<uint64_t>(layout.cols);
  const bool float_rows = info.code_kind == CodeKind::kFloat && is_wide_float(dtype);
  const bool block_rows = info.unpack_blocks != nullptr && dtype == info.file_dtype;
  const bool code_rows = info.code_bits == 8 && info.unpack_blocks == nullptr && dtype == info.file_dtype;
  if (float_rows || block_rows || code_rows) return *dtype_bytes(dtype, n);
  if (format.codec == Codec::kMXFP4 && dtype == DType::kU8) return n / 2;
  return no_conversion(format, dtype);
}

Status pack_rows(const MutablePackedMatrix& matrix, DType dtype, std::span<const std::byte> rows, int64_t row_begin,
                 int64_t row_count) {
  TRY(const uint64_t row_bytes, file_row_bytes(matrix.format, dtype, matrix.cols));
  if (row_begin < 0 || row_count < 0 || row_begin > matrix.rows || row_count > matrix.rows - row_begin) {
    return Error(ErrorCode::kInvalidArgument, "packing rows " + std::to_string(row_begin) + " to " +
                                                  std::to_string(row_begin + row_count) +
                                                  ": expected rows within 0 to " + std::to_string(matrix.rows));
  }
  if (rows.size() != row_bytes * static_cast<uint64_t>(row_count)) {
    return Error(ErrorCode::kInvalidArgument, "packing " + std::to_string(row_count) + " rows of " +
                                                  std::string(dtype_name(dtype)) + ": expected " +
                                                  std::to_string(row_bytes * static_cast<uint64_t>(row_count)) +
                                                  " bytes, found " + std::to_string(rows.size()));
  }
  if (rows.empty()) return {};
  const CodecInfo& info = codec_info(matrix.format.codec);
  const auto cols = static_cast<uint64_t>(matrix.cols);
  const uint64_t n = cols * static_cast<uint64_t>(row_count);
  const uint64_t first = cols * static_cast<uint64_t>(row_begin);
  std::byte* codes = matrix.plane<std::byte>(Plane::kCodes);

  if (info.unpack_blocks != nullptr && dtype == info.file_dtype) {
    const auto* p = reinterpret_cast<const uint8_t*>(rows.data());
    for (int64_t row = row_begin; row < row_begin + row_count; ++row, p += row_bytes)
      info.unpack_blocks(p, row, matrix);
    return check_rows(matrix, row_begin, row_count);
  }
  if (dtype == DType::kU8) {  // mxfp4 as gpt-oss has it
    swap_nibbles(rows.data(), codes + first / 2, n / 2);
    return {};
  }
  if (dtype != DType::kI8) {
    if (const uint64_t i = find_nan(dtype, rows.data(), n); i < n) return nan_weight(matrix, first + i);
  }
  if (info.code_kind == CodeKind::kFloat) {
    const uint64_t width = dtype_info(info.file_dtype).block_bytes;
    convert_floats(dtype, rows.data(), info.file_dtype, codes + first * width, n);
  } else {
    std::memcpy(codes + first, rows.data(), n);
  }
  return {};
}

Status check_finite(const PackedMatrix& matrix, Plane plane, uint64_t first, uint64_t count) {
  TRY(const PackedLayout layout, packed_layout(matrix.format, matrix.rows, matrix.cols));
  const PlaneLayout& of = layout.plane(plane);
  if (first > of.count || count > of.count - first)
    return Error(ErrorCode::kInvalidArgument, "looking at elements up to " + std::to_string(first + count) + " of " +
                                                  std::to_string(of.count) + " of the " +
                                                  std::string(plane_name(plane)) + ": there are no such");
  if (matrix.in_blocks) return check_blocks(matrix, first, count);
  if (!is_wide_float(of.dtype) && of.dtype != DType::kF8E4M3) return {};
  const std::byte* const at = matrix.plane<std::byte>(plane) + first * dtype_info(of.dtype).block_bytes;
  const uint64_t i = find_nan(of.dtype, at, count);
  if (i == count) return {};
  if (plane == Plane::kCodes) return nan_weight(matrix, first + i);
  return Error(ErrorCode::kCorruptData,
               "looking at the " + std::string(plane_name(plane)) + " of a " + format_text(matrix.format) +
                   " matrix: expected finite values, found NaN at index " + std::to_string(first + i));
}

Status pack_plane(const MutablePackedMatrix& matrix, Plane plane, DType dtype, std::span<const std::byte> bytes,
                  uint64_t first) {
  const std::string doing =
      "packing the " + std::string(plane_name(plane)) + " of a " + format_text(matrix.format) + " matrix";
  TRY(const PackedLayout layout, packed_layout(matrix.format, matrix.rows, matrix.cols));
  const PlaneLayout& target = layout.plane(plane);
  const uint64_t element_bytes = dtype_info(dtype).block_bytes;
  if (bytes.size() % element_bytes != 0) {
    return Error(ErrorCode::kInvalidArgument, doing + ": expected whole " + std::string(dtype_name(dtype)) +
                                                  " elements, found " + std::to_string(bytes.size()) + " bytes");
  }
  const uint64_t n = bytes.size() / element_bytes;
  if (first > target.count || n > target.count - first) {
    return Error(ErrorCode::kInvalidArgument, doing + ": expected " + std::to_string(target.count) +
                                                  " elements, found elements up to " + std::to_string(first + n));
  }
  if (n == 0) return {};
  std::byte* out = matrix.plane<std::byte>(plane) + first * dtype_info(target.dtype).block_bytes;
  const auto nan_at = [&](uint64_t i) {
    return Error(ErrorCode::kCorruptData,
                 doing + ": expected finite values, found NaN at index " + std::to_string(first + i));
  };
  if (is_wide_float(target.dtype) && is_wide_float(dtype)) {
    if (const uint64_t i = find_nan(dtype, bytes.data(), n); i < n) return nan_at(i);
    convert_floats(dtype, bytes.data(), target.dtype, out, n);
    return {};
  }
  if (dtype == DType::kF8E8M0 || target.dtype == DType::kF8E8M0) {
    if (dtype != DType::kF8E8M0 && dtype != DType::kU8) return no_conversion(matrix.format, dtype);
    if (target.dtype != DType::kF8E8M0 && target.dtype != DType::kF32) return no_conversion(matrix.format, dtype);
    for (uint64_t i = 0; i < n; ++i) {
      const auto e = std::to_integer<uint8_t>(bytes[i]);
      if (e == 255) return nan_at(i);
      if (target.dtype == DType::kF32) {
        store_le(out + 4 * i, codecs::e8m0_to_f32(e));
      } else {
        out[i] = bytes[i];
      }
    }
    return {};
  }
  if (dtype != target.dtype) return no_conversion(matrix.format, dtype);
  if (dtype == DType::kF8E4M3) {
    if (const uint64_t i = find_nan(dtype, bytes.data(), n); i < n) return nan_at(i);
  }
  std::memcpy(out, bytes.data(), bytes.size());
  return {};
}

}  // namespace berth::quant
