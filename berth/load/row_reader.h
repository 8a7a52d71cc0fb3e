// load/row_reader.h — a recipe carried out: any run of a tensor's rows, gathered from the checkpoint's tensors.
//
// Rows come out as the file stores them, back to back, so that packing sees one simple thing whatever the recipe did:
// slices of fused tensors, stacked experts, strided rows (un-permuted heads), transposed matrices.
//
// Thread-safe. Non-goals: what the bytes mean (quant/), where they go (load_weights.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "berth/arch/tensor_recipe.h"
#include "berth/format/checkpoint.h"

namespace berth::load {

class RowReader {
 public:
  // Errors: kCorruptData where a source is missing or its size is not what the recipe says (tensor, expected, found).
  static Result<RowReader> create(const format::Checkpoint& checkpoint, const arch::TensorSpec& tensor);

  // The element type of the rows: the sources' own. Sources of different float types have mixed() true: their rows are
  // widened to fp32 on the way.
  DType dtype() const { return dtype_; }
  uint64_t row_bytes() const { return row_bytes_; }
  int64_t rows() const { return rows_; }

  // Whether rows are in the checkpoint as read() gives them, if perhaps in another order.
  bool lie_in_file() const;
  // The longest run of rows [row, row + count), up to `end`, that lie back to back at `offset` of a file.
  // lie_in_file() only.
  struct Run {
    const File* file = nullptr;
    uint64_t offset = 0;
    int64_t count = 0;
  };
  Run run_at(int64_t row, int64_t end) const;

  // Fills `out` (row_count * row_bytes()) with rows [row_begin, row_begin + row_count). `scratch` is grown as needed.
  Status read(int64_t row_begin, int64_t row_count, std::span<std::byte> out, std::vector<std::byte>& scratch) const;

 private:
  struct Part {  // rows [first, first + count) of the tensor
    int64_t first = 0, count = 0;
    size_t source = 0;
    int64_t begin = 0, stride = 1;  // rows of the source
  };
  struct Input {
    const format::TensorEntry* entry = nullptr;
    uint64_t base = 0;       // of the sliced matrix, from the tensor's first byte
    uint64_t row_bytes = 0;  // in the file; of an un-transposed row
    int64_t rows = 0, cols = 0;
    bool transposed = false;
    DType dtype = DType::kF32;
  };
  // That which holds a row.
  std::vector<Part>::const_iterator part_of(int64_t row) const;
  Status read_part(const Input& input, int64_t begin, int64_t count, int64_t stride, std::span<std::byte> out,
                   std::vector<std::byte>& scratch) const;

  const format::Checkpoint* checkpoint_ = nullptr;
  std::vector<Input> inputs_;
  std::vector<Part> parts_;
  DType dtype_ = DType::kF32;
  uint64_t row_bytes_ = 0;
  int64_t rows_ = 0;
};

// Whole rows of a floating or block type, decoded to fp32.
Status decode_rows(DType dtype, std::span<const std::byte> rows, std::span<float> out);

}  // namespace berth::load
