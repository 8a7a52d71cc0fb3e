// engine/synth.h — a checkpoint of a config's real shapes with seeded random weights, at the disk's speed.
//
// For measuring and trying: names, types and shapes are those such a model is published with (arch's recipes for a bare
// config, and what else its module tree has); norms are near 1, other values are scaled so that activations and logits
// stay finite. 4 and 8 bit are written as such at once (codes at random under fitting scales), never as bf16 first.
// Every value depends on seed, tensor name and position alone: same arguments, same bytes, on any machine.
//
// Non-goals: weights that mean anything; tokenizers (a GGUF file gets a made-up one, since readers ask for it).
// Start reading at: synthesize.
#pragma once

#include <cstdint>
#include <string>

#include "berth/base/log.h"
#include "berth/base/result.h"
#include "berth/engine/options.h"
#include "berth/engine/quantize.h"

namespace berth::engine {

struct SynthOptions {
  std::string gguf;  // "" for safetensors; "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q4_k_m", "q6_k"... : one GGUF file
  int64_t seed = 0;
  std::string max_shard_size{kDefaultMaxShardSize};
};

// `config`: a config.json, or anything that has one. OUT is a new folder, or a file with SynthOptions::gguf. The report
// counts no source. Errors: kUnsupported (storage methods that Berth does not run; GGUF of another family or of shapes
// that are no whole blocks), kInvalidArgument (options, OUT exists), kIo, kCancelled.
Result<QuantizeReport> synthesize(const std::string& config, const std::string& out, const Options& options,
                                  const SynthOptions& synth, const Log& log);

std::string synth_report_text(const QuantizeReport& report);

}  // namespace berth::engine
