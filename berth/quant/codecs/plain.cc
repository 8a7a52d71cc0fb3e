// quant/codecs/plain.cc — fp32, bf16, fp16: the code is the value.
#include "berth/quant/codecs/codecs.h"

namespace berth::quant::codecs {
namespace {

template <DType kType>
void plane_counts(const StoredFormat&, uint64_t rows, uint64_t cols, PlaneCounts& counts) {
  counts.set(Plane::kCodes, kType, rows * cols);
}

constexpr CodecInfo plain(Codec codec, std::string_view name, int32_t word_elements, int32_t bits, DType dtype,
                          void (*counts)(const StoredFormat&, uint64_t, uint64_t, PlaneCounts&)) {
  CodecInfo info{};
  info.codec = codec;
  info.name = name;
  info.word_elements = word_elements;
  info.code_bits = bits;
  info.scaling = Scaling::kNone;
  info.code_kind = CodeKind::kFloat;
  info.kappa = 1;
  info.file_dtype = dtype;
  info.cols_multiple = 1;
  info.plane_counts = counts;
  return info;
}

}  // namespace

constinit const CodecInfo kF32 = plain(Codec::kF32, "f32", 1, 32, DType::kF32, plane_counts<DType::kF32>);
constinit const CodecInfo kBF16 = plain(Codec::kBF16, "bf16", 2, 16, DType::kBF16, plane_counts<DType::kBF16>);
constinit const CodecInfo kF16 = plain(Codec::kF16, "f16", 2, 16, DType::kF16, plane_counts<DType::kF16>);

}  // namespace berth::quant::codecs
