// engine/planning.cc — see planning.h.
#include "berth/engine/planning.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/device/probe.h"
#include "berth/engine/library_plan.h"
#include "berth/engine/library_remedies.h"
#include "berth/engine/plan_questions.h"
#include "berth/engine/training.h"
#include "berth/machine/machine.h"
#include "berth/plan/device_map.h"
#include "berth/plan/map_check.h"

namespace berth::engine {
namespace {

Status positive(std::string_view option, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return {};
  return Error(ErrorCode::kInvalidArgument, fmt::format("--{} must be between 1 and {}, not {}", option, most, value));
}

Result<std::vector<plan::Pin>> parse_pins(const Options& o) {
  std::vector<plan::Pin> pins;
  for (const std::string& text : o.pin) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return Error(ErrorCode::kInvalidArgument, fmt::format("--pin {} is not PATH=DEVICE", quoted(text)), {"lm_head=cpu; '*.mlp=cpu'; '*=1' pins the whole model."});
    pins.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return pins;
}

}  // namespace

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
  // A device: by its own name, or as a map may spell it ("cuda", "cuda:1").
  auto device = machine.find(text);
  if (!device) device = machine.find(plan::DeviceName::from_key(text).normalized().text());
  if (device) {
    plan::DeviceMap map;
    map.entries[""] = plan::DeviceName::from_key(machine.map_name(*device));
    return std::optional(std::move(map));
  }
  return std::optional<plan::DeviceMap>();
}

namespace {

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
    const bool whole_layers = options.target == "transformers";
    if (change.kind != Kind::kLoadIn4Bit && change.kind != Kind::kLoadIn8Bit && change.kind != Kind::kQuantizeExperts) {
      out.units = model_units(model, out.shape, whole_layers);
      return out;
    }
    const auto chosen = choose_storage(model.description, changed);
    if (!chosen) return std::nullopt;
    out.units = model_units(model, *chosen, out.shape, whole_layers);
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
  in.units = model_units(model, in.shape, o.target == "transformers");
  return in;
}

Result<plan::PlanRequest> plan_request(const OpenedModel& model, const PlanInputs& inputs, const Options& o) {
  plan::PlanRequest request;
  request.assign = {&inputs.units, &inputs.machine, inputs.budgets.devices, inputs.shape, ""};
  request.strategy = o.device_map;
  TRY(request.pins, parse_pins(o));
  request.offload = !o.no_offload;
  TRY_STATUS(positive("plan-effort", o.plan_effort, int64_t{1} << 40));
  request.effort = o.plan_effort;
  if (!o.prefill_room.empty()) {
    auto room = parse_size(o.prefill_room);
    if (!room) return room.error().with_context("--prefill-room");
    request.prefill_room_bytes = room->bytes;
  }
  request.with_change = units_under(model, o, inputs.shape);
  if (o.target == "transformers") request.target = plan::Target::kTransformers;
  else if (o.target == "llama.cpp") request.target = plan::Target::kLlamaCpp;
  else if (o.target != "berth")
    return Error(ErrorCode::kInvalidArgument, fmt::format("--target must be berth, transformers or llama.cpp, not {}", quoted(o.target)));
  request.assign.target = request.target;
  request.stream = request.assign.stream = o.target != "llama.cpp";
  if (o.tables == "accelerator") request.tables = plan::TablePlacement::kAccelerator;
  else if (o.tables != "auto")
    return Error(ErrorCode::kInvalidArgument, fmt::format("--tables must be auto or accelerator, not {}", quoted(o.tables)));
  return request;
}

