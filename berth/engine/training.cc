// engine/training.cc — see training.h.
#include "berth/engine/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/engine/plan_questions.h"
#include "berth/plan/map_check.h"

namespace berth::engine {
namespace {

// Weights, gradients and two moments, in the parameter's own type.
constexpr uint64_t kTrainedTimes = 4;

bool is_frozen(const OpenedModel& model) { return model.quantization() != "none"; }

// The run that training is: whole sequences at once, logits of every position.
void shape_for_training(sizing::RunShape& shape) {
  shape.prefill_chunk = shape.ctx_size;
  shape.logit_rows = shape.batch * shape.ctx_size;
  shape.wanted_rows = 0;
}

// Units with what their parameters need to be trained; "KV cache" then stands for inputs kept for the backward pass.
void make_trained(const OpenedModel& model, const sizing::RunShape& shape, sizing::UnitTable& table) {
  const uint64_t times = is_frozen(model) ? 1 : kTrainedTimes;
  const uint64_t width = dtype_bytes(model.dtype, 1).value_or(4);
  for (sizing::Unit& u : table.units) {
    u.stored_bytes *= times;
    u.stored_bytes_512 *= times;
    u.kv_source = -1;
    u.kv_new_bytes = 0;
    u.kv_bytes = u.consumer >= 0 ? 0 : u.input_bytes / 4 * width * static_cast<uint64_t>(shape.ctx_size);
  }
  table.memory_footprint_bytes *= times;
}

plan::PlanRequest training_request(const PlanInputs& inputs, std::string strategy) {
  plan::PlanRequest request;
  request.assign = {&inputs.units, &inputs.machine, inputs.budgets.devices, inputs.shape, ""};
  request.strategy = std::move(strategy);
  request.tables = plan::TablePlacement::kAccelerator;
  request.target = request.assign.target = plan::Target::kTransformers;
  request.stream = false;
  request.offload = inputs.machine.accelerators().empty();
  request.may_let_out = false;
  return request;
}

void leave_out(machine::DeviceBudget& budget) {
  budget.left_out = true;
  budget.budget_bytes = budget.overhead_bytes = budget.margin_bytes = 0;
}

// Everything on device `d` alone.
std::vector<machine::DeviceBudget> only(const std::vector<machine::DeviceBudget>& budgets, size_t d) {
  std::vector<machine::DeviceBudget> out = budgets;
  for (size_t k = 0; k < out.size(); ++k) {
    if (k != d) leave_out(out[k]);
  }
  return out;
}

std::string sequence_text(const sizing::RunShape& shape) {
  return fmt::format("{} sequence{} of {} tokens", shape.batch, shape.batch == 1 ? "" : "s",
                     group_digits(static_cast<uint64_t>(shape.ctx_size)));
}

std::vector<std::string> what_is_counted(const OpenedModel& model, const sizing::RunShape& shape) {
  std::vector<std::string> out;
  if (is_frozen(model))
    out.push_back(
        fmt::format("Training: {} weights are not trained; only adapters beside them are, and their weights, gradients "
                    "and optimizer are not counted here.",
                    model.quantization()));
  else
    out.push_back(
        "Training: weights_bytes are weights, gradients and the two moments of AdamW, each in the parameter's type: "
        "four times the weights.");
  out.push_back(
      fmt::format("Training: there is no KV cache; kv_bytes are the inputs of layers kept for the backward pass of {} "
                  "(gradient checkpointing), and logits are those of all positions.",
                  sequence_text(shape)));
  return out;
}

Error with_training_reason(const OpenedModel& model, const sizing::RunShape& shape, Error e) {
  if (e.code != ErrorCode::kDoesNotFit) return e;
  e.message = fmt::format("training on {}: {}", sequence_text(shape), e.message);
  std::vector<std::string> hints;
  if (!is_frozen(model)) {
    hints.push_back("--load-in-4bit keeps the weights frozen and small: train adapters beside them.");
    if (model.dtype == DType::kF32) hints.push_back("--dtype bfloat16 halves weights, gradients and moments.");
  }
  if (shape.batch > 1) hints.push_back("--batch 1 with gradient accumulation.");
  hints.push_back(
      "A shorter --ctx-size, or more accelerators. Nothing can be offloaded: what is on the cpu or the disk is not "
      "there between calls.");
  hints.insert(hints.end(), e.hints.begin(), e.hints.end());
  e.hints = std::move(hints);
  return e;
}

}  // namespace

Result<PlannedModel> plan_for_training(const OpenedModel& model, const Options& options) {
  PlannedModel out;
  Options o = options;
  o.target = "transformers";
  TRY(out.inputs, plan_inputs(model, o));
  PlanInputs& in = out.inputs;
  shape_for_training(in.shape);
  in.units = model_units(model, in.shape, true);
  make_trained(model, in.shape, in.units);
  const std::vector<size_t> accelerators = in.machine.accelerators();
  if (!accelerators.empty())  // nothing may be off them
    for (size_t d = 0; d < in.machine.devices.size(); ++d)
      if (!in.machine.devices[d].is_accelerator()) leave_out(in.budgets.devices[d]);
  std::vector<std::string> warnings = what_is_counted(model, in.shape);

  TRY(const auto map, custom_map(o, in.machine));
  if (map) {
    TRY(const auto checked, plan::check_device_map(model.description.tree, *map, in.machine));
    for (const auto& [key, device] : checked.map.entries)
      if (!device.is_accelerator() && !accelerators.empty())
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("--for training: the map puts {} on the {}; what accelerate offloads is not there "
                                 "between calls, so it gets no gradients",
                                 key.empty() ? "the model" : quoted(key), device.text()),
                     {"Keep everything on accelerators, or plan for inference."});
    auto placed = plan::plan_from_map(training_request(in, "custom"), checked.map);
    if (!placed) return with_training_reason(model, in.shape, placed.error());
    out.plan = *std::move(placed);
  } else {
    // One accelerator that holds everything: a process for each.
    std::vector<size_t> holders;
    const std::vector<machine::DeviceBudget> budgets = in.budgets.devices;
    for (const size_t d : accelerators.empty() ? std::vector<size_t>{in.machine.cpu().value_or(0)} : accelerators) {
      if (budgets[d].left_out || budgets[d].budget_bytes == 0) continue;
      in.budgets.devices = only(budgets, d);
      auto alone = plan::make_plan(training_request(in, "best"));
      if (!alone && alone.error().code != ErrorCode::kDoesNotFit) return alone.error();
      if (!alone) continue;
      if (holders.empty()) out.plan = *std::move(alone);
      holders.push_back(d);
    }
    in.budgets.devices = budgets;
    if (holders.empty()) {
      auto spread = plan::make_plan(training_request(in, o.device_map == "auto" ? "best" : o.device_map));
      if (!spread) return with_training_reason(model, in.shape, spread.error());
      out.plan = *std::move(spread);
    } else if (holders.size() > 1) {
      std::vector<std::string> names;
      for (const size_t d : holders) names.push_back(in.machine.map_name(d));
      warnings.push_back(
          fmt::format("Training: accelerators {} each hold the whole model; run one process on each, with "
                      "device_map={{\"\": its own number}}.",
                      join(names, ", ")));
    }
  }
  size_t used = 0;
  for (const plan::DeviceUse& d : out.plan.devices) used += d.weights_bytes > 0;
  if (used > 1) {
    warnings.push_back(
        fmt::format("Training: no single accelerator holds the model, so layers are spread over {} in one process. "
                    "Accelerator.prepare refuses maps of more than one key in distributed training: do not start one "
                    "process per accelerator.",
                    used));
    if (is_frozen(model))
      warnings.push_back(
          "Training: a 4 or 8 bit model on several devices is trained by one process only; on one device, that device "
          "must be the process's current one.");
  } else if (is_frozen(model)) {
    warnings.push_back("Training: a 4 or 8 bit model must be on the process's current device.");
  }
  out.plan.estimate = {0, 0, out.plan.estimate.cuts};  // decoding says nothing of training
  out.plan.certificate.reset();
  out.plan.warnings.insert(out.plan.warnings.begin(), warnings.begin(), warnings.end());
  return out;
}

