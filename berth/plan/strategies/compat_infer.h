// plan/strategies/compat_infer.h — infer_auto_device_map: the loop both libraries fill devices with, step by step (4).
//
// One loop for both; where they differ the code asks the model's library. Known defects are part of it: the substring
// test for ties, buffers lost when a module is split, the stale "largest layer". Maps equal the libraries' on every
// golden; do not mend it here, the native strategies are next door.
//
// Start reading at: infer_device_map.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "berth/plan/device_map.h"
#include "berth/plan/strategies/compat_memory.h"
#include "berth/plan/strategies/compat_model.h"

namespace berth::plan::compat {

struct InferOptions {
  bool offload_buffers = false;
  bool fallback_allocation = false;  // accelerate only
  Revision revision =
      Revision::kCurrent;  // Transformers only; before #46625 it split and counted ties as accelerate does
  // Transformers' _no_placement_params: parameter paths relative to a block. Not empty: cleaning is off too.
  std::vector<std::string> no_placement;
};

// What the libraries say while planning, as facts.
struct LogFact {
  enum class Kind {
    kEmptyDevices,      // "no modules could be assigned to the following devices": what each would have needed
    kOffloadedBuffers,  // buffers of offloaded layers fit on no accelerator: their bytes
    kTiedSplit,         // Transformers: one tied group lies on several devices
  };
  Kind kind;
  Number bytes;                                         // kOffloadedBuffers
  std::vector<std::pair<DeviceName, Number>> required;  // kEmptyDevices, in fill order
};

struct Inferred {
  DeviceMap map;
  std::vector<LogFact> log;  // in the order of their kinds' names
};

Outcome<Inferred> infer_device_map(const Model& model, const Budgets& budgets, const InferOptions& options = {});

}  // namespace berth::plan::compat
