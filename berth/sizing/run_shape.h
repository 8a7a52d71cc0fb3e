// sizing/run_shape.h — what a run asks for besides weights: context, batch, chunk, cache type. Sizes follow from it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "berth/tensor/dtype.h"

namespace berth::sizing {

struct RunShape {
  int64_t ctx_size = 4096;      // positions per sequence, prompt and answer together
  int64_t batch = 1;            // sequences
  int64_t prefill_chunk = 512;  // most rows of one forward pass
  int64_t logit_rows = 1;       // rows the head computes at once; more are done in turns. At least `batch`
  // Most rows of one forward pass whose logits are wanted, at least `batch`; 0: of all rows (evaluating). Once no later
  // unit writes a cache only these are computed.
  int64_t wanted_rows = 0;
  DType kv_dtype = DType::kBF16;
  bool int8_numerics = false;
  int32_t threads = 1;

  // Rows of one forward pass: a chunk of one prompt, or one token of each sequence.
  int64_t rows() const { return prefill_chunk > batch ? prefill_chunk : batch; }

  // Rows of the units after the last one that writes a cache.
  int64_t narrow_rows() const { return wanted_rows == 0 ? rows() : std::min(std::max(wanted_rows, batch), rows()); }

  bool operator==(const RunShape&) const = default;
};

}  // namespace berth::sizing
