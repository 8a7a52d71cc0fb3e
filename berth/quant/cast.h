// quant/cast.h — what a load dtype does to weights: rounding floats through bf16 or fp16.
//
// Transformers casts a checkpoint to the model's dtype before quantizing, so one file gives different 4-bit bytes for
// fp16, bf16 and fp32 loads; LLM.int8 always goes through fp16 as well (specs/quantization.md, 4.1 and surprise 12).
// All roundings are to nearest even; values too large for fp16 become infinite.
#pragma once

#include <span>

#include "berth/tensor/dtype.h"
#include "berth/tensor/float16.h"

namespace berth::quant {

inline float round_through(DType dtype, float x) {
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(x));
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(x));
  return x;
}

// Every element to `dtype` (bf16, fp16; fp32 changes nothing) and back to fp32, in place.
inline void round_through(DType dtype, std::span<float> x) {
  if (dtype == DType::kF32) return;
  for (float& v : x) v = round_through(dtype, v);
}

}  // namespace berth::quant
