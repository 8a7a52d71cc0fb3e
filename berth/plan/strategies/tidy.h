// plan/strategies/tidy.h — of placements that cost the same, the one people can read.
#pragma once

#include "berth/plan/cost.h"

namespace berth::plan {

// Among units of one accelerator's run that are alike in every number and have that accelerator on both sides, those
// that are away come first in the chain. Costs and fits exactly as before, or is what was handed in.
Placement tidied(const CostModel& model, const Placement& placement);

}  // namespace berth::plan
