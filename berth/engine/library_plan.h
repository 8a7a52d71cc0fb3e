// engine/library_plan.h — `--compat transformers|accelerate`: the map that library makes of this model and these
// budgets, and in one line each what goes wrong with it on this machine.
//
// The planning itself is plan/strategies/compat_*.h, the judgement plan/map_faults.h; here both are given the model:
// its tree as the library builds it (after 4 or 8 bit, or the checkpoint's own quantizer, have replaced modules), the
// bytes its tensors really take, its KV cache, and whether Berth's planner finds a place on accelerators alone.
//
// Start reading at: plan_as_library.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "berth/engine/planning.h"
#include "berth/engine/report.h"
#include "berth/plan/map_faults.h"
#include "berth/plan/plan_json.h"
#include "berth/plan/strategies/compat_result.h"

namespace berth::engine {

struct LibraryPlan {
  plan::compat::CompatResult result;
  // The library's own units, sizes and budgets; the estimate is Berth's, for what is off the accelerators being brought
  // there for every token, as that library does. `inputs` are Berth's, under the budgets as the library read them.
  PlannedModel planned;
  // The map with Berth's bytes (KV cache, workspace, staging) against the machine's budgets; nothing where some part of
  // the model has no device.
  std::optional<plan::Plan> here;
  // Set where the map does not work here: refused by the library, or over some budget once everything counts.
  std::optional<Error> fails_here;
};

// Whether Berth finds a place on accelerators alone, by the budgets that was asked for: the same for every mode.
using NativeAnswers = std::map<std::string, std::optional<plan::NativeAnswer>>;

struct LibraryAsk {
  // Where given, looked into and added to: for one model under options that differ in library and mode alone.
  NativeAnswers* answers = nullptr;
  bool judge_only = false;  // whether the map works here is asked, not what Berth would find instead
};

// options.compat names the library ("transformers-before-47203" and "-before-47211": its planner as it was);
// options.device_map a mode of its (best and auto are balanced) or the user's map. Errors: kInvalidArgument for other
// names, and where the library raises before there is a map (details: library, stage, type); kUnsupported where it has
// no such planner (accelerate with 4 or 8 bit). A map that the library itself refuses afterwards (bitsandbytes, 4 or 8
// bit on the cpu) is there, and the first of its warnings says so.
Result<LibraryPlan> plan_as_library(const OpenedModel& model, const Options& options, const LibraryAsk& ask = {});

// The library's answer alone, not judged: its error is in the result. Many cases of one opened model are quick this
// way.
Result<plan::compat::CompatResult> library_result(const OpenedModel& model, const Options& options);

// The document of contract.md 4; `options` are those it was planned under.
plan::PlanDocument library_document(const OpenedModel& model, const LibraryPlan& planned, const Options& options);

std::string library_plan_text(const OpenedModel& model, const LibraryPlan& planned, const TextStyle& style);

}  // namespace berth::engine
