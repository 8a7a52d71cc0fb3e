// load/gguf_view.cc — see gguf_view.h.
#include "berth/load/gguf_view.h"

namespace berth::load {
namespace {

using quant::Codec;

// Rows per head where the segments put every head's interleaved rows back into halves; nothing otherwise, 0 for no
// segments at all.
std::optional<int32_t> interleaved(const std::vector<arch::Segment>& segments, int64_t rows) {
  if (segments.empty()) return 0;
  const int64_t half = segments[0].count, head = 2 * half;
  if (half <= 0 || head > rows || rows % head != 0 || static_cast<int64_t>(segments.size()) != rows / half)
    return std::nullopt;
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (segments[i] != arch::Segment{0, at / 2 * head + at % 2, half, 2}) return std::nullopt;
  }
  return static_cast<int32_t>(head);
}

}  // namespace

std::optional<GgufView> gguf_view(const format::Checkpoint& checkpoint, const arch::TensorSpec& tensor,
                                  const sizing::TensorStorage& storage, bool rows_only) {
  const Codec codec = storage.layout.format.codec;
  const bool wide = codec == Codec::kF32 || codec == Codec::kBF16 || codec == Codec::kF16;
  if (checkpoint.gguf() == nullptr || storage.quantized_on_load || tensor.recipe.add_one) return std::nullopt;
  if ((!wide && codec != Codec::kQ8_0 && !rows_only) || tensor.recipe.sources.size() != 1) return std::nullopt;
  const arch::Source& source = tensor.recipe.sources[0];
  if (source.storage != arch::SourceStorage::kPlain || source.transposed || source.slice >= 0) return std::nullopt;
  const format::TensorEntry* const entry = checkpoint.find(source.name);
  const quant::CodecInfo& info = quant::codec_info(codec);
  const auto bytes = dtype_bytes(info.file_dtype, static_cast<uint64_t>(storage.layout.cols));
  if (!wide && (info.unpack_blocks == nullptr || codec == Codec::kMXFP4))
    return std::nullopt;  // its zeros differ in sign
  if (entry == nullptr || entry->dtype != info.file_dtype || !bytes ||
      entry->size_bytes != *bytes * static_cast<uint64_t>(storage.layout.rows) || entry->offset % 4 != 0)
    return std::nullopt;
  const auto head = interleaved(tensor.recipe.segments, storage.layout.rows);
  if (!head) return std::nullopt;
  return GgufView{{&checkpoint.files()[entry->file], entry->offset, entry->size_bytes}, !wide, *head};
}

}  // namespace berth::load
