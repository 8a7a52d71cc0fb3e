// load/load_weights.h — carries out a plan: every tensor from the checkpoint into its device's arena, quantized on the
// way.
//
// One pass, in parallel: a tensor's rows are produced in chunks of a few MiB as its recipe says, converted, and written
// where they will stay. Host memory beyond the arenas is bounded by kMaxStagingBytes whatever the model's size. What
// the cpu keeps as the file has it is not copied but used from a mapping of the file (map_files): looked through once
// for NaN, which also brings it into memory, or while it is first used (look_while_used). There is never a mapping of a
// tensor and a copy of it. What is quantized is read through such mappings too (fill_matrix.h); cold files are brought
// ahead (read_ahead.h).
//
// Start reading at: load_weights.
#pragma once

#include <string>

#include "berth/base/log.h"
#include "berth/base/thread_pool.h"
#include "berth/format/checkpoint.h"
#include "berth/load/weight_store.h"
#include "berth/plan/plan.h"
#include "berth/sizing/units.h"

namespace berth::load {

inline constexpr uint64_t kMaxStagingBytes = uint64_t{256} << 20;

struct LoadRequest {
  const format::Checkpoint* checkpoint = nullptr;
  const arch::ModelSpec* spec = nullptr;
  const std::vector<sizing::TensorStorage>* storage = nullptr;
  const sizing::UnitTable* units = nullptr;
  const plan::Plan* plan = nullptr;
  device::DeviceSet* devices = nullptr;
  ThreadPool* pool = nullptr;
  // What floats are rounded to before they are quantized (numerics of the result depend on it): the model's dtype.
  DType quantize_from = DType::kBF16;
  std::string offload_folder;  // "" = none
  // Whether weights on the cpu may be used from a mapping of the checkpoint, which then must outlive the store (and see
  // base/file_mapping.h about signals). Otherwise everything is copied; the same bits either way.
  bool map_files = false;
  // For a run that follows at once: mapped weights that its first pass multiplies are not looked through for NaN here
  // but then (unseen_weights.h), with the same error before any logits are given out. One Model may use the store then.
  bool look_while_used = false;
};

// Errors: kInvalidArgument (an offload folder is needed), kDoesNotFit (an arena), kIo (short read, file changed, disk
// full), kCorruptData (NaN weight or scale: tensor, row, column), kUnsupported (a device kind this build cannot run),
// kCancelled.
Result<WeightStore> load_weights(const LoadRequest& request, const Log& log);

}  // namespace berth::load
