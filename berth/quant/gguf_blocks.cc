// quant/gguf_blocks.cc — one function per block type: p is the block, y its elements.
//
// Rounding: each product and difference below is one fp32 operation, in the order of gguf's arrays.
#include "berth/quant/gguf_blocks.h"

#include <bit>
#include <cstring>
#include <string>

#include "berth/base/bytes.h"
#include "berth/quant/code_books.h"
#include "berth/quant/gguf_grids.h"
#include "berth/tensor/float16.h"

namespace berth::quant {
namespace {

float half(const uint8_t* p) { return f16_to_f32(load_le<uint16_t>(p)); }
float to_f32(int q) { return static_cast<float>(q); }
int8_t as_int8(uint8_t b) { return static_cast<int8_t>(b); }

// --- blocks of 32 ---

void q4_0(const uint8_t* p, float* y) {
  const float d = half(p);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * to_f32((p[2 + j] & 15) - 8);
    y[j + 16] = d * to_f32((p[2 + j] >> 4) - 8);
  }
}

void q4_1(const uint8_t* p, float* y) {
  const float d = half(p), m = half(p + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * to_f32(p[4 + j] & 15) + m;
    y[j + 16] = d * to_f32(p[4 + j] >> 4) + m;
  }
}

int five_bits(uint32_t qh, const uint8_t* qs, int j) {
  const int low = j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
  return low | static_cast<int>((qh >> j) & 1u) << 4;
}

void q5_0(const uint8_t* p, float* y) {
  const float d = half(p);
  for (int j = 0; j < 32; ++j) y[j] = d * to_f32(five_bits(load_le<uint32_t>(p + 2), p + 6, j) - 16);
}

void q5_1(const uint8_t* p, float* y) {
  const float d = half(p), m = half(p + 2);
  for (int j = 0; j < 32; ++j) y[j] = d * to_f32(five_bits(load_le<uint32_t>(p + 4), p + 8, j)) + m;
}

void q8_0(const uint8_t* p, float* y) {
  const float d = half(p);
  for (int j = 0; j < 32; ++j) y[j] = to_f32(as_int8(p[2 + j])) * d;
}

void q8_1(const uint8_t* p, float* y) {  // d, d * (sum of q), q[32]
  const float d = half(p);
  for (int j = 0; j < 32; ++j) y[j] = to_f32(as_int8(p[4 + j])) * d;
}

void iq4_nl(const uint8_t* p, float* y) {
  const float d = half(p);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * kIQ4NLBook[p[2 + j] & 15];
    y[j + 16] = d * kIQ4NLBook[p[2 + j] >> 4];
  }
}

void mxfp4(const uint8_t* p, float* y) {
  // Half of 2^(e-127), times twice the e2m1 value. e = 255 is an ordinary exponent here.
  const uint32_t e = p[0];
  const float d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * to_f32(kE2M1Integers[p[1 + j] & 15]);
    y[j + 16] = d * to_f32(kE2M1Integers[p[1 + j] >> 4]);
  }
}

void nvfp4(const uint8_t* p, float* y) {  // 64 elements: four unsigned e4m3 scales, then four runs of 8 bytes
  for (int run = 0; run < 4; ++run) {
    const uint8_t x = p[run];
    const int exponent = (x >> 3) & 15, mantissa = x & 7;
    float d = 0.0f;
    if (x != 0 && x != 0x7F) {
      d = exponent == 0
              ? to_f32(mantissa) * 0x1p-9f
              : (1.0f + to_f32(mantissa) / 8.0f) * std::bit_cast<float>(static_cast<uint32_t>(exponent + 120) << 23);
      d = d * 0.5f;
    }
    const uint8_t* qs = p + 4 + run * 8;
    for (int j = 0; j < 8; ++j) {
      y[run * 16 + j] = d * to_f32(kE2M1Integers[qs[j] & 15]);
      y[run * 16 + 8 + j] = d * to_f32(kE2M1Integers[qs[j] >> 4]);
    }
  }
}

// --- blocks of 256 ---

