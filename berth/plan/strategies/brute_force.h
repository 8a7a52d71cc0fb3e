// plan/strategies/brute_force.h — tests only: every placement of a small case, by trying all of them.
//
// Shares nothing with the search but the cost function (plan/cost.h).
#pragma once

#include <optional>

#include "berth/plan/cost.h"

namespace berth::plan {

struct BruteForceResult {
  std::optional<Cost> runs;  // best with one run per accelerator
  std::optional<Cost> any;   // best of all placements
  bool by_rule = false;      // the tables that prefer the cpu are there
  int64_t tried = 0;
};

// Follows the table rule where that leaves a placement.
BruteForceResult brute_force(const CostModel& model);

// Leaving out the cpu, is each accelerator visited at most once?
bool one_run_per_accelerator(const CostModel& model, const Placement& placement);

}  // namespace berth::plan
