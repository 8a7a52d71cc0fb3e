// quant/int8_row.h — LLM.int8's row quantizer and dequantizer (bitsandbytes int8_vectorwise_quant), the scalar truth.
//
// Weights go through fp16 first (cast.h), then each row by its largest magnitude SCB: code = round_half_even(w *
// scale). With a threshold (used on activations only) elements at or above it are outliers: left out of SCB, coded 0,
// their columns named.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace berth::quant {

enum class Int8Scale : uint8_t {
  kCpu,   // fp32(fp32(1 / SCB) * 127): what the CPU library does, two roundings
  kCuda,  // 127 / SCB
};

// One row without outliers. Writes row.size() codes, returns SCB. A row with a NaN or an infinity: codes 0, SCB NaN or
// inf.
float encode_int8_row(std::span<const float> row, Int8Scale scale, int8_t* codes);

// x: [rows, cols]; codes likewise, scb [rows]. threshold 0: no outliers. Returns the outlier columns, ascending.
std::vector<int64_t> encode_int8_rows(std::span<const float> x, int64_t rows, int64_t cols, float threshold,
                                      Int8Scale scale, int8_t* codes, float* scb);

// fp32(fp32(code * SCB) * 0x3c010204), as int8_vectorwise_dequant.
void decode_int8_row(std::span<const int8_t> codes, float scb, float* out);

}  // namespace berth::quant