// 2-bit code of element i: quarters of 128 elements lie in bits 0-1, 2-3, 4-5, 6-7 of the same 32 bytes.
int two_bits(const uint8_t* qs, int i) { return (qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3; }

void q2_k(const uint8_t* p, float* y) {  // scales[16], qs[64], d, dmin
  const float d = half(p + 80), dmin = half(p + 82);
  for (int i = 0; i < 256; ++i) {
    const float dl = d * to_f32(p[i / 16] & 15), ml = dmin * to_f32(p[i / 16] >> 4);
    y[i] = dl * to_f32(two_bits(p + 16, i)) - ml;
  }
}

void q3_k(const uint8_t* p, float* y) {  // hmask[32], qs[64], scales[12], d
  const uint8_t* s = p + 96;
  const float d = half(p + 108);
  for (int i = 0; i < 256; ++i) {
    const int j = i / 16;
    const int low = (s[j % 8] >> (j / 8 * 4)) & 15, high = (s[8 + j % 4] >> (j / 4 * 2)) & 3;
    const float dl = d * to_f32((low | high << 4) - 32);
    const int set = (p[i % 32] >> (i / 32)) & 1;
    y[i] = dl * to_f32(two_bits(p + 32, i) - (set ? 0 : 4));
  }
}

struct ScaleMin {
  int scale, min;
};
ScaleMin k_scale(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | ((s[j - 4] >> 6) << 4), (s[j + 4] >> 4) | ((s[j] >> 6) << 4)};
}

