// quant/bnb_4bit.h — bitsandbytes' nf4 and fp4 quantizer and dequantizer, the scalar truth for kernel/encode.
//
// Per block of `blocksize` elements of the flattened tensor: absmax, then each element divided by it (times its
// reciprocal in full blocks) picks the nearest of 16 code values. bitsandbytes' CPU and CUDA code differ at the edges;
// Bnb4Rules says which to follow (specs/quantization.md 1.3, 1.4). nf4 codes of ordinary blocks are the same under
// every rule.
//
// Non-goals: running weights (codecs/bnb_4bit.cc); streaming a tensor from a file (encode.h).
#pragma once

#include <cstdint>
#include <span>

#include "berth/quant/bnb_8bit_blocks.h"
#include "berth/quant/codec.h"

namespace berth::quant {

struct Bnb4Rules {
  uint8_t zero_block_byte = 0x77;    // nf4 codes of an all-zero block: 0x77 (CPU) or 0x00 (CUDA); both decode to zero
  bool fp4_cuda_thresholds = false;  // ties to the smaller magnitude, tiny negatives to code 8
  bool divide_partial_block = true;  // last block when short: x / max(absmax, 1e-38), and that maximum is stored
  bool cuda_edges = false;           // NaN is passed over and has code 0, no clamp; else one NaN makes the block NaN
  NearestRule nested = NearestRule::kCpuBins;
};
inline constexpr Bnb4Rules kBnbCpuRules{};
inline constexpr Bnb4Rules kBnbCudaRules{0x00, true, false, true, NearestRule::kCuda};

// Quantizes `x`, which starts at a block boundary of the tensor; only the tensor's last block may be short. Writes
// ceil(x.size()/2) bytes of codes, ceil(x.size()/blocksize) absmax. An odd end is padded with the code of 0.
// Thread-safe on disjoint runs of blocks.
void encode_bnb_4bit(Codec codec, int32_t blocksize, const Bnb4Rules& rules, std::span<const float> x, uint8_t* codes,
                     float* absmax);

// fp32(code value * absmax of the element's block). `fp4_minus_zero`: code 8 is -0 (kernels), else +0 (the stored
// table; the library's Python path, taken where the last dimension is odd).
void decode_bnb_4bit(Codec codec, int32_t blocksize, std::span<const uint8_t> codes, const float* absmax,
                     bool fp4_minus_zero, std::span<float> out);

// bf16 as bitsandbytes' native CPU dequantizer rounds: NaN is no special case, so the all-ones NaN wraps around to +0.
uint16_t bnb_native_bf16(float x);

}  // namespace berth::quant
