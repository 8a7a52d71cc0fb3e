// quant/bnb_4bit.cc — thresholds and blocks.
#include "berth/quant/bnb_4bit.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "berth/base/check.h"
#include "berth/quant/code_books.h"

namespace berth::quant {
namespace {

constexpr float bits(uint32_t u) { return std::bit_cast<float>(u); }

constexpr float kTiny = 1e-38f;  // the CPU code divides by no less

// Midpoints of neighbouring nf4 codes; a value on one belongs to the lower code.
constexpr float kNF4Thresholds[15] = {bits(0xbf591cd8), bits(0xbf1c5270), bits(0xbeeb8480), bits(0xbeadea76),
                                      bits(0xbe703cec), bits(0xbe0d38bc), bits(0xbd3a7871), bits(0x3d22faff),
                                      bits(0x3df64862), bits(0x3e5067e0), bits(0x3e9582d4), bits(0x3ec753f9),
                                      bits(0x3f006d04), bits(0x3f248daf), bits(0x3f5c89da)};

// fp4, CPU: midpoints of the codes sorted by value, and which code each place of that order has.
constexpr float kFP4Thresholds[15] = {bits(0xbf555556), bits(0xbf155556), bits(0xbed55556), bits(0xbe955556),
                                      bits(0xbe555556), bits(0xbdb00000), bits(0xbb2aaaab), 0.0f,
                                      bits(0x3b2aaaab), bits(0x3db00000), bits(0x3e555556), bits(0x3e955556),
                                      bits(0x3ed55556), bits(0x3f155556), bits(0x3f555556)};
constexpr uint8_t kFP4Order[16] = {11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3};

// fp4, CUDA: thresholds of the magnitude as its source has them, and the codes between them.
constexpr float kFP4CudaThresholds[7] = {bits(0x3b2aaab9), bits(0x3db00000), bits(0x3e555555), bits(0x3e955555),
                                         bits(0x3ed55556), bits(0x3f155550), bits(0x3f555555)};
constexpr uint8_t kFP4CudaOrder[8] = {0, 1, 6, 7, 4, 5, 2, 3};

// Codes of `n` scaled values. Counts the thresholds below each value: one pass over the values per threshold, which
// compilers vectorize.
template <size_t kN>
void count_below(const float (&thresholds)[kN], const float* s, size_t n, int32_t* count) {
  std::fill_n(count, n, 0);
  for (const float t : thresholds) {
    for (size_t i = 0; i < n; ++i) count[i] += s[i] > t ? 1 : 0;
  }
}

constexpr size_t kRun = 64;  // values classified at a time

void classify(Codec codec, const Bnb4Rules& rules, const float* s, size_t n, uint8_t* q) {
  int32_t count[kRun];
  if (codec == Codec::kNF4) {
    count_below(kNF4Thresholds, s, n, count);
    for (size_t i = 0; i < n; ++i) q[i] = static_cast<uint8_t>(count[i]);
  } else if (!rules.fp4_cuda_thresholds) {
    count_below(kFP4Thresholds, s, n, count);
    for (size_t i = 0; i < n; ++i) q[i] = kFP4Order[count[i]];
  } else {
    float magnitude[kRun];
    for (size_t i = 0; i < n; ++i) magnitude[i] = std::fabs(s[i]);
    count_below(kFP4CudaThresholds, magnitude, n, count);
    for (size_t i = 0; i < n; ++i) q[i] = static_cast<uint8_t>((s[i] < 0 ? 8 : 0) | kFP4CudaOrder[count[i]]);
  }
  const uint8_t nan_code = rules.cuda_edges ? 0 : codec == Codec::kNF4 ? 15 : kFP4Order[15];
  for (size_t i = 0; i < n; ++i) q[i] = s[i] != s[i] ? nan_code : q[i];
}

// The block's largest magnitude; NaN if it has one, unless those are passed over (then -FLT_MAX if there is nothing
// else).
float block_absmax(const Bnb4Rules& rules, std::span<const float> x) {
  float largest = 0;
  size_t nans = 0;
  for (const float v : x) {
    const float a = std::fabs(v);
    largest = a > largest ? a : largest;  // false for NaN
    nans += v != v ? 1 : 0;
  }
  if (nans == 0) return largest;
  if (!rules.cuda_edges) return bits(0x7fc00000);
  return nans == x.size() ? -bits(0x7f7fffff) : largest;
}

// Codes of one block, one per byte, and one more for a missing element; returns what is stored as its absmax.
float encode_block(Codec codec, const Bnb4Rules& rules, std::span<const float> x, bool partial, uint8_t* q) {
  const float largest = block_absmax(rules, x);
  if (largest == 0) {
    std::fill_n(q, x.size() + 1, codec == Codec::kNF4 ? rules.zero_block_byte & 15 : 0);
    return partial && rules.divide_partial_block ? kTiny : 0.0f;
  }
  const bool divide = partial && rules.divide_partial_block;
  const float divisor = rules.cuda_edges || std::isnan(largest) ? largest : std::max(largest, kTiny);
  const float reciprocal = 1.0f / divisor;
  for (size_t begin = 0; begin < x.size(); begin += kRun) {
    const size_t n = std::min(kRun, x.size() - begin);
    float s[kRun];
    for (size_t i = 0; i < n; ++i) s[i] = divide ? x[begin + i] / divisor : x[begin + i] * reciprocal;
    if (!rules.cuda_edges) {  // NaN stays
      for (size_t i = 0; i < n; ++i) s[i] = s[i] > 1.0f ? 1.0f : s[i] < -1.0f ? -1.0f : s[i];
    }
    classify(codec, rules, s, n, q + begin);
  }
  const float missing = 0;
  classify(codec, rules, &missing, 1, q + x.size());
  if (!divide) return largest;
  return std::isnan(largest) ? bits(0xffffffff) : divisor;  // the NaN that torch's clamp leaves there
}

}  // namespace

void encode_bnb_4bit(Codec codec, int32_t blocksize, const Bnb4Rules& rules, std::span<const float> x, uint8_t* codes,
                     float* absmax) {
  constexpr size_t kLargestBlock = 4096;
  const auto block = static_cast<size_t>(blocksize);
  CHECK(is_bnb_4bit(codec) && block >= 2 && block % 2 == 0 && block <= kLargestBlock);
  uint8_t q[kLargestBlock + 1];
  for (size_t begin = 0; begin < x.size(); begin += block) {
    const size_t n = std::min(block, x.size() - begin);
    *absmax++ = encode_block(codec, rules, x.subspan(begin, n), n < block, q);
    for (size_t i = 0; i < n; i += 2) codes[(begin + i) / 2] = static_cast<uint8_t>(q[i] << 4 | q[i + 1]);
  }
}

void decode_bnb_4bit(Codec codec, int32_t blocksize, std::span<const uint8_t> codes, const float* absmax,
                     bool fp4_minus_zero, std::span<float> out) {
  CHECK(is_bnb_4bit(codec) && codes.size() >= (out.size() + 1) / 2);
  float book[16];
  std::copy_n(codec == Codec::kNF4 ? kNF4Book : kFP4Book, 16, book);
  if (codec == Codec::kFP4 && !fp4_minus_zero) book[8] = 0.0f;
  for (size_t i = 0; i < out.size(); ++i) {
    const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
    out[i] = book[code] * absmax[i / static_cast<size_t>(blocksize)];
  }
}

uint16_t bnb_native_bf16(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

}  // namespace berth::quant
