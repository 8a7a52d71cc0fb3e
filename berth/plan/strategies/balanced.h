// plan/strategies/balanced.h — the placement on accelerators whose fullest device is least full, in proportion.
//
// Nothing leaves the accelerators (but tables that belong on the cpu, and what is pinned there). Whether a ratio can be
// kept is decided by how far runs reach: for each multiset of opened devices, the furthest unit; growing a run never
// frees memory and starting one later never takes more, so reaching furthest is optimal (planner.md 4).
#pragma once

#include <cstdint>
#include <optional>

#include "berth/plan/cost.h"

namespace berth::plan {

struct BalancedResult {
  std::optional<Placement> placement;  // nothing where not everything fits on the accelerators
  int64_t used = 0, budget = 1;        // of the fullest device: the ratio that is least
};

// `low_first`: first as few bytes as can be on the first accelerator, then balanced on the others.
BalancedResult place_balanced(const CostModel& model, bool low_first);

}  // namespace berth::plan
