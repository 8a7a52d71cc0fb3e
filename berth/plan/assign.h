// plan/assign.h — from "this unit lives there and computes there" to a Plan: sums, limits, estimates. Every strategy
// and every map of the user's own ends here, so every plan's arithmetic is that of cost.h.
//
// Memory of a device = weights stored + KV of units computed there + largest workspace of units computed (tables:
// gathered) there + staging for streamed units (2 grains) + overhead + margin <= budget (planner.md 2).
//
// Start reading at: assign.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "berth/base/result.h"
#include "berth/machine/budget.h"
#include "berth/machine/machine.h"
#include "berth/plan/cost.h"
#include "berth/plan/plan.h"
#include "berth/sizing/units.h"

namespace berth::plan {

// For one unit, indices into machine.devices. A table's `compute` is its `memory`: rows are gathered there.
struct Assignment {
  size_t memory = 0;
  size_t compute = 0;
  Access access = Access::kCompute;
  std::string reason;
};

struct AssignRequest {
  const sizing::UnitTable* units = nullptr;
  const machine::Machine* machine = nullptr;
  std::span<const machine::DeviceBudget> budgets;  // one per machine device
  sizing::RunShape shape;
  std::string strategy;
  // For prefill, whether what computes on the cpu may be brought to an accelerator where that is faster.
  bool stream = false;
  Target target = Target::kBerth;  // what runs it: decides what tables off the cards cost
};

// Bytes that each device holds under an assignment, budgets aside.
std::vector<DeviceUse> device_use(const AssignRequest& request, std::span<const Assignment> assignments);

// Errors: kDoesNotFit naming the first device over its budget, by how much, and its largest unit; details_json as in
// contract.md 4 (device, module, needed_bytes, available_bytes, missing_bytes, proof "unit" or "volume").
Result<Plan> assign(const AssignRequest& request, std::span<const Assignment> assignments);

}  // namespace berth::plan