void q4_k(const uint8_t* p, float* y) {  // d, dmin, scales[12], qs[128]
  const float d = half(p), dmin = half(p + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleMin sm = k_scale(p + 4, i / 32);
    const int q = (p[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15;
    const float dl = d * to_f32(sm.scale), ml = dmin * to_f32(sm.min);
    y[i] = dl * to_f32(q) - ml;
  }
}

void q5_k(const uint8_t* p, float* y) {  // d, dmin, scales[12], qh[32], qs[128]
  const float d = half(p), dmin = half(p + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleMin sm = k_scale(p + 4, i / 32);
    const int low = (p[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15;
    const int q = low | ((p[16 + i % 32] >> (i / 32)) & 1) << 4;
    const float dl = d * to_f32(sm.scale), ml = dmin * to_f32(sm.min);
    y[i] = dl * to_f32(q) - ml;
  }
}

void q6_k(const uint8_t* p, float* y) {  // ql[128], qh[64], scales[16], d
  const float d = half(p + 208);
  for (int i = 0; i < 256; ++i) {
    const int low = (p[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4)) & 15;
    const float dl = d * to_f32(as_int8(p[192 + i / 16]));
    y[i] = dl * to_f32((low | two_bits(p + 128, i) << 4) - 32);
  }
}

void q8_k(const uint8_t* p, float* y) {  // fp32 d, q[256], sums[16]
  const float d = load_le<float>(p);
  for (int i = 0; i < 256; ++i) y[i] = d * to_f32(as_int8(p[4 + i]));
}

void iq4_xs(const uint8_t* p, float* y) {  // d, u16 scales_h, scales_l[4], qs[128]
  const float d = half(p);
  const uint16_t high = load_le<uint16_t>(p + 2);
  for (int group = 0; group < 8; ++group) {
    const int low = (p[4 + group / 2] >> (group % 2 * 4)) & 15;
    const float dl = d * to_f32((low | ((high >> (2 * group)) & 3) << 4) - 32);
    for (int j = 0; j < 32; ++j) {
      y[group * 32 + j] = dl * kIQ4NLBook[(p[8 + group * 16 + j % 16] >> (j / 16 * 4)) & 15];
    }
  }
}

void tq1_0(const uint8_t* p, float* y) {  // qs[48], qh[4], d; five base-3 digits per byte, four in qh
  constexpr uint8_t kPower[5] = {1, 3, 9, 27, 81};
  const float d = half(p + 52);
  const auto digits = [&](const uint8_t* qs, int width, int count) {
    for (int n = 0; n < count; ++n) {
      for (int j = 0; j < width; ++j) {
        const auto q = static_cast<uint8_t>(qs[j] * kPower[n]);  // modulo 256: the leading digits drop out
        *y++ = d * to_f32((q * 3 >> 8) - 1);
      }
    }
  };
  digits(p, 32, 5);
  digits(p + 32, 16, 5);
  digits(p + 48, 4, 4);
}

void tq2_0(const uint8_t* p, float* y) {  // qs[64], d
  const float d = half(p + 64);
  for (int i = 0; i < 256; ++i) y[i] = d * to_f32(two_bits(p, i) - 1);
}

// --- IQ1, IQ2, IQ3: groups of 8 (4) elements chosen from a table ---

// Seven sign bits; the eighth makes their number even.
uint8_t even_signs(uint32_t seven) { return static_cast<uint8_t>(seven | (std::popcount(seven) & 1u) << 7); }
float sign_of(uint8_t signs, int i) { return (signs >> i) & 1 ? -1.0f : 1.0f; }

void signed_eight(float db, uint16_t word, uint8_t signs, float* y) {
  for (int i = 0; i < 8; ++i) y[i] = db * kIQ2Values[(word >> (2 * i)) & 3] * sign_of(signs, i);
}

void iq2_xxs(const uint8_t* p, float* y) {  // d, 8 x {4 indices, u32: scale << 28 | 4 x 7 signs}
  const float d = half(p);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* index = p + 2 + g * 8;
    const uint32_t word = load_le<uint32_t>(index + 4);
    const float db = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
    for (int k = 0; k < 4; ++k) {
      signed_eight(db, kIQ2XXSGrid[index[k]], even_signs((word >> (7 * k)) & 0x7F), y + g * 32 + k * 8);
    }
  }
}

void iq2_xs(const uint8_t* p, float* y) {  // d, u16 qs[32]: signs << 9 | index, scales[8]
  const float d = half(p);
  for (int k = 0; k < 32; ++k) {
    const uint16_t q = load_le<uint16_t>(p + 2 + 2 * k);
    const float db = d * (0.5f + to_f32((p[66 + k / 4] >> (k / 2 % 2 * 4)) & 15)) * 0.25f;
    signed_eight(db, kIQ2XSGrid[q & 511], even_signs(q >> 9), y + k * 8);
  }
}

void iq2_s(const uint8_t* p, float* y) {  // d, qs[32], signs[32], qh[8], scales[8]
  const float d = half(p);
  for (int k = 0; k < 32; ++k) {
    const int index = p[2 + k] | ((p[66 + k / 4] >> (k % 4 * 2)) & 3) << 8;
    const float db = d * (0.5f + to_f32((p[74 + k / 4] >> (k / 2 % 2 * 4)) & 15)) * 0.25f;
    signed_eight(db, kIQ2SGrid[index], p[34 + k], y + k * 8);
  }
}

void iq3_xxs(const uint8_t* p, float* y) {  // d, qs[64], 8 x u32: scale << 28 | 4 x 7 signs
  const float d = half(p);
  for (int g = 0; g < 8; ++g) {
    const uint32_t word = load_le<uint32_t>(p + 66 + 4 * g);
    const float db = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    for (int i = 0; i < 32; ++i) {
      const uint8_t signs = even_signs((word >> (i / 8 * 7)) & 0x7F);
      const uint16_t entry = kIQ3XXSGrid[p[2 + g * 8 + i / 4]];
      y[g * 32 + i] = db * kIQ3XXSValues[(entry >> (i % 4 * 4)) & 7] * sign_of(signs, i % 8);
    }
  }
}

void iq3_s(const uint8_t* p, float* y) {  // d, qs[64], qh[8], signs[32], scales[4]
  const float d = half(p);
  for (int i = 0; i < 256; ++i) {
    const int scale = (p[106 + i / 64] >> (i / 32 % 2 * 4)) & 15;
    const float db = d * to_f32(1 + 2 * scale);
    const int k = i / 4;
    const uint16_t entry = kIQ3SGrid[p[2 + k] | ((p[66 + k / 8] >> (k % 8)) & 1) << 8];
    y[i] = db * kIQ3SValues[(entry >> (i % 4 * 4)) & 7] * sign_of(p[74 + i / 8], i % 8);
  }
}

void shifted_eight(float dl, int index, float delta, float* y) {
  for (int i = 0; i < 8; ++i) y[i] = dl * (kIQ1Values[(kIQ1Grid[index] >> (2 * i)) & 3] + delta);
}

void iq1_s(const uint8_t* p, float* y) {  // d, qs[32], u16 qh[8]: sign of delta, 3-bit scale, 4 x 3 bits of index
  const float d = half(p);
  for (int k = 0; k < 32; ++k) {
    const uint16_t qh = load_le<uint16_t>(p + 34 + k / 4 * 2);
    const float dl = d * to_f32(2 * ((qh >> 12) & 7) + 1);
    shifted_eight(dl, p[2 + k] | ((qh >> (k % 4 * 3)) & 7) << 8, qh & 0x8000 ? -0.125f : 0.125f, y + k * 8);
  }
}

void iq1_m(const uint8_t* p, float* y) {  // qs[32], qh[16], u16 scales[4]: top four bits together are d
  uint32_t d_bits = 0;
  for (int i = 0; i < 4; ++i) d_bits |= static_cast<uint32_t>(load_le<uint16_t>(p + 48 + 2 * i) >> 12) << (4 * i);
  const float d = f16_to_f32(static_cast<uint16_t>(d_bits));
  for (int k = 0; k < 32; ++k) {
    const uint16_t scales = load_le<uint16_t>(p + 48 + k / 8 * 2);
    const float dl = d * to_f32(2 * ((scales >> (k / 2 % 4 * 3)) & 7) + 1);
    const int qh = p[32 + k / 2] >> (k % 2 * 4);
    shifted_eight(dl, p[k] | (qh & 7) << 8, qh & 8 ? -0.125f : 0.125f, y + k * 8);
  }
}

// --- plain elements ---

bool decode_plain(DType dtype, const uint8_t* p, std::span<float> out) {
  if (dtype == DType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), p, out.size_bytes());
  } else if (dtype == DType::kBF16) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_f32(load_le<uint16_t>(p + 2 * i));
  } else if (dtype == DType::kF16) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = half(p + 2 * i);
  } else {
    return false;
  }
  return true;
}
bool is_plain(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

using Decoder = void (*)(const uint8_t*, float*);

Decoder decoder_for(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return q4_0;
    case DType::kQ4_1:
      return q4_1;
    case DType::kQ5_0:
      return q5_0;
    case DType::kQ5_1:
      return q5_1;
    case DType::kQ8_0:
      return q8_0;
    case DType::kQ8_1:
      return q8_1;
    case DType::kQ2_K:
      return q2_k;
    case DType::kQ3_K:
      return q3_k;
    case DType::kQ4_K:
      return q4_k;
    case DType::kQ5_K:
      return q5_k;
    case DType::kQ6_K:
      return q6_k;
    case DType::kQ8_K:
      return q8_k;
    case DType::kIQ2_XXS:
      return iq2_xxs;
    case DType::kIQ2_XS:
      return iq2_xs;
    case DType::kIQ3_XXS:
      return iq3_xxs;
    case DType::kIQ1_S:
      return iq1_s;
    case DType::kIQ4_NL:
      return iq4_nl;
    case DType::kIQ3_S:
      return iq3_s;
    case DType::kIQ2_S:
      return iq2_s;
    case DType::kIQ4_XS:
      return iq4_xs;
    case DType::kIQ1_M:
      return iq1_m;
    case DType::kTQ1_0:
      return tq1_0;
    case DType::kTQ2_0:
      return tq2_0;
    case DType::kMXFP4:
      return mxfp4;
    case DType::kNVFP4:
      return nvfp4;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_decode_blocks(DType dtype) { return is_plain(dtype) || decoder_for(dtype) != nullptr; }

Status decode_blocks(DType dtype, std::span<const std::byte> blocks, std::span<float> out) {
  const Decoder decode = decoder_for(dtype);
  const DTypeInfo& info = dtype_info(dtype);
  if (!can_decode_blocks(dtype)) {
    return Error(ErrorCode::kUnsupported,
                 "decoding " + std::string(info.name) + " data to fp32: it has no such meaning");
  }
  const size_t n = out.size() / info.block_elements;
  if (out.size() % info.block_elements != 0 || blocks.size() % info.block_bytes != 0 ||
      blocks.size() / info.block_bytes != n) {
    return Error(ErrorCode::kInvalidArgument,
                 "decoding " + std::string(info.name) + " blocks: expected " + std::to_string(info.block_bytes) +
                     " bytes for each " + std::to_string(info.block_elements) + " elements, found " +
                     std::to_string(blocks.size()) + " bytes for " + std::to_string(out.size()) + " elements");
  }
  const auto* p = reinterpret_cast<const uint8_t*>(blocks.data());
  if (decode_plain(dtype, p, out)) return {};
  for (size_t i = 0; i < n; ++i) decode(p + i * info.block_bytes, out.data() + i * info.block_elements);
  return {};
}

}  // namespace berth::quant
