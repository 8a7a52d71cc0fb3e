// engine/checkpoint_writer.h — writes a folder of safetensors as `save_pretrained` lays it out: shards by size, their
// names, the index; and a folder that appears whole or not at all.
//
//   TRY(auto staged, StagedFolder::create("out"));
//   TRY(const auto written, write_tensors(staged.path(), groups, {.max_shard_bytes = ...}, log));
//   TRY_STATUS(staged.commit());                         // only now there is an "out"
//
// Tensors go to shards in order of their names, numbers between dots by value; inside a file they follow each other by
// type (widest first), then by name. Memory: what the groups' makers hold, nothing else.
//
// Non-goals: what tensors mean (bnb_tensors.h, quantize.h, synth.h). Start reading at: write_tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/log.h"
#include "berth/base/result.h"
#include "berth/tensor/shape.h"

namespace berth::engine {

// Where a group's maker puts its tensors' bytes. Thread-safe.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  // Bytes of the group's tensor number `tensor`, from its byte `offset`; each byte once.
  virtual Status write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) = 0;
  // The whole of a late tensor.
  virtual Status write_late(size_t tensor, std::string bytes) = 0;
};

struct OutputTensor {
  TensorDesc desc;
  // One-dimensional bytes whose number is known only when they are made: desc announces the most there can be. Such
  // tensors stand at the end of their file.
  bool late = false;
  int64_t typical_bytes = 0;  // late: what counts for the size of shards
};

// Tensors that are made together: a weight and what its quantizer adds.
struct OutputGroup {
  std::vector<OutputTensor> tensors;
  uint64_t parameters = 0;  // as num_parameters() counts them
  std::function<Status(TensorSink& sink)> make;
};

struct WriteTensorsOptions {
  uint64_t max_shard_bytes = uint64_t{50} * 1000 * 1000 * 1000;
  bool sync = true;  // wait for the disk before a file takes its name
};

struct WrittenTensors {
  std::vector<std::string> files;  // names in the folder: shards, then the index where there is more than one
  uint64_t tensors = 0, tensor_bytes = 0, file_bytes = 0, parameters = 0;
};

// Writes model.safetensors, or model-0000I-of-0000N.safetensors and model.safetensors.index.json, into `folder`.
// Errors: kIo (a full disk says so before the first byte), kInvalidArgument (two tensors of a name), kCancelled, and
// what makers return.
Result<WrittenTensors> write_tensors(const std::string& folder, const std::vector<OutputGroup>& groups,
                                     const WriteTensorsOptions& options, const Log& log);
// The same into one file of this name.
Result<WrittenTensors> write_tensors_file(const std::string& path, const std::vector<OutputGroup>& groups,
                                          const WriteTensorsOptions& options, const Log& log);

// Which tensors go into which shard: `sizes[i]` bytes each, in this order (huggingface_hub's rule: a tensor larger than
// the limit has a shard of its own, another that would not fit begins the next).
std::vector<std::vector<size_t>> split_into_shards(std::span<const uint64_t> sizes, uint64_t max_shard_bytes);

// Whether name `a` comes before `b` where runs of digits between dots count by their value ("layers.2" < "layers.10").
bool natural_less(std::string_view a, std::string_view b);

// A folder that is filled under another name (NAME.tmp-PID beside it) and renamed at the end; without commit() nothing is left.
class StagedFolder {
 public:
  // Errors: kInvalidArgument where `target` exists and is not an empty folder, kNotFound where its parent is missing,
  // kIo.
  static Result<StagedFolder> create(const std::string& target);
  StagedFolder(StagedFolder&& other) noexcept;
  StagedFolder& operator=(StagedFolder&& other) noexcept;
  ~StagedFolder();
  const std::string& path() const { return path_; }
  Status commit();

 private:
  StagedFolder() = default;
  std::string target_, path_;
};

}  // namespace berth::engine
