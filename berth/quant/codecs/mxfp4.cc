// quant/codecs/mxfp4.cc — OCP MX fp4 (gpt-oss; GGUF type 39): e2m1 codes, one e8m0 scale 2^(e-127) per 32 elements.
//
// GGUF block: e, qs[16] with low nibble -> element j, high nibble -> j + 16. gpt-oss: two tensors, blocks with the low
// nibble first and scales.

#include "berth/quant/code_books.h"
#include "berth/quant/codecs/codecs.h"

namespace berth::quant::codecs {
namespace {

constexpr int64_t kBlock = 32, kFileBytes = 17;

void plane_counts(const StoredFormat&, uint64_t rows, uint64_t cols, PlaneCounts& counts) {
  counts.set(Plane::kCodes, DType::kU8, rows * (cols / 2));
  counts.set(Plane::kScales, DType::kF8E8M0, rows * (cols / kBlock));
}

void row_scales(const PackedMatrix& matrix, int64_t row, float* s, float*) {
  const int64_t n = matrix.cols / kBlock;
  const uint8_t* e = matrix.scales<uint8_t>() + row * n;
  for (int64_t b = 0; b < n; ++b) s[b] = e8m0_to_f32(e[b]);
}

void unpack_blocks(const uint8_t* file_row, int64_t row, const MutablePackedMatrix& matrix) {
  const int64_t n = matrix.cols / kBlock;
  uint8_t* codes = matrix.plane<uint8_t>(Plane::kCodes) + row * (matrix.cols / 2);
  uint8_t* scales = matrix.plane<uint8_t>(Plane::kScales) + row * n;
  for (int64_t b = 0; b < n; ++b, file_row += kFileBytes, codes += kBlock / 2) {
    scales[b] = file_row[0];
    halves_to_pairs(file_row + 1, codes);
  }
}

constexpr CodecInfo make() {
  CodecInfo info{};
  info.codec = Codec::kMXFP4;
  info.name = "mxfp4";
  info.word_elements = 8;
  info.block_elements = kBlock;
  info.code_bits = 4;
  info.scaling = Scaling::kBlock;
  info.code_kind = CodeKind::kBook;
  info.code_book = kE2M1Book;
  info.int8_mode = true;
  info.int8_book = kE2M1Integers;
  info.kappa = 0.5f;
  info.file_dtype = DType::kMXFP4;
  info.cols_multiple = kBlock;
  info.plane_counts = plane_counts;
  info.row_scales = row_scales;
  info.unpack_blocks = unpack_blocks;
  return info;
}

}  // namespace

constinit const CodecInfo kMXFP4 = make();

}  // namespace berth::quant::codecs
