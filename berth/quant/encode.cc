// quant/encode.cc
#include "berth/quant/encode.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "berth/base/bytes.h"
#include "berth/quant/cast.h"
#include "berth/quant/gguf_blocks.h"

namespace berth::quant {
namespace {

constexpr size_t kChunk = 4096;  // elements; a multiple of every block size

size_t buffer_elements(const StoredFormat& format, int64_t cols) {
  return format.codec == Codec::kInt8Row ? static_cast<size_t>(cols) : kChunk;
}

uint64_t nested_blocks(const StoredFormat& format, int64_t rows, int64_t cols) {
  if (!format.nested) return 0;
  return ceil_div(static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols), static_cast<uint64_t>(format.blocksize));
}

}  // namespace

bool can_encode(Codec codec) {
  return is_bnb_4bit(codec) || codec == Codec::kInt8Row || codec_info(codec).code_kind == CodeKind::kFloat;
}

uint64_t encoder_scratch_bytes(const StoredFormat& format, int64_t rows, int64_t cols) {
  return sizeof(float) * (buffer_elements(format, cols) + nested_blocks(format, rows, cols) + kChunk);
}

MatrixEncoder::MatrixEncoder(const MutablePackedMatrix& target, const EncodeOptions& options)
    : target_(target),
      options_(options),
      rounding_(target.format.codec == Codec::kInt8Row ? DType::kF16 : DType::kF32),
      total_(static_cast<uint64_t>(target.rows) * static_cast<uint64_t>(target.cols)),
      buffer_(buffer_elements(target.format, target.cols)),
      absmax_(nested_blocks(target.format, target.rows, target.cols)) {}

Result<MatrixEncoder> MatrixEncoder::create(const MutablePackedMatrix& target, const EncodeOptions& options) {
  TRY(const PackedLayout layout, packed_layout(target.format, target.rows, target.cols));  // checks the numbers
  if (!can_encode(layout.format.codec)) {
    return Error(ErrorCode::kUnsupported,
                 "quantizing to " + format_text(target.format) + ": there is no encoder for this format",
                 {"Use nf4, fp4 or int8."});
  }
  if (options.load_dtype != DType::kF32 && options.load_dtype != DType::kBF16 && options.load_dtype != DType::kF16) {
    return Error(
        ErrorCode::kInvalidArgument,
        "quantizing with load dtype " + std::string(dtype_name(options.load_dtype)) + ": expected f32, bf16 or f16");
  }
  return MatrixEncoder(target, options);
}

Status MatrixEncoder::fail_at(uint64_t element, float value) const {
  const auto cols = static_cast<uint64_t>(target_.cols);
  return Error(ErrorCode::kCorruptData,
               "quantizing to " + format_text(target_.format) + ": expected finite weights, found " +
                   (std::isnan(value) ? "NaN" : "a weight that is or becomes infinite") + " at row " +
                   std::to_string(element / cols) + ", column " + std::to_string(element % cols));
}

Status MatrixEncoder::append(DType dtype, std::span<const std::byte> elements) {
  const DTypeInfo& info = dtype_info(dtype);
  if (!can_decode_blocks(dtype)) return decode_blocks(dtype, elements, {});  // says so
  if (elements.size() % info.block_bytes != 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "quantizing " + std::string(info.name) + " data: expected whole blocks of " +
                     std::to_string(info.block_bytes) + " bytes, found " + std::to_string(elements.size()) + " bytes");
  }
  float values[kChunk];
  const size_t chunk_bytes = kChunk / info.block_elements * info.block_bytes;
  for (size_t at = 0; at < elements.size(); at += chunk_bytes) {
    const auto part = elements.subspan(at, std::min(chunk_bytes, elements.size() - at));
    const std::span<float> out(values, part.size() / info.block_bytes * info.block_elements);
    TRY_STATUS(decode_blocks(dtype, part, out));
    TRY_STATUS(append(out));
  }
  return {};
}

Status MatrixEncoder::append(std::span<const float> elements) {
  if (elements.size() > total_ - received_) {
    return Error(ErrorCode::kInvalidArgument, "quantizing to " + format_text(target_.format) + ": expected " +
                                                  std::to_string(total_) + " elements, found " +
                                                  std::to_string(received_ + elements.size()));
  }
  const bool plain = codec_info(target_.format.codec).code_kind == CodeKind::kFloat;
  for (size_t i = 0; i < elements.size();) {
    const size_t n = std::min(elements.size() - i, buffer_.size() - buffered_);
    for (size_t k = 0; k < n; ++k) {
      const float v = round_through(rounding_, round_through(options_.load_dtype, elements[i + k]));
      if (plain ? std::isnan(v) : !std::isfinite(v)) return fail_at(received_ + k, v);
      buffer_[buffered_ + k] = v;
    }
    buffered_ += n;
    received_ += n;
    i += n;
    if (buffered_ == buffer_.size()) flush(buffered_);
  }
  return {};
}

void MatrixEncoder::flush(size_t n) {
  const uint64_t first = received_ - buffered_;
  const std::span<const float> x(buffer_.data(), n);
  buffered_ = 0;
  switch (target_.format.codec) {
    case Codec::kNF4:
    case Codec::kFP4: {
      float* absmax = target_.format.nested ? absmax_.data() : target_.plane<float>(Plane::kScales);
      encode_bnb_4bit(target_.format.codec, target_.format.blocksize, options_.bnb_4bit, x,
                      target_.plane<uint8_t>(Plane::kCodes) + first / 2,
                      absmax + first / static_cast<uint64_t>(target_.format.blocksize));
      return;
    }
    case Codec::kInt8Row:
      target_.plane<float>(Plane::kScales)[first / static_cast<uint64_t>(target_.cols)] =
          encode_int8_row(x, options_.int8_scale, target_.plane<int8_t>(Plane::kCodes) + first);
      return;
    case Codec::kF32:
      std::copy(x.begin(), x.end(), target_.plane<float>(Plane::kCodes) + first);
      return;
    default: {
      uint16_t* out = target_.plane<uint16_t>(Plane::kCodes) + first;
      const bool bf16 = target_.format.codec == Codec::kBF16;
      std::transform(x.begin(), x.end(), out, [&](float v) { return bf16 ? f32_to_bf16(v) : f32_to_f16(v); });
    }
  }
}

Status MatrixEncoder::finish() {
  if (received_ != total_) {
    return Error(ErrorCode::kInvalidArgument, "quantizing to " + format_text(target_.format) + ": expected " +
                                                  std::to_string(total_) + " elements, found " +
                                                  std::to_string(received_));
  }
  if (buffered_ > 0) flush(buffered_);
  if (target_.format.nested && total_ > 0) {
    nest_absmax(absmax_, options_.bnb_4bit.nested, target_.plane<uint8_t>(Plane::kScales),
                target_.plane<float>(Plane::kNestedAbsmax), target_.plane<float>(Plane::kNestedOffset));
    std::ranges::copy(dynamic_map(), target_.plane<float>(Plane::kNestedMap));
  }
  return {};
}

}  // namespace berth::quant
