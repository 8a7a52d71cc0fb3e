// engine/plan_questions.cc — see plan_questions.h.
#include "berth/engine/plan_questions.h"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>

#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/engine/library_plan.h"
#include "berth/engine/report.h"

namespace berth::engine {
namespace {

constexpr size_t kMostPlanBytes = size_t{256} << 20;

// Sets one option from its recorded JSON; false where the type differs.
template <typename T>
bool set_from(JsonView json, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    const auto v = json.as_string();
    if (v) value = std::string(*v);
    return v.has_value();
  } else if constexpr (std::is_same_v<T, bool>) {
    const auto v = json.as_bool();
    if (v) value = *v;
    return v.has_value();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    const auto v = json.as_int64();
    if (v) value = *v;
    return v.has_value();
  } else if constexpr (std::is_same_v<T, double>) {
    const auto v = json.as_double();
    if (v) value = *v;
    return v.has_value();
  } else {
    if (!json.is_array()) return false;
    value.clear();
    for (const JsonView item : json.elements()) {
      const auto text = item.as_string();
      if (!text) return false;
      value.emplace_back(*text);
    }
    return true;
  }
}

}  // namespace

Result<plan::PlanDocument> read_plan_file(const std::string& path) {
  TRY(const std::string text, read_file(path, kMostPlanBytes));
  auto document = plan::parse_plan(text);
  if (!document) return document.error().with_context("reading plan " + quoted(path));
  return document;
}

bool is_plan_file(const std::string& path) {
  const auto text = read_file(path, kMostPlanBytes);
  if (!text) return false;
  const auto document = JsonDocument::parse(*text);
  return document && document->root().is_object() && document->root()["format"].is_string();
}

Result<Options> with_recorded_options(const Options& given) {
  if (given.plan.empty()) return given;
  TRY(const plan::PlanDocument document, read_plan_file(given.plan));
  TRY(const JsonDocument recorded, JsonDocument::parse(document.options));
  Options out;
  std::optional<Error> error;
  visit_options(out, [&](const OptionInfo& info, auto& value) {
    const JsonView json = recorded.root()[info.name];
    if (!error && json.valid() && !set_from(json, value))
      error = Error(ErrorCode::kInvalidArgument, fmt::format("plan {}: the recorded option {} has the wrong type: {}", quoted(given.plan), info.name,
                                                             escaped(json.text())));
  });
  if (error) return *std::move(error);
  // The run's shape is the plan's, also where it was a default of the model.
  out.ctx_size = document.plan.shape.ctx_size;
  out.batch = document.plan.shape.batch;
  out.kv_dtype = std::string(dtype_info(document.plan.shape.kv_dtype).torch);
  out.prefill_chunk = document.plan.shape.prefill_chunk;
  // What is given now wins where it says anything.
  const Options defaults;
  std::vector<std::string> changed;
  visit_options(given, [&](const OptionInfo& info, const auto& value) {
    visit_options(defaults, [&](const OptionInfo& other, const auto& standard) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::remove_cvref_t<decltype(standard)>>)
        if (info.name == other.name && !(value == standard)) changed.emplace_back(info.name);
    });
  });
  visit_options(out, [&](const OptionInfo& info, auto& value) {
    if (std::find(changed.begin(), changed.end(), info.name) == changed.end()) return;
    visit_options(given, [&](const OptionInfo& other, const auto& now) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::remove_cvref_t<decltype(now)>>)
        if (info.name == other.name) value = now;
    });
  });
  out.plan = given.plan;
  return out;
}

Result<Comparison> compare_plans(const OpenedModel& model, const Options& options) {
  Comparison out;
  PlannedModel planned;
  TRY(planned.inputs, plan_inputs(model, options));
  TRY(plan::PlanRequest request, plan_request(model, planned.inputs, options));
  out.notes = planned.inputs.notes;
  std::vector<std::string> names;
  for (const std::string_view name : plan::strategy_names())
    if (name != "auto") names.emplace_back(name);
  // What none of them can place, best cannot: one search, and one refusal with its remedies, serves all.
  plan::SearchMemo searches;
  request.memo = &searches;
  request.strategy = "best";
  const auto best = plan::make_plan(request);
  request.explain = plan::Explain::kNothing;
  out.rows = plan::compare(names, [&](const std::string& strategy) -> Result<plan::Plan> {
    if (strategy == "best" || (!best && best.error().code != ErrorCode::kDoesNotFit)) return best;
    request.strategy = strategy;
    auto made = plan::make_plan(request);
    if (!made && made.error().code == ErrorCode::kDoesNotFit && !best) return best;
    return made;
  });
  for (const plan::ComparedPlan& row : out.rows) {
    out.documents.emplace_back();
    if (!row.plan) continue;
    Options asked = options;
    asked.device_map = row.name;
    planned.plan = *row.plan;
    out.documents.back() = plan_document(model, planned, asked);
  }
  NativeAnswers answers;
  for (const char* library : {"transformers", "accelerate"})
    for (const char* mode : {"balanced", "balanced_low_0", "sequential"}) {
      Options asked = options;
      asked.compat = library;
      asked.device_map = mode;
      plan::ComparedPlan row;
      row.name = fmt::format("{} {}", library, mode);
      out.documents.emplace_back();
      const auto found = plan_as_library(model, asked, {&answers});
      if (found) {
        row.plan = found->here ? *found->here : found->planned.plan;
        row.notes = found->planned.plan.warnings;
        row.error = found->fails_here;
        out.documents.back() = library_document(model, *found, asked);
        out.documents.back()->error.clear();  // the row has it
      } else {
        row.error = found.error();
      }
      out.rows.push_back(std::move(row));
    }
  return out;
}

