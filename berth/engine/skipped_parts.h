// engine/skipped_parts.h — what a model has besides what the forward pass of its text reads: towers and projectors.
//
// Berth does not load them; Transformers does. Their bytes are what a plan differs by from that library's footprint.
// Start reading at: skipped_parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "berth/engine/opened_model.h"

namespace berth::engine {

struct SkippedPart {
  std::string path;          // the outermost module that holds nothing of the text model: "model.vision_tower"
  uint64_t parameters = 0;   // persistent buffers included
  uint64_t built_bytes = 0;  // as built in the model's dtype
  uint64_t transformers_bytes =
      0;  // as Transformers holds them under these options: 4 and 8 bit replace their Linears too
};

// In definition order. Empty for models that are text alone.
std::vector<SkippedPart> skipped_parts(const OpenedModel& model);

}  // namespace berth::engine
