// plan/strategies/compat_accelerate.h — the map that accelerate 1.15.0 gives: get_balanced_memory and
// infer_auto_device_map as load_checkpoint_and_dispatch calls them.
//
// Start reading at: plan_as_accelerate.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "berth/arch/module.h"
#include "berth/base/result.h"
#include "berth/plan/strategies/compat_result.h"

namespace berth::plan::compat {

struct AccelerateRequest {
  Mode mode = Mode::kBalanced;
  std::optional<DeviceMap> map;  // a dict as device_map: nothing is planned, `mode` is not looked at
  // Nothing: max_memory=None, from the machine's free bytes below.
  std::optional<std::vector<MemoryEntry>> max_memory;
  std::vector<uint64_t> free_bytes;
  uint64_t available_ram = 0;

  std::optional<std::vector<std::string>> no_split;          // no_split_module_classes; nothing: the tree's
  bool built_as_f32 = false;                                 // the tree's types as built in float32
  std::optional<DType> dtype;                                // what floating tensors are converted to while loading
  std::map<std::string, DType, std::less<>> special_dtypes;  // by tensor name; balancing does not see them, as there
  bool fallback_allocation = false;
  bool offload_buffers = false;
};

// Errors (of Berth, not of the library): kUnsupported for trees beyond Model::build's limits.
Result<CompatResult> plan_as_accelerate(const arch::ModuleTree& tree, const AccelerateRequest& request);

}  // namespace berth::plan::compat
