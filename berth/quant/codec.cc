// quant/codec.cc — the registry, in the order of the enum.
#include "berth/quant/codec.h"

#include "berth/base/check.h"
#include "berth/base/strings.h"
#include "berth/quant/codecs/codecs.h"

namespace berth::quant {
namespace {

constexpr const CodecInfo* kRegistry[kCodecCount] = {
    &codecs::kF32,  &codecs::kBF16,  &codecs::kF16,  &codecs::kInt8Row, &codecs::kFP8Block, &codecs::kNF4,
    &codecs::kFP4,  &codecs::kMXFP4, &codecs::kQ4_0, &codecs::kQ4_1,    &codecs::kQ5_0,     &codecs::kQ5_1,
    &codecs::kQ8_0, &codecs::kQ4_K,  &codecs::kQ5_K, &codecs::kQ6_K,    &codecs::kIQ4_NL,
};

}  // namespace

std::span<const CodecInfo* const> all_codecs() { return kRegistry; }

const CodecInfo& codec_info(Codec codec) {
  const auto i = static_cast<size_t>(codec);
  CHECK(i < std::size(kRegistry));
  DCHECK(kRegistry[i]->codec == codec);
  return *kRegistry[i];
}

std::optional<Codec> codec_from_name(std::string_view name) {
  for (const CodecInfo* info : kRegistry)
    if (info->name == name) return info->codec;
  return std::nullopt;
}

std::optional<StoredFormat> format_for_dtype(DType dtype) {
  for (const CodecInfo* info : kRegistry) {
    const bool complete = info->scaling == Scaling::kNone || info->unpack_blocks != nullptr;
    if (complete && info->file_dtype == dtype) return stored_format(info->codec);
  }
  return std::nullopt;
}

std::string format_text(const StoredFormat& format) {
  std::string text(codec_name(format.codec));
  if (is_bnb_4bit(format.codec)) {
    text += " (block " + std::to_string(format.blocksize) + (format.nested ? ", nested)" : ")");
  }
  return text;
}

Status validate(const StoredFormat& format) {
  const std::string name(codec_name(format.codec));
  if (!is_bnb_4bit(format.codec)) {
    if (format.blocksize == 0 && !format.nested) return {};
    return Error(ErrorCode::kInvalidArgument,
                 name + " has a fixed form: expected blocksize 0 and no nesting, found blocksize " +
                     std::to_string(format.blocksize) + (format.nested ? " and nesting" : ""));
  }
  const int32_t b = format.blocksize;
  if (b >= 32 && b <= 4096 && (b & (b - 1)) == 0) return {};
  return Error(ErrorCode::kInvalidArgument,
               name + " blocksize: expected 32, 64, 128, 256, 512, 1024, 2048 or 4096, found " + std::to_string(b));
}

Result<uint64_t> file_bytes(const StoredFormat& format, int64_t rows, int64_t cols) {
  TRY(const PackedLayout layout, packed_layout(format, rows, cols));
  const CodecInfo& info = codec_info(format.codec);
  if (info.unpack_blocks != nullptr) {
    const DTypeInfo& file = dtype_info(info.file_dtype);
    return static_cast<uint64_t>(rows) * (static_cast<uint64_t>(cols) / file.block_elements) * file.block_bytes;
  }
  uint64_t bytes = 0;  // files have the same planes, except where said below
  for (const PlaneLayout& plane : layout.planes) bytes += plane.bytes;
  if (is_bnb_4bit(format.codec)) bytes += 16 * sizeof(float);            // quant_map
  if (format.nested) bytes -= layout.plane(Plane::kNestedOffset).bytes;  // in the quant_state text
  if (format.codec == Codec::kInt8Row) bytes += 1;                       // weight_format
  return bytes;
}

}  // namespace berth::quant
