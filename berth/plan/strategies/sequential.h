// plan/strategies/sequential.h — the strategy that fills devices in machine order.
#pragma once

#include <optional>
#include <vector>

#include "berth/plan/strategy.h"

namespace berth::plan {

// `pins`: per unit the machine device it must live on, if any.
Result<Plan> plan_sequential(const PlanRequest& request, const std::vector<std::optional<size_t>>& pins);

}  // namespace berth::plan
