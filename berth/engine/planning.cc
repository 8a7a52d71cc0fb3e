// engine/planning.cc — see planning.h.
#include "berth/engine/planning.h"

#include <algorithm>

#include <fmt/format.h>

#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/device/probe.h"
#include "berth/engine/plan_questions.h"
#include "berth/machine/machine.h"
#include "berth/plan/device_map.h"
#include "berth/plan/map_check.h"

namespace berth::engine {
namespace {

Status positive(std::string_view option, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return {};
  return Error(ErrorCode::kInvalidArgument, fmt::format("--{} must be between 1 and {}, not {}", option, most, value));
}

Error later(std::string_view what) {
  return Error(ErrorCode::kNotAvailable, fmt::format("{} is not in this version", what));
}

Result<std::vector<plan::Pin>> parse_pins(const Options& o) {
  std::vector<plan::Pin> pins;
  for (const std::string& text : o.pin) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return Error(ErrorCode::kInvalidArgument, fmt::format("--pin {} is not PATH=DEVICE", quoted(text)));
    pins.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return pins;
}

// The user's map where --device-map is one: inline JSON, a JSON file, or one device for everything.
Result<std::optional<plan::DeviceMap>> custom_map(const Options& o, const machine::Machine& machine) {
  const std::string& text = o.device_map;
  if (!text.empty() && text.front() == '{') {
    TRY(auto map, plan::parse_device_map(text));
    return std::optional(std::move(map));
  }
  if (text.ends_with(".json")) {
    TRY(const std::string content, read_file(text, size_t{64} << 20));
    auto map = plan::parse_device_map(content);
    if (!map) return map.error().with_context("reading device map " + quoted(text));
    return std::optional(*std::move(map));
  }
  if (machine.find(text)) {
    plan::DeviceMap map;
    map.entries[""] = plan::DeviceName::from_key(machine.map_name(*machine.find(text)));
    return std::optional(std::move(map));
  }
  return std::optional<plan::DeviceMap>();
}

// The model's units under a change that a refusal may propose.
plan::UnitsUnder units_under(const OpenedModel& model, const Options& options, const sizing::RunShape& shape) {
  return [&model, options, shape](const plan::Change& change) -> std::optional<plan::ChangedUnits> {
    using Kind = plan::Change::Kind;
    plan::ChangedUnits out;
    out.shape = shape;
    Options changed = options;
    switch (change.kind) {
      case Kind::kLoadIn4Bit:
        if (options.load_in_4bit || model.quantize_to || model.quantization() != "none") return std::nullopt;
        changed.load_in_4bit = true;
        break;
      case Kind::kLoadIn8Bit:
        if (options.load_in_4bit || options.load_in_8bit || model.quantization() != "none") return std::nullopt;
        changed.load_in_8bit = true;
        break;
      case Kind::kQuantizeExperts:
        if (options.quantize_experts || !model.quantize_to) return std::nullopt;
        changed.quantize_experts = true;
        break;
      case Kind::kKvDtype: out.shape.kv_dtype = change.kv_dtype; break;
      case Kind::kCtxSize:
        out.shape.ctx_size = change.value;
        out.shape.prefill_chunk = std::min(shape.prefill_chunk, change.value);
        break;
      case Kind::kBatch:
        out.shape.batch = out.shape.logit_rows = change.value;
        if (shape.wanted_rows > 0) out.shape.wanted_rows = change.value;
        break;
      case Kind::kPrefillChunk: out.shape.prefill_chunk = change.value; break;
    }
    sizing::UnitOptions units;
    units.whole_layers = options.target == "transformers";
    if (change.kind != Kind::kLoadIn4Bit && change.kind != Kind::kLoadIn8Bit && change.kind != Kind::kQuantizeExperts) {
      out.units = sizing::make_units(model.spec(), model.storage, out.shape, units);
      return out;
    }
    const auto chosen = choose_storage(model.description, changed);
    if (!chosen) return std::nullopt;
    out.units = sizing::make_units(model.spec(), chosen->storage, out.shape, units);
    return out;
  };
}

}  // namespace

Result<sizing::RunShape> run_shape(const OpenedModel& model, const Options& o) {
  constexpr int64_t kMost = int64_t{1} << 24;
  sizing::RunShape shape;
  const int64_t longest = model.spec().max_position > 0 ? model.spec().max_position : 4096;
  shape.ctx_size = o.ctx_size == 0 ? std::min<int64_t>(4096, longest) : o.ctx_size;
  TRY_STATUS(positive("ctx-size", shape.ctx_size, kMost));
  TRY_STATUS(positive("batch", o.batch, 65536));
  TRY_STATUS(positive("prefill-chunk", o.prefill_chunk, kMost));
  shape.batch = o.batch;
  shape.prefill_chunk = std::min(o.prefill_chunk, shape.ctx_size);
  shape.logit_rows = std::max<int64_t>(shape.batch, 1);
  if (!o.all_logits) shape.wanted_rows = shape.batch;
  shape.kv_dtype = model.kv_dtype;
  if (o.numerics != "exact" && o.numerics != "int8")
    return Error(ErrorCode::kInvalidArgument, fmt::format("--numerics must be exact or int8, not {}", quoted(o.numerics)));
  shape.int8_numerics = o.numerics == "int8";
  TRY_STATUS(parse_isa(o.isa));  // whether this CPU has it matters to running alone
  shape.threads = chosen_threads(o);
  return shape;
}

Result<Isa> chosen_isa(const Options& options) {
  TRY(const Isa isa, parse_isa(options.isa));
  return require_isa(isa);
}

int chosen_threads(const Options& options) {
  return options.threads > 0 ? static_cast<int>(std::min<int64_t>(options.threads, 256)) : usable_cores();
}

Result<machine::Machine> find_machine(const Options& options, std::vector<std::string>& notes) {
  if (!options.machine.empty() && !options.emulate.empty())
    return Error(ErrorCode::kInvalidArgument, "--machine and --emulate were both given; a plan is for one machine");
  if (!options.machine.empty()) return machine::read_machine_file(options.machine);
  device::Found found = device::probe_machine();
  notes.insert(notes.end(), found.notes.begin(), found.notes.end());
  if (options.emulate.empty()) return std::move(found.machine);
  TRY(machine::EmulateSpec emulated, machine::parse_emulate(options.emulate));
  notes.insert(notes.end(), emulated.notes.begin(), emulated.notes.end());
  machine::Machine machine;
  machine.devices = std::move(emulated.accelerators);
  for (machine::DeviceSpec& d : found.machine.devices)
    if (!d.is_accelerator()) machine.devices.push_back(std::move(d));
  return machine;
}

Result<PlanInputs> plan_inputs(const OpenedModel& model, const Options& o) {
  PlanInputs in;
  TRY(machine::Machine found, find_machine(o, in.notes));
  machine::MemoryCaps caps;
  if (!o.max_memory.empty()) {
    TRY(caps, machine::parse_max_memory(o.max_memory));  // its notes come back with the budgets
  }
  TRY(in.machine, machine::machine_for_caps(found, caps, machine::BeyondMachine::kEmulate));
  machine::Margin margin;
  if (!o.margin.empty()) {
    TRY(margin, machine::parse_margin(o.margin));
  }
  TRY(in.budgets, machine::device_budgets(in.machine, caps, margin));
  in.notes.insert(in.notes.end(), in.budgets.notes.begin(), in.budgets.notes.end());
  TRY(in.shape, run_shape(model, o));
  sizing::UnitOptions units;
  units.whole_layers = o.target == "transformers";
  in.units = sizing::make_units(model.spec(), model.storage, in.shape, units);
  return in;
}

Result<plan::PlanRequest> plan_request(const OpenedModel& model, const PlanInputs& inputs, const Options& o) {
  plan::PlanRequest request;
  request.assign = {&inputs.units, &inputs.machine, inputs.budgets.devices, inputs.shape, ""};
  request.strategy = o.device_map;
  TRY(request.pins, parse_pins(o));
  request.offload = !o.no_offload;
  request.effort = o.plan_effort;
  request.with_change = units_under(model, o, inputs.shape);
  if (o.target == "transformers") request.target = plan::Target::kTransformers;
  else if (o.target == "llama.cpp") request.target = plan::Target::kLlamaCpp;
  else if (o.target != "berth")
    return Error(ErrorCode::kInvalidArgument, fmt::format("--target must be berth, transformers or llama.cpp, not {}", quoted(o.target)));
  request.assign.target = request.target;
  // Running does not bring weights over yet; what only is planned for may.
  request.stream = request.assign.stream = o.target == "transformers";
  if (o.tables == "accelerator") request.tables = plan::TablePlacement::kAccelerator;
  else if (o.tables != "auto")
    return Error(ErrorCode::kInvalidArgument, fmt::format("--tables must be auto or accelerator, not {}", quoted(o.tables)));
  return request;
}

Result<PlannedModel> plan_model(const OpenedModel& model, const Options& o) {
  if (!o.compat.empty()) return later("--compat");
  if (o.purpose == "training") return later("--for training");
  if (o.purpose != "inference") return Error(ErrorCode::kInvalidArgument, fmt::format("--for must be inference or training, not {}", quoted(o.purpose)));
  PlannedModel out;
  TRY(out.inputs, plan_inputs(model, o));
  TRY(const plan::PlanRequest request, plan_request(model, out.inputs, o));
  if (!o.plan.empty()) {
    TRY(const plan::PlanDocument document, read_plan_file(o.plan));
    auto adopted = plan::adopt_plan(document, request.assign, model.checkpoint->fingerprint());
    if (adopted) {
      out.plan = *std::move(adopted);
      return out;
    }
    if (!o.replan) return adopted.error().with_context("plan " + quoted(o.plan));
    out.inputs.notes.push_back("Planned anew: " + adopted.error().message);
  }
  TRY(const auto map, custom_map(o, out.inputs.machine));
  if (map) {
    TRY(const auto checked, plan::check_device_map(model.description.tree, *map, out.inputs.machine));
    out.inputs.notes.insert(out.inputs.notes.end(), checked.notes.begin(), checked.notes.end());
    TRY(out.plan, plan::plan_from_map(request, checked.map));
  } else {
    TRY(out.plan, plan::make_plan(request));
  }
  return out;
}

}  // namespace berth::engine
