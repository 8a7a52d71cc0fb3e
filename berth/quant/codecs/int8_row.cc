// quant/codecs/int8_row.cc — bitsandbytes LLM.int8 weights: an int8 row and its largest absolute value (SCB).
//
// value = q * SCB / 127; the reciprocal of 127 is the fp32 constant of bitsandbytes' dequantizer, 0x3c010204. A stored
// -128 is legal. Encoding: int8_row.h.
#include <bit>

#include "berth/quant/codecs/codecs.h"

namespace berth::quant::codecs {
namespace {

void plane_counts(const StoredFormat&, uint64_t rows, uint64_t cols, PlaneCounts& counts) {
  counts.set(Plane::kCodes, DType::kI8, rows * cols);
  counts.set(Plane::kScales, DType::kF32, rows);
}

void row_scales(const PackedMatrix& matrix, int64_t row, float* s, float*) {
  s[0] = matrix.scales<float>()[row] * std::bit_cast<float>(0x3c010204u);
}

constexpr CodecInfo make() {
  CodecInfo info{};
  info.codec = Codec::kInt8Row;
  info.name = "int8";
  info.word_elements = 4;
  info.code_bits = 8;
  info.scaling = Scaling::kRow;
  info.code_kind = CodeKind::kSigned;
  info.int8_mode = true;
  info.kappa = 1;
  info.file_dtype = DType::kI8;
  info.cols_multiple = 1;
  info.plane_counts = plane_counts;
  info.row_scales = row_scales;
  return info;
}

}  // namespace

constinit const CodecInfo kInt8Row = make();

}  // namespace berth::quant::codecs
