// plan/plan_json.h — the PLAN document (contract.md 4): a plan with what it was made for, written and read back.
//
// Each field is named once, in a list that the writer and the reader both follow (plan_json.cc). Readers ignore keys
// they do not know; a missing or ill-typed key is an error that names it; another major format is an error of its own.
//
// Start reading at: PlanDocument.
#pragma once

#include <string>
#include <string_view>

#include "berth/base/json.h"
#include "berth/base/result.h"
#include "berth/machine/machine.h"
#include "berth/plan/assign.h"
#include "berth/plan/device_map.h"
#include "berth/plan/plan.h"

namespace berth::plan {

inline constexpr std::string_view kPlanFormat = "berth-plan-1";

struct PlanDocument {
  std::string berth;           // version that made it
  std::string options = "{}";  // JSON object text: what was asked for, so that --replan can ask again
  machine::Machine machine;
  std::string checkpoint;  // fingerprint of names, dtypes, shapes and offsets
  struct Model {
    std::string name, architecture, dtype, quantization;
    uint64_t parameters = 0;
    bool operator==(const Model&) const = default;
  } model;
  std::string compat;         // library whose planner was followed; empty: none
  bool fits = true;           // false: a row of `compare` whose map does not work on this machine
  std::string budgets;        // JSON object text; empty: those of the plan's devices
  std::string error;          // JSON object text: why a library's map does not work here; empty: it does
  std::string library_error;  // JSON object text: the library refuses its own map; empty: it does not
  DeviceMap device_map;
  Plan plan;
  // Sizes and costs of the units (in the plan's order), so that a plan can be explained without its checkpoint; empty
  // where a document has none.
  sizing::UnitTable sizes;
};

// What planning needs, from a document: the request points into this. Errors: kInvalidArgument where it has no sizes.
struct RecordedRequest {
  sizing::UnitTable units;
  machine::Machine machine;
  std::vector<machine::DeviceBudget> budgets;
  AssignRequest request() const { return {&units, &machine, budgets, shape, strategy}; }
  sizing::RunShape shape;
  std::string strategy;
};
Result<RecordedRequest> recorded_request(const PlanDocument& document);

// Where things are stored. With a tree: collapsed over it, covering every parameter and buffer (those of no unit go
// with the tensors before them). Without: one entry per unit path.
DeviceMap device_map_of(const Plan& plan, const arch::ModuleTree* tree);

void write_plan(const PlanDocument& document, JsonWriter& out);
// The same without `units` and `sizes`: a row of `compare`.
void write_plan_summary(const PlanDocument& document, JsonWriter& out);
// Its members alone, into an open object.
void write_plan_members(const PlanDocument& document, JsonWriter& out);
std::string plan_json(const PlanDocument& document, int indent = 2);

// Errors: kInvalidArgument naming the place ("units[3].device"), what was expected and what was found.
Result<PlanDocument> read_plan(JsonView object);
Result<PlanDocument> parse_plan(std::string_view text);

// A recorded plan for the model and machine at hand: the same units on the devices of the same names, summed up anew.
// Errors: kInvalidArgument naming the first difference (another checkpoint, unit or device; a context that is not the
// recorded one), kDoesNotFit where the machine at hand has less memory.
Result<Plan> adopt_plan(const PlanDocument& document, const AssignRequest& request, std::string_view checkpoint);

}  // namespace berth::plan
