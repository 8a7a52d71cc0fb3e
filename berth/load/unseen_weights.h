// load/unseen_weights.h — mapped weights that nobody has looked through for NaN yet: looked at while first used.
//
// A NaN weight is an error before anything is computed with it is given out. A load that is followed by a run at once
// need not read the file twice for that (load_weights.h, LoadRequest::look_while_used): an output of a product is NaN
// whenever a weight or scale of its row is (fma of a NaN is NaN, whatever x), so that finite outputs prove their rows.
// Whoever multiplies says which were (seen); whoever gives logits out has the rest looked through first (look). A
// matrix that the first pass does not use whole, or whose outputs are not finite, is read once more, as loading would.
//
// Used by one computing thread. Start reading at: UnseenWeights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "berth/base/file_mapping.h"
#include "berth/base/thread_pool.h"
#include "berth/load/fill_matrix.h"
#include "berth/quant/packed.h"

namespace berth::load {

// A matrix whose planes are where a file has them, or beside it.
struct MappedMatrix {
  const quant::PackedMatrix& matrix;
  const quant::PackedLayout& layout;
  std::span<const std::unique_ptr<FileMapping>> mappings;  // that its planes may be in
};

// Makes the pages of all its planes present and looks through them for NaN; but not, where that is `left` to the
// products, through codes and scales, each of which enters an output as it is (of a nested scale's map not every number
// does, and kernels widen fp8 as if there were none). Errors: kCorruptData (row and column).
Status bring_mapped(const MappedMatrix& m, bool left, ThreadPool& pool, std::vector<Staging>& staging);

// 32 elements of a mapped plane in the file.
uint64_t mapped_bytes_per_32(const quant::PackedMatrix& matrix, const quant::PlaneLayout& layout);

class UnseenWeights {
 public:
  // All rows of a matrix; `index`: into spec.tensors.
  void add(int32_t index, std::string name, const quant::PackedMatrix& matrix, const quant::PackedLayout& layout);
  bool empty() const { return tensors_.empty(); }
  size_t size() const { return tensors_.size(); }

  // Outputs [row_begin, row_begin + row_count) of a product with the tensor were finite.
  void seen(int32_t index, int64_t row_begin, int64_t row_count);
  // Looks through what is left, in the order of the tensors. Errors: kCorruptData as load_weights says it; that tensor
  // and those after it are still unseen then.
  Status look(ThreadPool& pool);

 private:
  struct Tensor {
    std::string name;
    quant::PackedMatrix matrix;
    quant::PackedLayout layout;
    std::vector<std::pair<int64_t, int64_t>> rows;  // unseen [begin, end), ascending
  };
  std::map<int32_t, Tensor> tensors_;
};

}  // namespace berth::load
