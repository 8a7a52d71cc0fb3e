// kernel/encode.cc — blocks and rows, edges by quant's scalar encoders, the bulk by the instruction set's loops.
#include "berth/kernel/encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "berth/base/check.h"
#include "berth/base/float_environment.h"
#include "berth/kernel/cpu/encode_kernels.h"
#include "berth/quant/bnb_4bit.h"
#include "berth/quant/cast.h"
#include "berth/quant/int8_row.h"

namespace berth::kernel {
namespace {

using cpu::EncodeKernels;
using cpu::SourceType;
using cpu::Thresholds;

constexpr int64_t kLargestBlock = 4096;
constexpr uint32_t kInfinityBits = 0x7F800000u;
constexpr float kTiny = 1e-38f;  // bitsandbytes divides by no less

const EncodeKernels* kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return &cpu::kEncodeAvx512;
  if (isa == Isa::kAvx2) return &cpu::kEncodeAvx2;
#endif
  (void)isa;
  return nullptr;
}

SourceType source_type(DType dtype) {
  CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16);
  return dtype == DType::kF32 ? SourceType::kF32 : dtype == DType::kBF16 ? SourceType::kBF16 : SourceType::kF16;
}

int64_t element_bytes(SourceType type) { return type == SourceType::kF32 ? 4 : 2; }

float element(SourceType type, const std::byte* data, int64_t i) {
  if (type == SourceType::kF32) {
    float v;
    std::memcpy(&v, data + 4 * i, 4);
    return v;
  }
  uint16_t h;
  std::memcpy(&h, data + 2 * i, 2);
  return type == SourceType::kBF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

void widen(const EncodeKernels* kernels, SourceType type, const std::byte* data, int64_t n, SourceType rounding,
           float* out) {
  if (kernels != nullptr) return kernels->widen(type, data, n, rounding, out);
  const DType dtype = rounding == SourceType::kF32    ? DType::kF32
                      : rounding == SourceType::kBF16 ? DType::kBF16
                                                      : DType::kF16;
  for (int64_t i = 0; i < n; ++i) out[i] = quant::round_through(dtype, element(type, data, i));
}

// The first NaN or infinity, or kAllFinite.
int64_t first_not_finite(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(x[i])) return i;
  return kAllFinite;
}

uint32_t largest(const EncodeKernels* kernels, const float* x, int64_t n) {
  if (kernels != nullptr) return kernels->largest(x, n);
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  return most;
}

// The thresholds and codes that quant's encoder uses, found by asking it: the place of a value is decided by its code
// alone. 15 bisections over the floats between -1 and 1, once.
struct Books {
  Thresholds nf4, fp4;
};

uint8_t scalar_code(quant::Codec codec, float s) {
  // A block whose absmax is 1, so that the reciprocal changes nothing.
  float x[32] = {s, 0, 1};
  uint8_t codes[16];
  float absmax;
  quant::encode_bnb_4bit(codec, 32, quant::kBnbCpuRules, x, codes, &absmax);
  return codes[0] >> 4;
}

// Floats in order as integers.
int32_t ordered(float f) {
  const int32_t i = std::bit_cast<int32_t>(f);
  return i >= 0 ? i : std::bit_cast<int32_t>(0x80000000u - static_cast<uint32_t>(i));
}
float unordered(int32_t i) {
  return std::bit_cast<float>(i >= 0 ? i : std::bit_cast<int32_t>(0x80000000u - static_cast<uint32_t>(i)));
}

// The last float below `high` (in order) whose code is that of `low`.
float last_with_code_of(quant::Codec codec, float low, float high) {
  int32_t a = ordered(low), b = ordered(high);
  const uint8_t code = scalar_code(codec, low);
  while (b - a > 1) {
    const auto middle = static_cast<int32_t>((int64_t{a} + b) / 2);
    (scalar_code(codec, unordered(middle)) == code ? a : b) = middle;
  }
  return unordered(a);
}

Thresholds find_thresholds(quant::Codec codec) {
  // A sample of every place in ascending order: fine steps near 0, where fp4's codes lie close.
  float at[16];
  int places = 0;
  const auto sample = [&](float s) {
    if (places == 0 || scalar_code(codec, at[places - 1]) != scalar_code(codec, s)) {
      CHECK(places < 16);
      at[places++] = s;
    } else {
      at[places - 1] = s;
    }
  };
  for (int i = -1024; i < 0; ++i) sample(static_cast<float>(i) / 1024.0f);
  for (int i = -64; i <= 64; ++i) sample(static_cast<float>(i) / 65536.0f);
  for (int i = 1; i <= 1024; ++i) sample(static_cast<float>(i) / 1024.0f);
  CHECK(places == 16);
  Thresholds t{};
  for (int p = 0; p < 16; ++p) {
    t.code[p] = scalar_code(codec, at[p]);
    if (p > 0) t.value[p - 1] = last_with_code_of(codec, at[p - 1], at[p]);
  }
  return t;
}

