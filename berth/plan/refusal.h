// plan/refusal.h — the error of a plan that does not exist: which device and module, how many bytes are missing, the
// proof, and changes that would mend it, each of which was planned before it is named.
//
// Start reading at: refusal.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/base/result.h"
#include "berth/plan/strategies/best.h"
#include "berth/plan/strategy.h"

namespace berth::plan {

struct Remedy {
  std::string change;        // "context of 8192 positions"
  uint64_t saves_bytes = 0;  // of what has to be kept; for more memory: the bytes added
  std::string option;        // as typed: "--ctx-size 8192"; empty where no option does it
};

// Changes under which `best` finds a plan, least intrusive first. Units under another context, width or batch come from
// request.with_change; without it only memory limits are tried.
std::vector<Remedy> find_remedies(const PlanRequest& request, const Rules& rules);

// kDoesNotFit with details_json of contract.md 4.
Error refusal(const PlanRequest& request, const Rules& rules, const CostModel& model, const BestResult& search);

// Puts `remedies` into the error's details in place of those there; its hints stay.
void put_remedies(const std::vector<Remedy>& remedies, Error& e);

// Adds remedies to the refusal of a given map: `best`, where that fits; changes under which the map itself does; and,
// where these are too few, those of find_remedies.
Error with_remedies(const PlanRequest& request, const Rules& rules, std::span<const Assignment> assignments,
                    Error over_budget);

}  // namespace berth::plan
