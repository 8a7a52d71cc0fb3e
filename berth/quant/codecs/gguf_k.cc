// quant/codecs/gguf_k.cc — GGUF's blocks of 256 with sub-scales: Q4_K, Q5_K (8 groups of 32), Q6_K (16 groups of 16).
//
//   Q4_K  d, dmin, scales[12], qs[128]            d*sc*q - dmin*mn     chunk c of 64: bytes qs[32c..32c+31], low
//   nibbles -> Q5_K  d, dmin, scales[12], qh[32], qs[128]    likewise, 5 bits     first 32, high -> last 32; bit 2c
//   (2c+1) of qh[l] Q6_K  ql[128], qh[64], int8 scales[16], d     d*sc*(q-32)
//
// scales[12] holds eight 6-bit scales and eight 6-bit minima; the products d*sc and dmin*mn are exact in fp32.
#include "berth/quant/codecs/codecs.h"

namespace berth::quant::codecs {
namespace {

constexpr int64_t kBlock = 256, kPackedScales = 12;

// Scale and minimum number j (0..7) of a Q4_K or Q5_K block.
inline void sub_scale(const uint8_t* s, int j, int& sc, int& mn) {
  if (j < 4) {
    sc = s[j] & 63;
    mn = s[j + 4] & 63;
  } else {
    sc = (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
    mn = (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
  }
}

template <int kBits>
void plane_counts(const StoredFormat&, uint64_t rows, uint64_t cols, PlaneCounts& counts) {
  const uint64_t blocks = rows * (cols / kBlock);
  counts.set(Plane::kCodes, DType::kU8, blocks * 128);
  if (kBits > 4) counts.set(Plane::kHigh, DType::kU32, blocks * (kBits == 5 ? 8 : 16));
  counts.set(Plane::kScales, DType::kF16, blocks);
  if (kBits < 6) counts.set(Plane::kMins, DType::kF16, blocks);
  counts.set(Plane::kSubScales, kBits == 6 ? DType::kI8 : DType::kU8, blocks * (kBits == 6 ? 16 : kPackedScales));
}

void row_scales_45(const PackedMatrix& matrix, int64_t row, float* s, float* m) {
  const int64_t n = matrix.cols / kBlock, at = row * n;
  for (int64_t b = at; b < at + n; ++b) {
    const float d = f16_to_f32(matrix.scales<uint16_t>()[b]);
    const float dmin = f16_to_f32(matrix.plane<uint16_t>(Plane::kMins)[b]);
    for (int j = 0; j < 8; ++j) {
      int sc, mn;
      sub_scale(matrix.plane<uint8_t>(Plane::kSubScales) + b * kPackedScales, j, sc, mn);
      *s++ = d * static_cast<float>(sc);
      *m++ = -(dmin * static_cast<float>(mn));
    }
  }
}

void row_scales_6(const PackedMatrix& matrix, int64_t row, float* s, float*) {
  const int64_t n = matrix.cols / kBlock, at = row * n;
  for (int64_t b = at; b < at + n; ++b) {
    const float d = f16_to_f32(matrix.scales<uint16_t>()[b]);
    const int8_t* sub = matrix.plane<int8_t>(Plane::kSubScales) + b * 16;
    for (int j = 0; j < 16; ++j) *s++ = d * static_cast<float>(sub[j]);
  }
}

template <int kBits>
void unpack_45(const uint8_t* p, int64_t row, const MutablePackedMatrix& matrix) {
  const int64_t n = matrix.cols / kBlock, at = row * n;
  uint16_t* const d = matrix.plane<uint16_t>(Plane::kScales) + at;
  uint16_t* const dmin = matrix.plane<uint16_t>(Plane::kMins) + at;
  uint8_t* const sub_scales = matrix.plane<uint8_t>(Plane::kSubScales) + at * kPackedScales;
  uint8_t* codes = matrix.plane<uint8_t>(Plane::kCodes) + at * 128;
  uint32_t* high = matrix.plane<uint32_t>(Plane::kHigh) + (kBits == 5 ? at * 8 : 0);
  for (int64_t b = 0; b < n; ++b, codes += 128) {
    d[b] = load_le<uint16_t>(p);
    dmin[b] = load_le<uint16_t>(p + 2);
    std::memcpy(sub_scales + b * kPackedScales, p + 4, kPackedScales);
    p += 4 + kPackedScales;
    if constexpr (kBits == 5) {
      const HighWords words(p);
      for (int group = 0; group < 8; ++group) high[group] = words.word(group);
      high += 8;
      p += 32;
    }
    for (int group = 0; group < 8; ++group) store_nibbles(p + (group / 2) * 32, group % 2 * 4, codes + group * 16);
    p += 128;
  }
}

void unpack_6(const uint8_t* p, int64_t row, const MutablePackedMatrix& matrix) {
  const int64_t n = matrix.cols / kBlock, at = row * n;
  uint16_t* const d = matrix.plane<uint16_t>(Plane::kScales) + at;
  int8_t* const sub_scales = matrix.plane<int8_t>(Plane::kSubScales) + at * 16;
  uint8_t* codes = matrix.plane<uint8_t>(Plane::kCodes) + at * 128;
  uint32_t* high = matrix.plane<uint32_t>(Plane::kHigh) + at * 16;
  for (int64_t b = 0; b < n; ++b, p += 210) {
    for (int half = 0; half < 2; ++half, codes += 64, high += 8) {  // of 128: 64 bytes of ql and 32 of qh
      const uint8_t* ql = p + half * 64;
      const HighWords words(p + 128 + half * 32);
      for (int k = 0; k < 4; ++k) store_nibbles(ql + k % 2 * 32, k / 2 * 4, codes + k * 16);
      for (int bit = 0; bit < 8; ++bit) high[bit] = words.word(bit);
    }
    std::memcpy(sub_scales + b * 16, p + 192, 16);
    d[b] = load_le<uint16_t>(p + 208);
  }
}

constexpr CodecInfo make(Codec codec, std::string_view name, DType dtype, int bits) {
  CodecInfo info{};
  info.codec = codec;
  info.name = name;
  info.word_elements = 8;
  info.block_elements = bits == 6 ? 16 : 32;
  info.code_bits = bits;
  info.scaling = Scaling::kBlock;
  info.has_min = bits != 6;
  info.code_kind = CodeKind::kOffset;
  info.code_offset = bits == 6 ? 32 : 0;
  info.int8_mode = true;
  info.kappa = 1;
  info.file_dtype = dtype;
  info.cols_multiple = kBlock;
  info.plane_counts = bits == 4 ? plane_counts<4> : bits == 5 ? plane_counts<5> : plane_counts<6>;
  info.row_scales = bits == 6 ? row_scales_6 : row_scales_45;
  info.unpack_blocks = bits == 4 ? unpack_45<4> : bits == 5 ? unpack_45<5> : unpack_6;
  return info;
}

}  // namespace

constinit const CodecInfo kQ4_K = make(Codec::kQ4_K, "q4_k", DType::kQ4_K, 4);
constinit const CodecInfo kQ5_K = make(Codec::kQ5_K, "q5_k", DType::kQ5_K, 5);
constinit const CodecInfo kQ6_K = make(Codec::kQ6_K, "q6_k", DType::kQ6_K, 6);

}  // namespace berth::quant::codecs