void write_comparison(const Comparison& comparison, JsonWriter& w) {
  w.begin_array();
  for (size_t k = 0; k < comparison.rows.size(); ++k) {
    const plan::ComparedPlan& row = comparison.rows[k];
    const auto& document = comparison.documents[k];
    w.begin_object();
    if (document) {
      plan::write_plan_members(*document, w);
    } else {
      const size_t space = row.name.find(' ');
      w.member("strategy", space == std::string::npos ? row.name : row.name.substr(space + 1)).key("compat");
      if (space == std::string::npos) w.null();
      else w.value(row.name.substr(0, space));
      w.member("fits", false);
    }
    if (row.error) {
      w.key("error");
      write_error_object(*row.error, w);
    }
    w.end_object();
  }
  w.end_array();
}

Result<plan::Solution> solve_question(const OpenedModel& model, const Options& options, plan::Question question) {
  if (!options.compat.empty() || options.purpose == "training")
    return Error(ErrorCode::kInvalidArgument, fmt::format("solve plans inference with best; {} has no part in that", options.compat.empty() ? "--for training" : "--compat"));
  TRY(const PlanInputs base, plan_inputs(model, options));
  constexpr int64_t kMiB = int64_t{1} << 20;
  // A planner from what makes the inputs of a value. Its refusals propose changes of the options at that value.
  using InputsAt = std::function<Result<PlanInputs>(int64_t value, Options& options)>;
  const auto planner = [&](const InputsAt& inputs_at) {
    const auto with_request = [&model, &options, inputs_at](int64_t value, auto&& use) -> decltype(use(std::declval<plan::PlanRequest&>())) {
      Options changed = options;
      TRY(const PlanInputs inputs, inputs_at(value, changed));
      TRY(plan::PlanRequest request, plan_request(model, inputs, changed));
      request.strategy = "best";
      request.effort = std::min<int64_t>(request.effort, 50000);
      return use(request);
    };
    plan::Planner out;
    out.exists = [with_request](int64_t value) { return with_request(value, [](plan::PlanRequest& r) { return plan::plan_exists(r); }); };
    out.plan = [with_request](int64_t value, plan::Explain explain) {
      return with_request(value, [explain](plan::PlanRequest& r) {
        r.explain = explain;
        return plan::make_plan(r);
      });
    };
    return out;
  };
  const auto reshaped = [&](const Options& changed) -> Result<PlanInputs> {
    PlanInputs inputs = base;
    TRY(inputs.shape, run_shape(model, changed));
    inputs.units = model_units(model, inputs.shape, options.target == "transformers");
    return inputs;
  };
  const std::vector<size_t> accelerators = base.machine.accelerators();
  switch (question) {
    case plan::Question::kMaxCtx: {
      const int64_t longest = model.spec().max_position > 0 ? model.spec().max_position : int64_t{1} << 20;
      return plan::solve(question, 1, longest, 1, planner([&](int64_t value, Options& o) {
        o.ctx_size = value;
        return reshaped(o);
      }));
    }
    case plan::Question::kMaxBatch:
      return plan::solve(question, 1, 4096, 1, planner([&](int64_t value, Options& o) {
        o.batch = value;
        return reshaped(o);
      }));
    case plan::Question::kMinVram: {
      if (accelerators.empty()) return Error(ErrorCode::kInvalidArgument, "solve min-vram: the machine has no accelerator", {"--emulate 2x1GiB says how many there are."});
      uint64_t all = 0, largest = 0;
      for (const sizing::Unit& u : base.units.units) {
        all += u.stored_bytes_512 + u.kv_bytes;
        largest = std::max(largest, u.workspace_bytes + 2 * u.grain_bytes);
      }
      uint64_t overhead = 0;
      for (const size_t d : accelerators) overhead = std::max(overhead, base.machine.devices[d].overhead_bytes + (uint64_t{1} << 28));
      const auto most = static_cast<int64_t>((all + largest + overhead + all / 50) / kMiB + 2) * kMiB;
      return plan::solve(question, kMiB, most, kMiB, planner([&](int64_t value, Options&) -> Result<PlanInputs> {
        PlanInputs inputs = base;
        machine::MemoryCaps caps;
        for (const size_t d : accelerators) {
          inputs.machine.devices[d].memory_bytes = static_cast<uint64_t>(value);
          inputs.machine.devices[d].memory_known = true;
        }
        for (size_t d = 0; d < base.budgets.devices.size(); ++d)
          if (!base.machine.devices[d].is_accelerator() && base.budgets.devices[d].capped)
            caps.entries.push_back({base.budgets.devices[d].map_name, base.budgets.devices[d].budget_bytes});
        machine::Margin margin;
        if (!options.margin.empty()) {
          TRY(margin, machine::parse_margin(options.margin));
        }
        TRY(inputs.budgets, machine::device_budgets(inputs.machine, caps, margin));
        return inputs;
      }));
    }
    case plan::Question::kMinDevices:
      if (accelerators.empty()) return Error(ErrorCode::kInvalidArgument, "solve min-devices: the machine has no accelerator");
      // With --no-offload there is no plan without one.
      return plan::solve(question, options.no_offload ? 1 : 0, static_cast<int64_t>(accelerators.size()), 1, planner([&](int64_t value, Options&) -> Result<PlanInputs> {
        PlanInputs inputs = base;
        for (size_t k = static_cast<size_t>(value); k < accelerators.size(); ++k) {
          machine::DeviceBudget& b = inputs.budgets.devices[accelerators[k]];
          b.left_out = true;
          b.budget_bytes = b.overhead_bytes = b.margin_bytes = 0;
        }
        return inputs;
      }));
  }
  return Error(ErrorCode::kInternal, "solve: unknown question");
}

}  // namespace berth::engine
