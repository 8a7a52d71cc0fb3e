// format/tensor_entry.h — one tensor as a checkpoint's header lists it: name, type, shape and where its bytes are.
#pragma once

#include <cstdint>
#include <string>

#include "berth/tensor/dtype.h"
#include "berth/tensor/shape.h"

namespace berth::format {

// Checked when the header was read: size_bytes is what dtype and shape say, and [offset, offset + size_bytes) lies
// inside the file. Shapes are row-major, outermost first, also for GGUF ([out, in]).
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint32_t file = 0;    // index into Checkpoint::files()
  uint64_t offset = 0;  // from the beginning of that file
  uint64_t size_bytes = 0;
};

}  // namespace berth::format
