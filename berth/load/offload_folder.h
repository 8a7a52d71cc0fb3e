// load/offload_folder.h — tensors that must live on the disk in another form than their checkpoint has: made once, kept
// in --offload-folder, used again.
//
//   FOLDER/KEY/NAME.weights = | header 4096 bytes: a JSON object, then zeros | image: the packed matrix as in memory |
//
// KEY stands for everything the bytes follow from: the checkpoint's tensors, its files' sizes and times, what is
// quantized from. The header says tensor, format, shape, and hashes of itself and of the image (64 pages of it, so that
// opening costs nothing). What does not agree is made anew.
//
// A file is written aside, at its full size from the start (a full disk is an error before any work), synced, then
// renamed: nothing half-written ever has the name. What a killed process left is removed.
//
// Start reading at: OffloadFolder::write.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "berth/arch/tensor_recipe.h"
#include "berth/base/file.h"
#include "berth/base/function_ref.h"
#include "berth/base/log.h"
#include "berth/format/checkpoint.h"
#include "berth/quant/packed.h"

namespace berth::load {

class OffloadFolder {
 public:
  static constexpr uint64_t kHeaderBytes = 4096;

  // Makes the folder where it is missing. Errors: kIo, kInvalidArgument (FOLDER is a file).
  static Result<OffloadFolder> open(const std::string& folder, const format::Checkpoint& checkpoint,
                                    DType quantize_from);

  // The tensor's file, its image at kHeaderBytes, if it is there and whole. One that is not is named in a warning.
  std::optional<File> find(const arch::TensorSpec& tensor, const quant::PackedLayout& layout, const Log& log) const;
  // Makes it: `fill` writes layout.total_bytes at `image` (64-byte aligned, zeros so far). Errors: kIo (disk full: how
  // much was needed), and fill's own; nothing is left behind then.
  Result<File> write(const arch::TensorSpec& tensor, const quant::PackedLayout& layout,
                     FunctionRef<Status(std::byte* image)> fill) const;

  const std::string& folder() const { return folder_; }  // FOLDER/KEY

 private:
  std::string path_of(const arch::TensorSpec& tensor, const quant::PackedLayout& layout) const;
  std::string header_of(const arch::TensorSpec& tensor, const quant::PackedLayout& layout,
                        const std::string& image_hash) const;
  std::string folder_, key_;
};

}  // namespace berth::load
