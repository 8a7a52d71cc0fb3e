// quant/gguf_blocks.h — every GGUF block type to fp32, exactly as PyPI's gguf 0.19.0 dequantizes it.
//
// For types that no codec runs (Q2_K, Q3_K, IQ*, TQ*, NVFP4...) and for quantizing a GGUF file into another format.
// Types that can run are kept packed (packed.h); both roads give the same bits. Q8_1 and Q8_K, which gguf does not
// decode, are d*q. Layouts: docs/formats/gguf_blocks.md.
#pragma once

#include <cstddef>
#include <span>

#include "berth/base/result.h"
#include "berth/tensor/dtype.h"

namespace berth::quant {

// Whether decode_blocks() takes it: all GGUF block types, f32, f16, bf16.
bool can_decode_blocks(DType dtype);

// Whole blocks at `blocks` (any alignment) to `out`, in file order. Allocates nothing. Thread-safe.
// Errors: kUnsupported (not a type above), kInvalidArgument (sizes that do not belong together).
Status decode_blocks(DType dtype, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace berth::quant