namespace {

constexpr uint64_t kMinorPart = 64;  // parts of a unit below 1/64 of it follow the rest

// Modules of tables that are the same tensor as this unit's (a tied head's embedding), where the map has them elsewhere.
std::vector<std::string> tied_tables(const sizing::UnitTable& units, const sizing::Unit& unit, const plan::DeviceMap& map) {
  std::vector<std::string> out;
  const plan::DeviceName* there = map.lookup(unit.path);
  for (size_t u = static_cast<size_t>(units.chain_size); there != nullptr && u < units.units.size(); ++u) {
    const sizing::Unit& table = units.units[u];
    if (table.stored_with < 0 || &units.units[static_cast<size_t>(table.stored_with)] != &unit) continue;
    for (const std::string& path : table.paths)
      if (const plan::DeviceName* d = map.lookup(path); d != nullptr && !(*d == *there)) out.push_back(path);
  }
  return out;
}

// Berth places a unit as a whole (a head with the norm before it, attention with its norm). Where a map separates a
// minor part from the rest, that part goes with the rest, and a note says so.
void join_minor_parts(const OpenedModel& model, const sizing::UnitTable& units, plan::DeviceMap& map, std::vector<std::string>& notes) {
  std::vector<std::string> moved;
  for (const sizing::Unit& u : units.units) {
    const auto tied = tied_tables(units, u, map);
    for (const std::string& table : tied) {
      map.entries[table] = *map.lookup(u.path);
      notes.push_back(fmt::format("{} is the same tensor as {} and goes where the map has that, to {}", table, u.path, map.lookup(u.path)->text()));
    }
    std::map<std::string, uint64_t> bytes;  // by module
    for (const int32_t t : u.tensors) {
      const std::string& module = model.spec().tensors[static_cast<size_t>(t)].module;
      bytes[std::find(tied.begin(), tied.end(), module) != tied.end() ? u.path : module] += model.storage[static_cast<size_t>(t)].bytes;
    }
    std::map<plan::DeviceName, uint64_t> by_device;
    uint64_t total = 0;
    for (const auto& [module, n] : bytes)
      if (const plan::DeviceName* d = map.lookup(module)) by_device[*d] += n, total += n;
    if (by_device.size() < 2) continue;
    const auto most = std::max_element(by_device.begin(), by_device.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if ((total - most->second) * kMinorPart > total) continue;  // planning refuses it, naming the modules
    const plan::DeviceName device = most->first;
    for (const auto& [module, n] : bytes) {
      const plan::DeviceName* d = map.lookup(module);
      if (d == nullptr || *d == device) continue;
      map.entries[module] = device;
      moved.push_back(fmt::format("{} to {}", module, device.text()));
    }
  }
  if (moved.empty()) return;
  const size_t count = moved.size();
  if (count > 3) moved.resize(3);
  notes.push_back(fmt::format("{} of the map go{} with the larger modules beside {}: {}{}", count == 1 ? "A small module" : fmt::format("{} small modules", count), count == 1 ? "es" : "",
                              count == 1 ? "it" : "them", join(moved, ", "), count > moved.size() ? ", ..." : ""));
}

// A map of somebody's own, on the machine at hand.
Status plan_custom_map(const OpenedModel& model, const plan::PlanRequest& request, const plan::DeviceMap& map, PlannedModel& out) {
  TRY(const auto checked, plan::check_device_map(model.description.tree, map, out.inputs.machine));
  out.inputs.notes.insert(out.inputs.notes.end(), checked.notes.begin(), checked.notes.end());
  plan::DeviceMap whole = checked.map;
  join_minor_parts(model, out.inputs.units, whole, out.inputs.notes);
  TRY(out.plan, plan::plan_from_map(request, whole));
  return {};
}

// The library's map, run by Berth. A refusal has no remedies.
Status carry_out_library_map(const OpenedModel& model, const Options& o, PlannedModel& out) {
  LibraryAsk ask;
  ask.judge_only = true;
  TRY(const LibraryPlan planned, plan_as_library(model, o, ask));
  out.inputs = planned.planned.inputs;
  out.inputs.units = model_units(model, out.inputs.shape, o.target == "transformers");
  TRY(plan::PlanRequest request, plan_request(model, out.inputs, o));
  request.explain = plan::Explain::kNothing;
  return plan_custom_map(model, request, *planned.result.map, out);
}

// What a plan writes to the disk before it runs: said to people who plan.
void note_offload(PlannedModel& planned, const Options& o) {
  const plan::DeviceUse* disk = planned.plan.device("disk");
  if (disk == nullptr || disk->weights_bytes == 0 || o.target != "berth") return;
  planned.inputs.notes.push_back(fmt::format(
      "{} of weights live on the disk in another form than the checkpoint has: running writes them to {} once",
      format_bytes(disk->weights_bytes), o.offload_folder.empty() ? "the folder of --offload-folder (none is given)" : quoted(o.offload_folder)));
}

// Modules that compute on the cpu while a prompt is read.
struct HeldBack {
  int64_t units = 0;
  uint64_t bytes = 0;
  double seconds = 0;       // of one chunk
  uint64_t room_bytes = 0;  // on an accelerator, to bring over nearly all that has no KV cache; 0: nothing can be
};

HeldBack held_back(const PlannedModel& planned, int64_t flops_per_s) {
  HeldBack out;
  uint64_t workspace = UINT64_MAX;
  for (const plan::DeviceUse& d : planned.plan.devices)
    if (d.id != "cpu" && d.id != "disk" && d.weights_bytes > 0) workspace = std::min(workspace, d.workspace_bytes);
  if (workspace == UINT64_MAX) return out;  // no accelerator is used
  std::vector<std::pair<uint64_t, double>> rooms;
  double movable = 0;
  for (size_t u = 0; u < static_cast<size_t>(planned.inputs.units.chain_size); ++u) {
    const sizing::Unit& unit = planned.inputs.units.units[u];
    const plan::PlacedUnit& placed = planned.plan.units[u];
    if (placed.device != "cpu" || placed.computed_on != "cpu" || placed.access_prefill != plan::Access::kCompute) continue;
    const double seconds = static_cast<double>(unit.prefill_flops) / static_cast<double>(std::max<int64_t>(1, flops_per_s));
    ++out.units;
    out.bytes += placed.stored_bytes;
    out.seconds += seconds;
    if (unit.kv_bytes > 0 || unit.kv_source >= 0) continue;
    movable += seconds;
    rooms.emplace_back(2 * unit.grain_bytes + (unit.workspace_bytes > workspace ? unit.workspace_bytes - workspace : 0), seconds);
  }
  std::sort(rooms.begin(), rooms.end());
  double covered = 0;
  for (const auto& [room, seconds] : rooms) {
    out.room_bytes = room;
    covered += seconds;
    if (covered >= 0.9 * movable) break;
  }
  return out;
}

}  // namespace

Status note_prefill(const OpenedModel& model, const Options& o, PlannedModel& planned) {
  constexpr double kWorthSaying = 2;     // times as fast
  constexpr double kLeastSeconds = 0.5;  // of a chunk: below, nobody waits
  const double now = planned.plan.estimate.prefill_tokens_per_s;
  const auto cpu = planned.inputs.machine.cpu();
  if (!cpu || now <= 0 || !o.compat.empty() || !o.plan.empty() || !o.prefill_room.empty() || o.purpose != "inference" || (o.device_map != "best" && o.device_map != "auto")) return {};
  const HeldBack held = held_back(planned, planned.inputs.machine.devices[*cpu].flops_per_s);
  const double chunk_s = static_cast<double>(planned.plan.shape.prefill_chunk) / now;
  if (held.units == 0 || chunk_s < kLeastSeconds || held.seconds < chunk_s * (1 - 1 / kWorthSaying)) return {};
  std::string text = fmt::format("Reading a prompt computes {} module{} ({}) on the cpu, which takes most of the {:.3g} s for {} tokens.", held.units, held.units == 1 ? "" : "s",
                                 format_bytes(held.bytes), chunk_s, planned.plan.shape.prefill_chunk);
  if (held.room_bytes > 0) {
    Options with_room = o;
    constexpr uint64_t kMiB = uint64_t{1} << 20;
    with_room.prefill_room = fmt::format("{}MiB", (held.room_bytes + kMiB - 1) / kMiB);
    TRY(plan::PlanRequest request, plan_request(model, planned.inputs, with_room));
    request.effort = std::min<int64_t>(request.effort, 50000);
    request.explain = plan::Explain::kNothing;
    const auto roomy = plan::make_plan(request);
    if (!roomy && roomy.error().code != ErrorCode::kDoesNotFit) return roomy.error();
    if (roomy && roomy->estimate.prefill_tokens_per_s >= kWorthSaying * now)
      text += fmt::format(" With --prefill-room {} they can be brought to accelerators: about {:.3g} tokens/s prefilling instead of {:.3g}, {:.3g} decoding instead of {:.3g}.",
                          with_room.prefill_room, roomy->estimate.prefill_tokens_per_s, now, roomy->estimate.decode_tokens_per_s, planned.plan.estimate.decode_tokens_per_s);
  }
  planned.plan.warnings.push_back(std::move(text));
  return {};
}

Result<PlannedModel> plan_model(const OpenedModel& model, const Options& o) {
  if (o.purpose == "training" && o.compat.empty()) return plan_for_training(model, o);
  if (o.purpose != "inference" && o.purpose != "training") return Error(ErrorCode::kInvalidArgument, fmt::format("--for must be inference or training, not {}", quoted(o.purpose)));
  PlannedModel out;
  if (!o.compat.empty()) {
    if (!o.plan.empty()) {
      TRY(const plan::PlanDocument document, read_plan_file(o.plan));
      if (document.checkpoint != model.checkpoint->fingerprint() && !o.replan)
        return Error(ErrorCode::kInvalidArgument, fmt::format("plan {} is for another checkpoint: it records {}, here is {}", quoted(o.plan), quoted(document.checkpoint), quoted(model.checkpoint->fingerprint())),
                     {"--replan plans anew with the recorded options."});
    }
    auto carried_out = carry_out_library_map(model, o, out);
    if (carried_out) return out;
    Error refused = carried_out.error();
    if (refused.code == ErrorCode::kDoesNotFit)
      explain_run_failure(model, o, out, [&](const Options& changed) {
        PlannedModel ignored;
        return carry_out_library_map(model, changed, ignored).has_value();
      }, refused);
    return refused;
  }
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
    TRY_STATUS(plan_custom_map(model, request, *map, out));
  } else {
    TRY(out.plan, plan::make_plan(request));
  }
  note_offload(out, o);
  return out;
}

}  // namespace berth::engine
