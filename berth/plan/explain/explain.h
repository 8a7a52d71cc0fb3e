// plan/explain/explain.h — why a module is where it is, and what each other device would make of it.
//
// Start reading at: explain_module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"
#include "berth/plan/assign.h"
#include "berth/plan/explain/text.h"
#include "berth/plan/plan.h"

namespace berth::plan {

// The unit moved to another device, everything else where it is.
struct Alternative {
  std::string device;
  bool fits = false;
  int64_t delta_bytes = 0;    // on that device: weights, KV cache, workspace that it would hold more
  int64_t missing_bytes = 0;  // of its budget; 0 where it fits
  double delta_decode_s = 0;  // per step; negative: faster
};

struct Explanation {
  PlacedUnit unit;
  std::string module;                     // as asked for
  std::string source;                     // not empty: it is stored with this unit (tied)
  double step_s = 0;                      // what the unit takes of one step where it is, moves left out
  std::vector<Alternative> alternatives;  // every other device that the plan may use
};

// The unit that holds `module` (a unit's name, one of its modules, or a module above or below exactly one of them).
// `request` is what the plan was made for (its units in the same order). Errors: kInvalidArgument (no such module, with
// the nearest; several units below it, naming them).
Result<Explanation> explain_module(const AssignRequest& request, const Plan& plan, std::string_view module);

// Paths of the units below `module` where that is none itself, nor inside one: a layer's attention and MLP.
std::vector<std::string> units_below(const Plan& plan, std::string_view module);

std::string explanation_text(const Explanation& explanation, const PictureStyle& style);
void write_explanation(const Explanation& explanation, JsonWriter& out);

}  // namespace berth::plan