std::vector<std::string> training_faults(const OpenedModel& model, const PlanInputs& inputs,
                                         const plan::DeviceMap& map) {
  std::vector<std::string> out;
  const std::vector<plan::DeviceName> devices = map.devices();
  const bool away =
      std::any_of(devices.begin(), devices.end(), [](const plan::DeviceName& d) { return !d.is_accelerator(); });
  if (away && !inputs.machine.accelerators().empty())
    out.push_back(
        "Training: modules on the cpu or the disk are not there between calls and get no gradients; such a map serves "
        "inference alone.");
  if (map.entries.size() > 1)
    out.push_back(
        fmt::format("Training: the map has {} keys, and Accelerator.prepare refuses distributed training for more than "
                    "one; one process per accelerator wants {{\"\": its own number}}.",
                    map.entries.size()));
  if (is_frozen(model)) {
    out.push_back(
        "Training: 4 and 8 bit weights are not trained, only adapters beside them, whose bytes no planner counts; on "
        "one device, that device must be the process's current one.");
    return out;
  }
  // Gradients and moments are where the weights are.
  std::map<plan::DeviceName, uint64_t> weights;
  for (const plan::TensorPlace& p : plan::expanded(model.description.tree, map)) {
    if (!p.device || p.is_buffer) continue;
    const arch::Module* m = model.description.tree.find(p.module);
    if (m == nullptr) continue;
    for (const auto& parameter : m->parameters)
      if (arch::join_path(p.module, parameter.name) == p.path)
        weights[*p.device] += dtype_bytes(parameter.dtype, element_count(parameter.shape).value_or(0)).value_or(0);
  }
  for (const machine::DeviceBudget& b : inputs.budgets.devices) {
    const auto held = weights.find(plan::DeviceName::from_key(b.map_name));
    if (held == weights.end() || held->second * kTrainedTimes <= b.usable_bytes()) continue;
    out.push_back(
        fmt::format("Training: device {} would need {} for weights, gradients and AdamW's moments, before any "
                    "activation, and has {}.",
                    b.map_name, format_bytes(held->second * kTrainedTimes), format_bytes(b.usable_bytes())));
  }
  return out;
}

}  // namespace berth::engine
