// load/gguf_view.h — GGUF tensors that can be used where the file has them, though they are not quite planes: Q8_0 in
// its blocks, llama's q and k with the rows of their heads interleaved, and tables of which rows are gathered in any
// blocks.
//
// A pure function of recipe and header; who maps the file is load_weights. Start reading at: gguf_view.
#pragma once

#include <cstdint>
#include <optional>

#include "berth/arch/tensor_recipe.h"
#include "berth/format/checkpoint.h"
#include "berth/load/file_tensor.h"
#include "berth/sizing/storage.h"

namespace berth::load {

struct GgufView {
  FileTensor::Place at;
  bool in_blocks = false;  // as quant::PackedMatrix has them
  int32_t interleaved_rows = 0;
};

// Nothing where the tensor is anything else, or its bytes are not what the recipe says. `rows_only`: rows are decoded
// (gathered) and never multiplied.
std::optional<GgufView> gguf_view(const format::Checkpoint& checkpoint, const arch::TensorSpec& tensor,
                                  const sizing::TensorStorage& storage, bool rows_only);

}  // namespace berth::load
