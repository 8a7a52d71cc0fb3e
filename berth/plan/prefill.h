// plan/prefill.h — how each unit is used while a prompt is read, and how fast that is.
//
// Memories are fixed by then. A unit that computes on the cpu is, for a whole chunk, often faster brought to the
// accelerator that ran last before it (the first one, where none did): arithmetic counts then, not one read. It is, if
// it keeps no KV cache, and if staging and workspace fit in what is free there (planner.md 2).
//
// model/resolve.cc follows the same rule when it runs such a plan.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/plan/cost.h"
#include "berth/plan/plan.h"
#include "berth/sizing/units.h"

namespace berth::plan {

struct PrefillPlan {
  std::vector<Access> access;    // by chain unit
  std::vector<int> computed_on;  // by chain unit: where a chunk computes it
  int64_t time_ps = 0;           // of one chunk
};

// `use` (by machine device) takes the staging and workspace that this adds. `stream`: whether anything may be brought
// over.
PrefillPlan plan_prefill(const CostModel& model, const sizing::UnitTable& units, const Placement& placement,
                         bool stream, std::vector<DeviceUse>& use);

}  // namespace berth::plan
