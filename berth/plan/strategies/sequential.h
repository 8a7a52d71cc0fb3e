// plan/strategies/sequential.h — fills devices in machine order, each as long as its run fits; then the cpu, then the
// disk.
#pragma once

#include <optional>

#include "berth/plan/cost.h"

namespace berth::plan {

// Nothing where filling in order gets stuck, although another order might fit.
std::optional<Placement> place_sequential(const CostModel& model);

}  // namespace berth::plan
