// plan/reason.h — why a unit is where it is, in one clause.
#pragma once

#include <string>
#include <vector>

#include "berth/plan/assign.h"
#include "berth/plan/cost.h"

namespace berth::plan {

// The placement as assignments, each with its reason. Names of devices are device-map names.
std::vector<Assignment> with_reasons(const AssignRequest& request, const CostModel& model, const Rules& rules,
                                     const Placement& placement);

}  // namespace berth::plan
