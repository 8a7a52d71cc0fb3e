// load/weight_store.h — the weights of a model where its plan put them, and how units get at them.
//
// One arena allocation per tensor on the device that stores it; aliases (tied heads) share. What the cpu stores and the
// checkpoint has in the very form is not copied: its planes are in mappings of the files, counted in the arena all the
// same. What computes elsewhere than it is stored goes through a WeightStream (weight_stream.h).
//
// Non-goals: reading files (load_weights.h). Start reading at: WeightStore.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/base/file_mapping.h"
#include "berth/device/device.h"
#include "berth/load/file_tensor.h"
#include "berth/quant/packed.h"
#include "berth/sizing/storage.h"

namespace berth::load {

class UnseenWeights;

// One tensor as held. `matrix` is valid while the store lives; vectors are fp32 rows of an f32 matrix. On the disk it
// has format and shape but no planes.
struct HeldTensor {
  quant::PackedMatrix matrix;
  device::Device* device = nullptr;  // null: on the disk
  const FileTensor* file = nullptr;  // there
  int32_t index = -1;                // into spec.tensors; of an alias, its target's
  bool bank = false;                 // of experts: used by rows, never as a whole
  const float* as_vector() const { return matrix.plane<float>(quant::Plane::kCodes); }
};

class WeightStore {
 public:
  WeightStore();
  WeightStore(WeightStore&&) noexcept;
  WeightStore& operator=(WeightStore&&) noexcept;
  ~WeightStore();

  // The tensor with this role and layer (-1: the model), aliases resolved; null where the model has none.
  const HeldTensor* find(arch::Role role, int32_t layer) const;
  const HeldTensor& tensor(int32_t index) const { return tensors_[static_cast<size_t>(index)]; }
  // Bytes of images in the offload folder: what the plan counts on the disk.
  uint64_t offloaded_bytes() const { return offloaded_bytes_; }
  // Of the weights on the cpu, those that are used from a mapping of their file.
  uint64_t mapped_bytes() const { return mapped_bytes_; }
  // Whether mapped files still are what was loaded: to be asked after computing, before results are used.
  Status check_mapped() const;
  // What has yet to be looked through for NaN (LoadRequest::look_while_used), before results are used; null: nothing.
  UnseenWeights* unseen() const;

 private:
  friend class Loader;
  std::vector<HeldTensor> tensors_;      // one per spec.tensors
  std::vector<device::Buffer> buffers_;  // owners
  std::vector<std::unique_ptr<FileTensor>> files_;
  uint64_t offloaded_bytes_ = 0;
  std::vector<std::unique_ptr<FileMapping>> mappings_;
  std::vector<std::unique_ptr<float[]>> numbers_;  // planes of mapped tensors that are no bytes of a file
  uint64_t mapped_bytes_ = 0;
  std::unique_ptr<UnseenWeights> unseen_;
  std::map<std::pair<arch::Role, int32_t>, int32_t> index_;
};

}  // namespace berth::load
