// plan/map_check.h — a device map that somebody wrote, held against a model and a machine before anything is loaded.
//
// Two views: Berth's (check_device_map: every mistake is an error that names the key, the nearest name and what to do;
// the result covers every tensor) and accelerate's own check (accelerate_check: what dispatch_model would say).
//
// Non-goals: whether the bytes fit and what a library would do with the map (map_faults.h).
// Start reading at: check_device_map.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "berth/arch/module.h"
#include "berth/base/result.h"
#include "berth/machine/machine.h"
#include "berth/plan/device_map.h"

namespace berth::plan {

struct CheckedMap {
  DeviceMap map;                   // keys are paths of the tree, devices are the machine's; covers every tensor
  std::vector<std::string> notes;  // what was completed or is worth knowing, in sentences
};

// Rules:
// * A key is "", a module, a parameter or a buffer. Anything else is an error with the nearest path. Where no key (or
//   only those with it) matches because of an adapter's "base_model.model." in front, or for want of it, the error says
//   how many match without (or with) it.
// * A device is an accelerator of the machine (0, "0", its id, "cuda" = 0, "cuda:1" = 1), "cpu" or "disk". A number the
//   machine lacks, "meta" and other texts are errors that name the key and the devices there are.
// * A parent and a child may both be keys: the child's entry decides about the child (a note says so where they
// differ).
// * A parameter or a buffer that checkpoints hold must be covered. A computed buffer (rotary tables) that no key covers
//   goes with the tensors next to it, and a note says where.
// Errors: kInvalidArgument with all problems of the map, the first few of each kind named.
Result<CheckedMap> check_device_map(const arch::ModuleTree& tree, const DeviceMap& map,
                                    const machine::Machine& machine);

// What accelerate's check_device_map says (docs/device_maps.md 1.3).
struct AccelerateCheck {
  std::vector<std::string> unknown_keys;  // not "" and no module path: one UserWarning lists them
  std::vector<std::string> uncovered;     // persistent tensors without a device: ValueError, if any
};
AccelerateCheck accelerate_check(const arch::ModuleTree& tree, const DeviceMap& map);

inline constexpr std::string_view kAdapterPrefix = "base_model.model.";

}  // namespace berth::plan