const Thresholds& thresholds_of(quant::Codec codec) {
  static const Books books = {find_thresholds(quant::Codec::kNF4), find_thresholds(quant::Codec::kFP4)};
  return codec == quant::Codec::kNF4 ? books.nf4 : books.fp4;
}

}  // namespace

int64_t encode_4bit(Isa isa, quant::Codec codec, int32_t blocksize, const Weights& weights, uint8_t* codes,
                    float* absmax) {
  CHECK(quant::is_bnb_4bit(codec) && blocksize >= 32 && blocksize <= kLargestBlock && blocksize % 32 == 0);
  const FloatEnvironmentScope exact_floats;
  const EncodeKernels* const kernels = kernels_of(isa);
  const SourceType type = source_type(weights.dtype), rounding = source_type(weights.load_dtype);
  const auto* const data = static_cast<const std::byte*>(weights.data);
  const Thresholds& thresholds = thresholds_of(codec);
  const bool direct = kernels != nullptr && kernels->bf16_to_nf4 != nullptr && codec == quant::Codec::kNF4 &&
                      type == SourceType::kBF16 && rounding != SourceType::kF16 && blocksize % 64 == 0;
  float values[kLargestBlock];
  for (int64_t begin = 0; begin < weights.count; begin += blocksize, ++absmax) {
    if (direct) {
      const int64_t done =
          kernels->bf16_to_nf4(thresholds, static_cast<const uint16_t*>(weights.data) + begin, blocksize,
                               (weights.count - begin) / blocksize, kTiny, codes + begin / 2, absmax);
      begin += done * blocksize;
      absmax += done;
      if (begin == weights.count) break;
    }
    const int64_t n = std::min<int64_t>(blocksize, weights.count - begin);
    const std::byte* const block = data + begin * element_bytes(type);
    widen(kernels, type, block, n, rounding, values);
    const uint32_t bits = largest(kernels, values, n);
    if (bits >= kInfinityBits) return begin + first_not_finite(values, n);
    const float most = std::bit_cast<float>(bits);
    if (kernels == nullptr || n < blocksize || most < kTiny) {  // scalar, short, zero or tiny: the truth itself
      quant::encode_bnb_4bit(codec, blocksize, quant::kBnbCpuRules, {values, static_cast<size_t>(n)}, codes + begin / 2,
                             absmax);
      continue;
    }
    kernels->classify(thresholds, values, n, 1.0f / most, codes + begin / 2);
    *absmax = most;
  }
  return kAllFinite;
}

int64_t encode_int8_row(Isa isa, const Weights& row, int8_t* codes, float* scb) {
  const FloatEnvironmentScope exact_floats;
  const EncodeKernels* const kernels = kernels_of(isa);
  const SourceType type = source_type(row.dtype), first = source_type(row.load_dtype);
  const auto* const data = static_cast<const std::byte*>(row.data);
  float values[kLargestBlock];
  // Twice over the row in pieces: through the load dtype, then through fp16.
  const auto piece = [&](int64_t begin) {
    const int64_t n = std::min(kLargestBlock, row.count - begin);
    widen(kernels, type, data + begin * element_bytes(type), n, first, values);
    widen(kernels, SourceType::kF32, reinterpret_cast<const std::byte*>(values), n, SourceType::kF16, values);
    return n;
  };
  uint32_t bits = 0;
  for (int64_t begin = 0; begin < row.count; begin += kLargestBlock) {
    const int64_t n = piece(begin);
    bits = std::max(bits, largest(kernels, values, n));
    if (bits >= kInfinityBits) return begin + first_not_finite(values, n);
  }
  *scb = std::bit_cast<float>(bits);
  const float scale = (1.0f / *scb) * 127.0f;
  for (int64_t begin = 0; begin < row.count; begin += kLargestBlock) {
    const int64_t n = piece(begin);
    if (kernels != nullptr && std::isfinite(scale)) {
      kernels->round_int8(values, n, scale, codes + begin);
      continue;
    }
    for (int64_t i = 0; i < n; ++i) {
      const float q = std::nearbyint(values[i] * scale);
      codes[begin + i] = std::isfinite(q) ? static_cast<int8_t>(q) : int8_t{0};
    }
  }
  return kAllFinite;
}

}  // namespace berth::kernel
