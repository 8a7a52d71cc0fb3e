// quant/codecs/gguf_block32.cc — GGUF's blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.
//
//   Q4_0, IQ4_NL  d, qs[16]         (q-8)*d, table[q]*d      low nibble -> element j, high nibble -> j + 16
//   Q4_1          d, m, qs[16]      q*d + m
//   Q5_0          d, qh, qs[16]     (q-16)*d, bit j of the u32 qh is bit 4 of element j
//   Q5_1          d, m, qh, qs[16]  q*d + m
//   Q8_0          d, int8[32]       q*d
#include "berth/quant/code_books.h"
#include "berth/quant/codecs/codecs.h"

namespace berth::quant::codecs {
namespace {

constexpr int64_t kBlock = 32;

// What distinguishes the six: their block in a file.
struct Block {
  int bits;
  bool min;
  constexpr int64_t qh_at() const { return min ? 4 : 2; }
  constexpr int64_t qs_at() const { return qh_at() + (bits == 5 ? 4 : 0); }
  constexpr int64_t bytes() const { return qs_at() + (bits == 8 ? 32 : 16); }
};

template <Block kB>
void plane_counts(const StoredFormat&, uint64_t rows, uint64_t cols, PlaneCounts& counts) {
  const uint64_t blocks = rows * (cols / kBlock);
  counts.set(Plane::kCodes, kB.bits == 8 ? DType::kI8 : DType::kU8, blocks * (kB.bits == 8 ? 32 : 16));
  if (kB.bits == 5) counts.set(Plane::kHigh, DType::kU32, blocks);
  counts.set(Plane::kScales, DType::kF16, blocks);
  if (kB.min) counts.set(Plane::kMins, DType::kF16, blocks);
}

template <Block kB>
void row_scales(const PackedMatrix& matrix, int64_t row, float* s, float* m) {
  const int64_t n = matrix.cols / kBlock;
  const uint16_t* d = matrix.scales<uint16_t>() + row * n;
  for (int64_t b = 0; b < n; ++b) s[b] = f16_to_f32(d[b]);
  if (kB.min) {
    const uint16_t* mins = matrix.plane<uint16_t>(Plane::kMins) + row * n;
    for (int64_t b = 0; b < n; ++b) m[b] = f16_to_f32(mins[b]);
  }
}

template <Block kB>
void unpack_blocks(const uint8_t* file_row, int64_t row, const MutablePackedMatrix& matrix) {
  const int64_t n = matrix.cols / kBlock, at = row * n;
  constexpr int64_t code_bytes = kB.bits == 8 ? 32 : 16;
  uint8_t* codes = matrix.plane<uint8_t>(Plane::kCodes) + at * code_bytes;
  uint32_t* high = matrix.plane<uint32_t>(Plane::kHigh) + (kB.bits == 5 ? at : 0);
  uint16_t* d = matrix.plane<uint16_t>(Plane::kScales) + at;
  uint16_t* m = matrix.plane<uint16_t>(Plane::kMins) + (kB.min ? at : 0);
  for (int64_t b = 0; b < n; ++b, file_row += kB.bytes(), codes += code_bytes) {
    d[b] = load_le<uint16_t>(file_row);
    if constexpr (kB.min) m[b] = load_le<uint16_t>(file_row + 2);
    if constexpr (kB.bits == 5) high[b] = even_odd_bits(load_le<uint32_t>(file_row + kB.qh_at()));
    if constexpr (kB.bits == 8) {
      std::memcpy(codes, file_row + kB.qs_at(), 32);
    } else {
      halves_to_pairs(file_row + kB.qs_at(), codes);
    }
  }
}

template <Block kB>
constexpr CodecInfo make(Codec codec, std::string_view name, DType dtype, CodeKind kind, int32_t offset) {
  CodecInfo info{};
  info.codec = codec;
  info.name = name;
  info.word_elements = kB.bits == 8 ? 4 : 8;
  info.block_elements = kBlock;
  info.code_bits = kB.bits;
  info.scaling = Scaling::kBlock;
  info.has_min = kB.min;
  info.code_kind = kind;
  info.code_offset = offset;
  info.code_book = kind == CodeKind::kBook ? kIQ4NLBook : nullptr;
  info.int8_mode = true;
  info.int8_book = kind == CodeKind::kBook ? kIQ4NLIntegers : nullptr;
  info.kappa = 1;
  info.file_dtype = dtype;
  info.cols_multiple = kBlock;
  info.plane_counts = plane_counts<kB>;
  info.row_scales = row_scales<kB>;
  info.unpack_blocks = unpack_blocks<kB>;
  return info;
}

constexpr Block k4{4, false}, k4m{4, true}, k5{5, false}, k5m{5, true}, k8{8, false};

}  // namespace

constinit const CodecInfo kQ4_0 = make<k4>(Codec::kQ4_0, "q4_0", DType::kQ4_0, CodeKind::kOffset, 8);
constinit const CodecInfo kQ4_1 = make<k4m>(Codec::kQ4_1, "q4_1", DType::kQ4_1, CodeKind::kOffset, 0);
constinit const CodecInfo kQ5_0 = make<k5>(Codec::kQ5_0, "q5_0", DType::kQ5_0, CodeKind::kOffset, 16);
constinit const CodecInfo kQ5_1 = make<k5m>(Codec::kQ5_1, "q5_1", DType::kQ5_1, CodeKind::kOffset, 0);
constinit const CodecInfo kQ8_0 = make<k8>(Codec::kQ8_0, "q8_0", DType::kQ8_0, CodeKind::kSigned, 0);
constinit const CodecInfo kIQ4_NL = make<k4>(Codec::kIQ4_NL, "iq4_nl", DType::kIQ4_NL, CodeKind::kBook, 0);

}  // namespace berth::quant::codecs
