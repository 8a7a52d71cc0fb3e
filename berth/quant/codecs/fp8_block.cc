// quant/codecs/fp8_block.cc — fp8 e4m3 with one fp32 `weight_scale_inv` per tile of 128 x 128 (DeepSeek-V3, Qwen3-FP8).
#include "berth/quant/codecs/codecs.h"

namespace berth::quant::codecs {
namespace {

constexpr int64_t kTile = 128;

void plane_counts(const StoredFormat&, uint64_t rows, uint64_t cols, PlaneCounts& counts) {
  counts.set(Plane::kCodes, DType::kF8E4M3, rows * cols);
  counts.set(Plane::kScales, DType::kF32, ceil_div<uint64_t>(rows, kTile) * ceil_div<uint64_t>(cols, kTile));
}

void row_scales(const PackedMatrix& matrix, int64_t row, float* s, float*) {
  const int64_t n = ceil_div(matrix.cols, kTile);
  std::memcpy(s, matrix.scales<float>() + row / kTile * n, static_cast<size_t>(n) * sizeof(float));
}

constexpr CodecInfo make() {
  CodecInfo info{};
  info.codec = Codec::kFP8Block;
  info.name = "fp8";
  info.word_elements = 4;
  info.block_elements = kTile;
  info.code_bits = 8;
  info.scaling = Scaling::kBlock;
  info.code_kind = CodeKind::kE4M3;
  info.kappa = 1;
  info.file_dtype = DType::kF8E4M3;
  info.cols_multiple = 1;
  info.plane_counts = plane_counts;
  info.row_scales = row_scales;
  return info;
}

}  // namespace

constinit const CodecInfo kFP8Block = make();

}  // namespace berth::quant::codecs
