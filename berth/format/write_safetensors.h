// format/write_safetensors.h — writes one .safetensors file piece by piece: header first, then tensor bytes in any
// order.
//
//   TRY(auto writer, SafetensorsWriter::create(path, descs, metadata));
//   TRY_STATUS(writer.write(0, 0, bytes));          // tensor 0 from its byte 0
//   TRY_STATUS(writer.finish());                    // every byte was written: sync, then rename over PATH
//
// A size that is known only later (a text that is made on the way) is announced as its largest and cut by shrink().
//
// Bytes go to PATH.tmp-PID; without finish() nothing is left behind and PATH is as it was. Tensors follow each other in
// the order given, without holes (the format allows none); the header is padded with spaces so that the data begins at
// a multiple of `alignment`. For aligned tensors give wide types first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/base/result.h"
#include "berth/tensor/shape.h"

namespace berth::format {

struct WriteOptions {
  uint64_t alignment = 8;  // of the data section; a power of two
  bool sync = true;        // wait for the disk before the rename
};

class SafetensorsWriter {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  // Errors: kInvalidArgument (a type that safetensors lacks, an empty or doubled name, a shape whose bytes are not
  // size_bytes), kIo. A desc's size_bytes of 0 is filled in from type and shape.
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<TensorDesc> tensors,
                                          const Metadata& metadata = {}, const WriteOptions& options = {});
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept;
  ~SafetensorsWriter();

  std::span<const TensorDesc> tensors() const { return tensors_; }
  uint64_t file_bytes() const { return file_bytes_; }

  // Writes `bytes` at `offset` of tensor `index`. Each byte once; finish() counts them. Thread-safe.
  Status write(size_t index, uint64_t offset, std::span<const std::byte> bytes);
  // Makes tensor `index` [elements], fewer than announced, before anything of it or behind it was written; what follows
  // moves up. The header keeps the room it had, filled with spaces. Not thread-safe. Errors: kInternal.
  Status shrink(size_t index, int64_t elements);
  // Errors: kInternal where a tensor's bytes were not all written; kIo.
  Status finish();

 private:
  SafetensorsWriter() = default;
  void discard();

  std::string path_, temporary_;
  int fd_ = -1;
  WriteOptions options_;
  std::vector<TensorDesc> tensors_;
  void place_tensors();  // offsets_ and file_bytes_ from tensors_

  Metadata metadata_;
  std::vector<uint64_t> offsets_;                      // per tensor: where it begins in the file
  std::unique_ptr<std::atomic<uint64_t>[]> written_;  // per tensor: bytes so far
  uint64_t header_bytes_ = 0, file_bytes_ = 0;
  bool shrunk_ = false;
};

// The header with its length field and padding, for `tensors` in this order. Errors as create().
Result<std::string> safetensors_header(std::vector<TensorDesc>& tensors, const SafetensorsWriter::Metadata& metadata,
                                       uint64_t alignment = 8);

// A whole file at once: `data[i]` are the bytes of `tensors[i]`.
Status write_safetensors(const std::string& path, std::vector<TensorDesc> tensors,
                         std::span<const std::span<const std::byte>> data,
                         const SafetensorsWriter::Metadata& metadata = {}, const WriteOptions& options = {});

}  // namespace berth::format
