// engine/verify.h — promise P4 for a user's own model: the same tokens and the same logits bits under different plans.
#pragma once

#include <string>
#include <vector>

#include "berth/engine/generation.h"

namespace berth::engine {

struct VerifyRun {
  std::string plan;  // as given: a strategy, a map, a file
  std::string logits_hash;
  std::vector<int32_t> tokens;
  std::vector<MemoryRow> memory;
};

struct Verification {
  bool identical = true;
  std::vector<VerifyRun> runs;
};

// Loads and runs the model once for each of `maps` (values of --device-map), one after the other.
Result<Verification> verify(const std::string& model, const std::vector<std::string>& maps, const Options& options,
                            const GenerationOptions& generation, const Log& log);

}  // namespace berth::engine
