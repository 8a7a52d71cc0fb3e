// quant/codecs/bnb_4bit.cc — bitsandbytes nf4 and fp4 in memory: packed bytes as they are, absmax plain or nested.
//
// Blocks run over the flattened matrix and may straddle rows. Nested absmax is restored with two roundings:
// fp32(fp32(map[q] * nested_absmax) + offset). Encoding: bnb_4bit.h.
#include "berth/quant/code_books.h"
#include "berth/quant/codecs/codecs.h"

namespace berth::quant::codecs {
namespace {

constexpr uint64_t kNestedBlock = 256;

void plane_counts(const StoredFormat& format, uint64_t rows, uint64_t cols, PlaneCounts& counts) {
  const uint64_t n = rows * cols;
  const uint64_t blocks = ceil_div<uint64_t>(n, static_cast<uint64_t>(format.blocksize));
  counts.set(Plane::kCodes, DType::kU8, ceil_div<uint64_t>(n, 2));
  counts.set(Plane::kScales, format.nested ? DType::kU8 : DType::kF32, blocks);
  if (format.nested) {
    counts.set(Plane::kNestedAbsmax, DType::kF32, ceil_div(blocks, kNestedBlock));
    counts.set(Plane::kNestedMap, DType::kF32, 256);
    counts.set(Plane::kNestedOffset, DType::kF32, 1);
  }
}

void row_scales(const PackedMatrix& matrix, int64_t row, float* s, float*) {
  const RowBlocks blocks = row_blocks(matrix, row);
  const int64_t begin = row * matrix.cols / matrix.format.blocksize;
  if (!matrix.format.nested) {
    std::memcpy(s, matrix.scales<float>() + begin, static_cast<size_t>(blocks.count) * sizeof(float));
    return;
  }
  const float* map = matrix.plane<float>(Plane::kNestedMap);
  const float* absmax = matrix.plane<float>(Plane::kNestedAbsmax);
  const float offset = *matrix.plane<float>(Plane::kNestedOffset);
  for (int64_t b = 0; b < blocks.count; ++b) {
    const int64_t i = begin + b;
    const float product = map[matrix.scales<uint8_t>()[i]] * absmax[i / static_cast<int64_t>(kNestedBlock)];
    s[b] = product + offset;
  }
}

constexpr CodecInfo make(Codec codec, std::string_view name, const float* book, const int8_t* integers, float kappa) {
  CodecInfo info{};
  info.codec = codec;
  info.name = name;
  info.word_elements = 8;
  info.code_bits = 4;
  info.scaling = Scaling::kBlock;
  info.code_kind = CodeKind::kBook;
  info.code_book = book;
  info.int8_mode = true;
  info.int8_book = integers;
  info.kappa = kappa;
  info.file_dtype = DType::kU8;
  info.cols_multiple = 1;
  info.plane_counts = plane_counts;
  info.row_scales = row_scales;
  return info;
}

}  // namespace

constinit const CodecInfo kNF4 = make(Codec::kNF4, "nf4", kNF4Book, kNF4Integers, kNF4Kappa);
constinit const CodecInfo kFP4 = make(Codec::kFP4, "fp4", kFP4Book, kFP4Integers, kFP4Kappa);

}  // namespace berth::quant::codecs
