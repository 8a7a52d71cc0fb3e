// plan/strategies/scatter.h — does any placement fit at all, accelerators visited as often as need be?
//
// Asked only when no plan with one run per accelerator fits. Depth first over units and devices; partial placements
// that take the same of every device are tried once. Non-goals: a good plan; the first one found is used.
#pragma once

#include <cstdint>
#include <optional>

#include "berth/plan/cost.h"

namespace berth::plan {

struct ScatterResult {
  std::optional<Placement> placement;
  bool exhausted = false;  // every placement was tried (or shown hopeless): none fits
  int64_t nodes = 0;
};

// `forced_tables`: memory of each table, -1 where free.
ScatterResult search_scatter(const CostModel& model, const std::vector<int16_t>& forced_tables, int64_t most_nodes);

}  // namespace berth::plan
