// engine/bnb_tensors.h — a matrix quantized in memory, as the tensors that bitsandbytes and Transformers save for it:
// names, types, shapes, the quant_state text (specs/quantization.md 3.1, 3.2).
//
// Start reading at: bnb_group.
#pragma once

#include <functional>
#include <string>

#include "berth/engine/checkpoint_writer.h"
#include "berth/quant/packed.h"

namespace berth::engine {

struct BnbWeight {
  std::string name;  // of the weight's tensor: "model.layers.0.mlp.up_proj.weight"
  int64_t rows = 0, cols = 0;
  quant::StoredFormat format;        // nf4, fp4 or int8
  DType load_dtype = DType::kBF16;   // what was quantized: the quant_state's dtype
  DType quant_storage = DType::kU8;  // the type under which packed bytes are stored
};

// Fills the planes of the matrix it is given.
using FillPlanes = std::function<Status(const quant::MutablePackedMatrix& matrix)>;

// The group of tensors. Its maker allocates the packed matrix, calls `fill`, writes the planes and frees it. Errors:
// kInvalidArgument where quant_storage does not divide the packed bytes, or the shape is too large.
Result<OutputGroup> bnb_group(const BnbWeight& weight, FillPlanes fill);

}  // namespace berth::engine
