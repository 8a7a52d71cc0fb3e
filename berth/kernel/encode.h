// kernel/encode.h — quantize on load, fast: runs of weights into nf4, fp4 or LLM.int8 on the calling thread.
//
// The bytes are those of quant's scalar encoders (quant/bnb_4bit.h with kBnbCpuRules, quant/int8_row.h with
// Int8Scale::kCpu), bit for bit, on every instruction set; encode_test.cc compares them. Callers split a tensor over
// threads themselves: any cut at whole blocks (4 bit) or whole rows (int8) gives the same bytes. Nothing is allocated.
//
// Non-goals: other rules of bitsandbytes (CUDA's edges), nesting absmax (quant/bnb_8bit_blocks.h), GGUF sources (decode
// them to fp32 first). Start reading at: Weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "berth/base/isa.h"
#include "berth/quant/codec.h"
#include "berth/tensor/dtype.h"

namespace berth::kernel {

// A run of weights as a file has them, and what Transformers casts them to before it quantizes.
struct Weights {
  DType dtype = DType::kF32;       // of the data: f32, bf16 or f16
  const void* data = nullptr;      // no alignment needed
  int64_t count = 0;               // elements
  DType load_dtype = DType::kF32;  // f32: as they are; bf16, f16: rounded through it
};

inline constexpr int64_t kAllFinite = -1;

// nf4 or fp4. `weights` begins at a block boundary; only a tensor's last block may be short. Writes ceil(count/2) bytes
// of codes and ceil(count/blocksize) absmax. `blocksize`: 32 .. 4096, a power of two. Returns the first element that is
// NaN or infinite after the cast, or kAllFinite; the blocks before it are written.
// Codes may be stored past the cache; on return that is ordered before what this thread stores later, unless
// `more_follow`: then order_encoded() has to do it before other threads are told.
int64_t encode_4bit(Isa isa, quant::Codec codec, int32_t blocksize, const Weights& weights, uint8_t* codes,
                    float* absmax, bool more_follow = false);
void order_encoded();

// One row of LLM.int8 (through fp16, as the library does): codes, and SCB into *scb. Returns as encode_4bit.
int64_t encode_int8_row(Isa isa, const Weights& row, int8_t* codes, float* scb);

}  // namespace berth::kernel
