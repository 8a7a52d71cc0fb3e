// engine/synth_gguf.h — a GGUF file of a Llama's shapes with seeded random weights.
//
// For comparing with readers of GGUF: layout, names and metadata are llama.cpp's; the vocabulary is made up. Types:
// f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k ("pure": every matrix in the type, norms f32) and q4_k_m (the mix of
// q4_k and q6_k that people download).
//
// Start reading at: write_synth_gguf.
#pragma once

#include <cstdint>
#include <string>

#include "berth/arch/model_spec.h"
#include "berth/base/log.h"
#include "berth/base/result.h"
#include "berth/base/thread_pool.h"

namespace berth::engine {

struct SynthGguf {
  uint64_t tensors = 0, file_bytes = 0;
};

// Writes `path` (aside, then renamed). Errors: kInvalidArgument (an unknown type, `path` is a folder), kUnsupported (not
// Llama's parts: another norm, biases, experts, fused projections; rows that are no whole blocks), kIo, kCancelled.
Result<SynthGguf> write_synth_gguf(const arch::ModelSpec& spec, const std::string& type, int64_t seed,
                                   const std::string& path, ThreadPool& pool, const Log& log);

}  // namespace berth::engine
