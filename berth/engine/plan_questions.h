// engine/plan_questions.h — plans that are read back, compared, asked about: what the commands around `plan` share.
//
// Start reading at: with_recorded_options, compare_plans, solve_question.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "berth/plan/explain/diff.h"
#include "berth/plan/explain/explain.h"
#include "berth/plan/explain/export.h"
#include "berth/plan/explain/svg.h"
#include "berth/engine/planning.h"
#include "berth/plan/explain/compare.h"
#include "berth/plan/explain/solve.h"
#include "berth/plan/plan_json.h"

namespace berth::engine {

// A PLAN file (contract.md 4). Errors: kInvalidArgument, kNotFound, naming the file.
Result<plan::PlanDocument> read_plan_file(const std::string& path);

// Whether a file looks like a PLAN document rather than a device map.
bool is_plan_file(const std::string& path);

// With --plan FILE: the options the plan was made with, then those given now where they differ from the defaults. Otherwise as
// given. Errors: those of read_plan_file; recorded options of the wrong type.
Result<Options> with_recorded_options(const Options& options);

// The request that plan_model makes; `inputs` must outlive it. Errors: kInvalidArgument naming the option.
Result<plan::PlanRequest> plan_request(const OpenedModel& model, const PlanInputs& inputs, const Options& options);

// Every native strategy and every mode of the libraries' planners, one row each.
struct Comparison {
  std::vector<plan::ComparedPlan> rows;
  std::vector<std::optional<plan::PlanDocument>> documents;  // one per row; nothing where there is no plan
  std::vector<std::string> notes;
};
Result<Comparison> compare_plans(const OpenedModel& model, const Options& options);
// The list of contract.md 6.
void write_comparison(const Comparison& comparison, JsonWriter& out);

// Largest context, least memory and so on, for this model, machine and options.
Result<plan::Solution> solve_question(const OpenedModel& model, const Options& options, plan::Question question);

}  // namespace berth::engine
