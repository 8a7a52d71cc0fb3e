// plan/strategies/probe.h — whether a placement is found quickly, and what the asking took.
//
// For questions that are asked often (remedies): `finds_placement` of best.h with its effort counted, so that who asks
// can share one effort among all questions without looking at a clock.
#pragma once

#include <cstdint>

#include "berth/plan/cost.h"

namespace berth::plan {

struct Probe {
  bool found = false;
  int64_t effort = 0;  // all of it, in labels: transitions of bounds and nodes outside F count as what they take
};

Probe probe_placement(const CostModel& model, int64_t effort, int64_t scatter_nodes);

}  // namespace berth::plan
