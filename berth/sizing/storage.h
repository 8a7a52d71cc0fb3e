// sizing/storage.h — in which format every tensor of a model is held in memory, and how many bytes that is.
//
// A storage format is a property of the tensor and never of the place (numerics.md 4). It follows from what the
// checkpoint stores and from what was asked for (dtype, 4 or 8 bit); which modules 4 and 8 bit replace is decided
// before (arch/quantize_rules.h) and handed in.
//
// Start reading at: choose_storage.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/quant/packed.h"

namespace berth::sizing {

struct StorageRequest {
  std::optional<DType> dtype;                      // --dtype: kF32, kF16 or kBF16; none: as the checkpoint has it
  std::optional<quant::StoredFormat> quantize_to;  // nf4, fp4 or int8: made on load for the modules below
  std::function<bool(const arch::TensorSpec&)> quantizes;  // whether this tensor is replaced; unset: none is
  std::function<bool(const arch::TensorSpec&)> keeps_f32;  // fp32 whatever `dtype` says (routers...); unset: none is
};

struct TensorStorage {
  quant::PackedLayout layout;      // vectors: f32 [1, cols]; an alias: the layout of its target
  uint64_t bytes = 0;              // layout.total_bytes; 0 for an alias
  bool quantized_on_load = false;  // the file has it wider
  bool from_block_format = false;  // ... and had to be dequantized first (GGUF block formats): said to the user
  bool in_file = false;            // on the disk it can stay in the checkpoint: planes there are as in memory
  bool counted_only = false;  // AWQ, GPTQ, NVFP4...: bytes as in the file, no layout; ModelSpec::unsupported says so
};

// One entry per spec.tensors. Errors: kUnsupported naming tensor and type where a stored type cannot run (Q2_K...),
// kCorruptData where segments of one matrix have different types or a shape does not fit its format.
Result<std::vector<TensorStorage>> choose_storage(const arch::ModelSpec& spec, const StorageRequest& request);

}  // namespace berth::sizing
