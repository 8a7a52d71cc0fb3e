// sizing/run_shape.h — what a run asks for besides weights: context, batch, chunk, cache type. Sizes follow from it.
#pragma once

#include <cstdint>

#include "berth/tensor/dtype.h"

namespace berth::sizing {

struct RunShape {
  int64_t ctx_size = 4096;     // positions per sequence, prompt and answer together
  int64_t batch = 1;           // sequences
  int64_t prefill_chunk = 512; // most rows of one forward pass
  int64_t logit_rows = 1;      // rows the head computes at once; more are done in turns. At least `batch`
  DType kv_dtype = DType::kBF16;
  bool int8_numerics = false;
  int32_t threads = 1;

  // Rows of one forward pass: a chunk of one prompt, or one token of each sequence.
  int64_t rows() const { return prefill_chunk > batch ? prefill_chunk : batch; }

  bool operator==(const RunShape&) const = default;
};

}  // namespace berth::sizing
