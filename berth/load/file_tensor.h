// load/file_tensor.h — a tensor that stays in a file and is read from there for each use: the disk tier.
//
// A matrix, bank or table is in the file exactly as it would be in memory: runs of the checkpoint's bytes where its
// storage allows that (sizing: TensorStorage::in_file), else an image in the offload folder (offload_folder.h). Vectors
// are small and are made from the checkpoint each time, as a load would. Weights in the checkpoint are not looked at
// when loading: what is NaN there shows in the logits, which fail.
//
// Every read ends with a look at the file: one that was written to, cut or replaced since it was opened is an error.
//
// Thread-safe. The checkpoint must outlive this. Start reading at: FileTensor::read.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/arch/tensor_recipe.h"
#include "berth/base/file.h"
#include "berth/format/checkpoint.h"
#include "berth/load/row_reader.h"
#include "berth/quant/packed.h"

namespace berth::load {

class FileTensor {
 public:
  // Bytes of the checkpoint's own files. Errors: kCorruptData where sizes are not what the recipe says.
  static Result<FileTensor> in_checkpoint(const format::Checkpoint& checkpoint, const arch::TensorSpec& tensor,
                                          const quant::PackedLayout& layout);
  // An image of `layout` at `offset` of a file.
  static FileTensor in_image(File file, uint64_t offset, std::string name, const quant::PackedLayout& layout);

  // Bytes [begin, begin + out.size()) of a plane; as many as the layout has (a CHECK). Not for vectors.
  // Errors: kIo (short read, file changed), with the tensor's name.
  Status read(quant::Plane plane, uint64_t begin, std::span<std::byte> out) const;
  // All elements of a vector.
  Status read_vector(std::span<float> out) const;
  bool is_vector() const { return vector_.has_value(); }

  // Where a plane is, if it lies in one piece; nothing otherwise, and for the nested offset, which is a number of the
  // checkpoint's texts.
  struct Place {
    const File* file = nullptr;
    uint64_t offset = 0, bytes = 0;
  };
  std::optional<Place> place(quant::Plane plane) const;
  std::optional<float> nested_offset() const {
    return has_nested_offset_ ? std::optional(nested_offset_) : std::nullopt;
  }

 private:
  struct Extent {  // bytes [begin, begin + bytes) of the plane are at `offset` of the file
    const File* file = nullptr;
    uint64_t offset = 0, begin = 0, bytes = 0;
  };
  Status add(const format::Checkpoint& checkpoint, quant::Plane plane, const std::string& name, uint64_t bytes);
  Status add_rows(const format::Checkpoint& checkpoint, const arch::TensorSpec& tensor);

  std::string name_;
  std::array<std::vector<Extent>, quant::kPlaneCount> extents_;  // ascending
  std::shared_ptr<const File> image_;
  float nested_offset_ = 0;  // a number of the recipe, not in the file
  bool has_nested_offset_ = false;
  std::optional<RowReader> vector_;
  bool add_one_ = false;
  DType round_to_ = DType::kF32;
};

}  // namespace berth::load
