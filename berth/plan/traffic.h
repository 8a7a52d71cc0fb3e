// plan/traffic.h — what one decode step moves, over which way, for what: the bytes behind the access modes of a plan.
//
// Computed where stored, a unit's weights do not move: only activations do, where the next unit is elsewhere. Gathered
// tables send rows. Streamed units send their weights, of expert banks those of the experts chosen. The device layer
// counts the same ways (device::LinkTraffic); every byte that one step moves between memories is in both.
//
// Start reading at: decode_traffic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/plan/plan.h"
#include "berth/sizing/units.h"

namespace berth::plan {

struct WayTraffic {
  std::string from, to;  // device-map names
  std::string cargo;     // "activations", "rows", "weights"
  uint64_t bytes = 0;
  bool operator==(const WayTraffic&) const = default;
};

// One token of each of the plan's sequences; no sequence shares an expert with another. Sorted; ways that carry nothing
// are left out. `storage` is what `units` was made of.
std::vector<WayTraffic> decode_traffic(const arch::ModelSpec& spec, const std::vector<sizing::TensorStorage>& storage,
                                       const sizing::UnitTable& units, const Plan& plan);

}  // namespace berth::plan
