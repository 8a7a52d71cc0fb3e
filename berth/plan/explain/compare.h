// plan/explain/compare.h — several ways to place one model, side by side.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"
#include "berth/plan/explain/text.h"
#include "berth/plan/plan.h"

namespace berth::plan {

struct ComparedPlan {
  std::string name;                // of the strategy asked for
  std::optional<Plan> plan;        // nothing: it does not fit
  std::optional<Error> error;      // with a plan: why that (a library's) does not work on this machine
  std::vector<std::string> notes;  // what goes wrong with it (compat maps)
};

using PlanStrategy = std::function<Result<Plan>(const std::string& strategy)>;

// Plans each strategy; what fails is a row as well.
std::vector<ComparedPlan> compare(std::span<const std::string> strategies, const PlanStrategy& plan);

// The row with the most tokens per second of those without an error; nothing where there is none.
std::optional<size_t> best_row(std::span<const ComparedPlan> rows);

// A device's largest share of its budget.
double largest_load(const Plan& plan);

// One table, the best row marked; notes below.
std::string compare_text(std::span<const ComparedPlan> rows, const PictureStyle& style);

}  // namespace berth::plan
