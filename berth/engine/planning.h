// engine/planning.h — options to a plan: the machine, budgets, units, and a strategy or the user's map.
//
// Nothing here reads a weight or needs a device. Start reading at: plan_model.
#pragma once

#include <string>
#include <vector>

#include "berth/engine/opened_model.h"
#include "berth/machine/budget.h"
#include "berth/machine/machine.h"
#include "berth/plan/device_map.h"
#include "berth/plan/plan.h"
#include "berth/plan/strategy.h"
#include "berth/sizing/units.h"

namespace berth::engine {

// What planning needs besides the model; made once, used by every strategy that is tried.
struct PlanInputs {
  machine::Machine machine;
  machine::Budgets budgets;
  sizing::RunShape shape;
  sizing::UnitTable units;
  std::vector<std::string> notes;
};

struct PlannedModel {
  PlanInputs inputs;
  plan::Plan plan;
};

// Whether accelerators that only --max-memory names may be made up: planning yes; running emulates them as well.
// Errors: kInvalidArgument naming the option.
Result<PlanInputs> plan_inputs(const OpenedModel& model, const Options& options);

// Where a prompt is read slowly because nothing that is off the accelerators can be brought to them, says so in the
// plan's warnings, with what --prefill-room would change (planned before it is said).
Status note_prefill(const OpenedModel& model, const Options& options, PlannedModel& planned);

// With options.plan, the recorded plan, if it is for this checkpoint and machine (give the options that with_recorded_options
// made). Errors: kDoesNotFit, kInvalidArgument, kNotAvailable ("unsupported": options of a later version).
Result<PlannedModel> plan_model(const OpenedModel& model, const Options& options);

// The user's map where --device-map is one: inline JSON, a JSON file, or one device for everything.
Result<std::optional<plan::DeviceMap>> custom_map(const Options& options, const machine::Machine& machine);

// Context, batch, chunk and cache type of these options. Errors: kInvalidArgument naming the option.
Result<sizing::RunShape> run_shape(const OpenedModel& model, const Options& options);

// The machine of --machine, --emulate, or what is found; without caps applied.
Result<machine::Machine> find_machine(const Options& options, std::vector<std::string>& notes);

// The instruction set of --isa, available here.
Result<Isa> chosen_isa(const Options& options);
int chosen_threads(const Options& options);

}  // namespace berth::engine
