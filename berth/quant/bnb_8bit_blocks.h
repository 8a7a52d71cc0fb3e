// quant/bnb_8bit_blocks.h — bitsandbytes' 8-bit block quantizer, which stores the absmax of nested 4-bit weights.
//
// Blocks of any size; a block's largest magnitude is its scale, a code is an index into a 256-entry map. Two rules pick
// the code: the CPU library looks it up in 65,536 bins, CUDA takes the nearest entry (specs/quantization.md 2.2). Also
// torch's fp32 mean, whose order of additions decides the last bit of nested_offset.
//
// Written files carry the map (`table W`); files that are read bring their own. Start reading at: nest_absmax.
#pragma once

#include <cstdint>
#include <span>

namespace berth::quant {

inline constexpr int64_t kNestedBlock = 256;

// The signed dynamic map, ascending; [127] is 0, [255] is 1.
std::span<const float, 256> dynamic_map();

enum class NearestRule : uint8_t { kCpuBins, kCuda };

// Codes of `x` and one absmax per block (the last may be short). NaN is passed over in the maximum and has code 0, as
// has an all-zero block. codes: x.size(); absmax: ceil(x.size() / block).
void encode_8bit_blocks(std::span<const float> x, int64_t block, NearestRule rule, uint8_t* codes, float* absmax);

// fp32(map[code] * absmax).
void decode_8bit_blocks(std::span<const uint8_t> codes, int64_t block, std::span<const float, 256> map,
                        const float* absmax, float* out);

// torch's mean of an fp32 tensor on one CPU thread with 8-float vectors, addition by addition. NaN for no elements.
float torch_mean(std::span<const float> x);

// Double quantization: offset = torch_mean(absmax); codes and nested_absmax of fp32(absmax - offset) in blocks of 256.
// Overwrites `absmax` with the differences. codes: absmax.size(); nested_absmax: ceil(absmax.size() / 256).
void nest_absmax(std::span<float> absmax, NearestRule rule, uint8_t* codes, float* nested_absmax, float* offset);

// fp32(fp32(map[code] * nested_absmax) + offset), two roundings.
void unnest_absmax(std::span<const uint8_t> codes, std::span<const float, 256> map, const float* nested_absmax,
                   float offset, float* absmax);

}  // namespace berth::quant
