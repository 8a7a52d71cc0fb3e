// plan/strategy.h — decides which device holds and computes each unit.
//
// A strategy is a pure function of its request: same input, same plan, no I/O, no clock, no logging. Every plan goes
// through assign() (assign.h), so no budget is ever exceeded.
//
// Non-goals: moving bytes (load/), measuring devices (device/probe.h), Transformers' own maps (strategies/compat_*.h).
// Start reading at: make_plan; strategies/sequential.cc is the shortest strategy, strategies/best.cc the default.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/base/result.h"
#include "berth/plan/assign.h"
#include "berth/plan/cost.h"
#include "berth/plan/device_map.h"
#include "berth/plan/strategies/best.h"

namespace berth::plan {

// --pin PATH=DEVICE: every unit with a module that the pattern matches (glob, or a path above or below it). As in a
// device map the deeper of two paths decides, and a path decides against a glob: layers=0 with layers.3=cpu, *.mlp=cpu
// with layers.3=0.
struct Pin {
  std::string pattern;
  std::string device;  // device-map name
};

// A change that a refusal may propose.
struct Change {
  enum class Kind { kLoadIn4Bit, kLoadIn8Bit, kQuantizeExperts, kKvDtype, kCtxSize, kBatch, kPrefillChunk };
  Kind kind = Kind::kCtxSize;
  int64_t value = 0;             // kCtxSize, kBatch, kPrefillChunk
  DType kv_dtype = DType::kF16;  // kKvDtype
};
struct ChangedUnits {
  sizing::UnitTable units;
  sizing::RunShape shape;
};
// The units of the same model under a change; nothing where the change is not possible or changes nothing.
using UnitsUnder = std::function<std::optional<ChangedUnits>(const Change&)>;

// What a refusal says beyond "no": nothing (quick), which device lacks how much, and what would mend it.
enum class Explain { kNothing, kShortage, kRemedies };

// Searches made before, by effort: for requests that differ in nothing but the strategy.
using SearchMemo = std::map<int64_t, BestResult>;

struct PlanRequest {
  AssignRequest assign;           // units, machine, budgets, shape; `strategy` and `stream` are filled in
  std::string strategy = "best";  // best, auto (= best), balanced, balanced_low_0, sequential
  std::vector<Pin> pins;
  TablePlacement tables = TablePlacement::kAuto;
  Target target = Target::kBerth;
  bool offload = true;       // false: nothing may leave the accelerators (--no-offload)
  bool stream = true;        // whether units may be streamed to where they compute
  int64_t effort = 1000000;  // labels (--plan-effort)
  // Left free on every accelerator, so that what is off it can be brought over for a prompt (--prefill-room).
  uint64_t prefill_room_bytes = 0;
  UnitsUnder with_change;  // for remedies; may be empty
  Explain explain = Explain::kRemedies;
  bool may_let_out = true;     // whether a remedy may be host memory or the disk where they are not used
  SearchMemo* memo = nullptr;  // where given: looked into, added to
};

std::span<const std::string_view> strategy_names();

// Errors: kInvalidArgument (unknown strategy with the nearest; a pin that matches no unit, or two that disagree; an
// unknown device), kDoesNotFit with details_json as in contract.md 4.
Result<Plan> make_plan(const PlanRequest& request);

// Whether `best` finds a plan: as make_plan answers, but quick where it does, since any plan will do. Errors: as there,
// but for kDoesNotFit.
Result<bool> plan_exists(const PlanRequest& request);

// A map of the user's own: every unit on the device that the most specific entry above it names. Errors:
// kInvalidArgument (entries that match nothing, units without a device, units whose modules the map separates),
// kDoesNotFit.
Result<Plan> plan_from_map(const PlanRequest& request, const DeviceMap& map);

// The budgets that a search may fill: without the room kept for prompts.
std::vector<machine::DeviceBudget> searched_budgets(const PlanRequest& request);

// Pins, tables, target and options as the rules of a cost model. Errors as make_plan's for pins.
Result<Rules> rules_of(const PlanRequest& request);

}  // namespace berth::plan
