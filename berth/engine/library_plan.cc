// engine/library_plan.cc — see library_plan.h.
#include "berth/engine/library_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "berth/arch/native_tree.h"
#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/engine/plan_questions.h"
#include "berth/engine/training.h"
#include "berth/plan/explain/text.h"
#include "berth/plan/map_check.h"
#include "berth/plan/map_faults.h"
#include "berth/plan/strategies/compat_accelerate.h"
#include "berth/plan/strategies/compat_transformers.h"
#include "berth/sizing/tree_bytes.h"

namespace berth::engine {
namespace {

namespace compat = plan::compat;

Error invalid(std::string message, std::vector<std::string> hints = {}) {
  return Error(ErrorCode::kInvalidArgument, std::move(message), std::move(hints));
}

// --- what the library is given ---

bool is_whole_number(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// --max-memory as a Python dict would have it: plain numbers are ints, the rest is text for the library's own parser.
Result<std::vector<compat::MemoryEntry>> memory_entries(const std::string& text) {
  if (trimmed(text).starts_with("{")) {
    auto document = JsonDocument::parse(text);
    if (!document) {
      Error e = document.error().with_context("reading --max-memory");
      e.code = ErrorCode::kInvalidArgument;
      return e;
    }
    return compat::memory_entries_from_json(document->root());
  }
  std::vector<compat::MemoryEntry> out;
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string name(trimmed(std::string_view(part).substr(0, equals)));
    if (equals == std::string::npos || name.empty())
      return invalid(fmt::format("--max-memory: {} is not DEVICE=SIZE", quoted(part)), {"0=18GiB,1=10GiB,cpu=48GiB"});
    for (const compat::MemoryEntry& e : out)
      if (e.key == name) return invalid(fmt::format("--max-memory names {} twice", quoted(name)));
    const std::string value(trimmed(std::string_view(part).substr(equals + 1)));
    if (is_whole_number(value))
      out.push_back({name, compat::Number::whole(std::stoll(value))});
    else
      out.push_back({name, value});
  }
  return out;
}

// The same budgets for Berth's own planner: in bytes, the cpu absent where the library has none.
std::string caps_text(const compat::Budgets& budgets) {
  std::string out;
  bool cpu = false;
  for (const auto& [device, bytes] : budgets.entries) {
    if (device == plan::DeviceName::mps()) continue;
    cpu = cpu || device.is_cpu();
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", device.text(),
                       std::min<uint64_t>(bytes.as_bytes(), machine::kMaxMemoryBytes));
  }
  if (!cpu) out += out.empty() ? "cpu=0" : ",cpu=0";
  return out;
}

// Today's planner, or as it was before either of its two repairs of 2026: to see what they changed.
std::optional<compat::Revision> transformers_revision(const std::string& name) {
  if (name == "transformers") return compat::Revision::kCurrent;
  if (name == "transformers-before-47211") return compat::Revision::kBefore47211;
  if (name == "transformers-before-47203") return compat::Revision::kBefore47203;
  return std::nullopt;
}

struct LibraryTree {
  arch::ModuleTree tree;
  compat::Quantizer quantizer = compat::Quantizer::kNone;
  sizing::FourBit four_bit;
  std::vector<std::string> notes;
};

// What Transformers does with a quantization it has no quantizer for.
std::string skipped_quantization(const OpenedModel& model, const format::QuantizationConfig& stored) {
  const format::HfConfig* config = model.checkpoint->config();
  const bool in_config = config != nullptr && config->quantization().has_value();
  return fmt::format(
      "{}, counts every module wide, as here, and then finds packed tensors that do not fit them.",
      in_config ? fmt::format("Transformers has no quantizer for quant_method {}: it warns, skips the quantization",
                              quoted(stored.method_name))
                : std::string("Transformers does not read hf_quant_config.json and sees no quantization"));
}

// Its native NVFP4 quantizes on load and nothing else.
Error refuses_prequantized_nvfp4() {
  Error e = invalid(
      "transformers stops before planning with ValueError: loading pre-quantized NVFP4 checkpoints is not supported",
      {"Without --compat Berth plans it by the bytes of its tensors."});
  JsonWriter details;
  details.begin_object().member("library", "transformers").member("stage", "validate").member("type", "ValueError");
  details.end_object();
  e.details_json = details.take();
  return e;
}

// Modules that llm_int8_enable_fp32_cpu_offload leaves wide: keys of a map of the user's own.
std::vector<std::string> kept_off_accelerators(const std::optional<plan::DeviceMap>& map, bool enabled) {
  std::vector<std::string> out;
  if (!map || !enabled) return out;
  for (const auto& [key, device] : map->entries)
    if (!device.is_accelerator()) out.push_back(key);
  return out;
}

Result<LibraryTree> library_tree(const OpenedModel& model, const Options& o,
                                 const std::optional<plan::DeviceMap>& map) {
  LibraryTree out;
  out.tree = model.description.tree;
  // It plans before it has seen that the checkpoint contradicts a tie of the config.
  out.tree.ties.insert(out.tree.ties.end(), model.description.untied.begin(), model.description.untied.end());
  out.four_bit = {static_cast<int32_t>(std::clamp<int64_t>(o.bnb_4bit_blocksize, 1, 1 << 20)),
                  o.bnb_4bit_use_double_quant};
  if ((o.load_in_4bit || o.load_in_8bit) && !model.description.bitsandbytes) {
    arch::QuantizeOptions rules;
    TRY(rules.skip_modules, requested_skip_list(o));
    rules.kept_off_accelerators = kept_off_accelerators(map, o.llm_int8_enable_fp32_cpu_offload);
    TRY(const arch::QuantizeRules decided, arch::quantize_rules(out.tree, rules));
    out.tree = arch::with_quantized_linears(
        out.tree, decided, o.load_in_4bit ? arch::QuantizedLinear::kLinear4bit : arch::QuantizedLinear::kLinear8bit);
    out.quantizer = compat::Quantizer::kBitsandbytes;
    return out;
  }
  const auto& stored = model.checkpoint->quantization();
  if (stored && o.compat != "accelerate" &&
      (stored->method == format::QuantMethod::kModelopt || stored->method == format::QuantMethod::kUnknown)) {
    if (stored->method_name == "nvfp4") return refuses_prequantized_nvfp4();
    out.notes.push_back(skipped_quantization(model, *stored));
    return out;
  }
  if (stored && o.compat != "accelerate") {
    auto native = arch::native_tree(out.tree, *stored,
                                    kept_off_accelerators(map, stored->bitsandbytes.llm_int8_enable_fp32_cpu_offload));
    if (native) {
      out.tree = *std::move(native);
      out.quantizer = stored->method == format::QuantMethod::kBitsAndBytes ? compat::Quantizer::kBitsandbytes
                                                                           : compat::Quantizer::kOther;
      out.four_bit.nested = stored->bitsandbytes.bnb_4bit_use_double_quant;
    } else if (native.error().code == ErrorCode::kUnsupported) {
      out.notes.push_back(
          fmt::format("The library's own quantizer for {} is not followed: modules are counted as they are before it "
                      "replaces them.",
                      stored->method_name));
    } else {
      return native.error();
    }
  }
  return out;
}

// --- its errors ---

std::string error_details(compat::Library library, const compat::CompatError& e) {
  JsonWriter details;
  details.begin_object().member("library", compat::library_name(library)).member("stage", compat::stage_name(e.stage));
  details.member("type", e.raised.type).end_object();
  return details.take();
}

Error library_error(const compat::CompatResult& result) {
  const compat::CompatError& e = *result.error;
  Error error = invalid(
      fmt::format("{} stops while {} with {}: {}", compat::library_name(result.library),
                  e.stage == compat::Stage::kBalance ? "balancing" : "planning", e.raised.type, e.raised.message),
      {"Without --compat Berth plans by its own rules, which take these budgets."});
  error.details_json = error_details(result.library, e);
  return error;
}

// --- what it comes to here ---

// Device of the largest part of a unit under the library's map.
std::optional<plan::DeviceName> unit_device(const OpenedModel& model, const sizing::Unit& unit,
                                            const plan::DeviceMap& map) {
  std::map<plan::DeviceName, uint64_t> bytes;
  for (const int32_t t : unit.tensors)
    if (const plan::DeviceName* d = map.lookup(model.spec().tensors[static_cast<size_t>(t)].name))
      bytes[*d] += model.storage[static_cast<size_t>(t)].bytes + 1;
  if (unit.tensors.empty())
    for (const std::string& path : unit.paths)
      if (const plan::DeviceName* d = map.lookup(path)) bytes[*d] += 1;
  std::optional<plan::DeviceName> most;
  for (const auto& [device, n] : bytes)
    if (!most || n > bytes[*most]) most = device;
  return most;
}

// The library's map in Berth's bytes and times: what is off the accelerators is brought to the main one for every
// token. Budgets are those of the machine, and may be exceeded.
std::optional<plan::Plan> plan_here(const OpenedModel& model, const PlanInputs& inputs, const plan::DeviceMap& map) {
  std::vector<machine::DeviceBudget> unlimited = inputs.budgets.devices;
  for (machine::DeviceBudget& b : unlimited) {
    b.budget_bytes = machine::kMaxMemoryBytes;
    b.overhead_bytes = b.margin_bytes = 0;
    b.left_out = false;
  }
  const machine::Machine& machine = inputs.machine;
  std::optional<size_t> main;
  for (const plan::DeviceName& d : map.devices())
    if (d.is_accelerator() && !main) main = machine.find(d.text());
  if (!main) main = machine.cpu();
  if (!main) return std::nullopt;
  std::vector<plan::Assignment> assignments;
  for (size_t u = 0; u < inputs.units.units.size(); ++u) {
    const sizing::Unit& unit = inputs.units.units[u];
    const size_t holder = unit.stored_with >= 0 ? static_cast<size_t>(unit.stored_with) : u;
    const auto name = unit_device(model, inputs.units.units[holder], map);
    const auto memory = name ? machine.find(name->text()) : std::nullopt;
    if (!memory) return std::nullopt;
    const bool table = static_cast<int32_t>(u) >= inputs.units.chain_size;
    const size_t computes = machine.devices[*memory].is_accelerator() || table ? *memory : *main;
    assignments.push_back({*memory, computes,
                           table                 ? plan::Access::kGather
                           : computes == *memory ? plan::Access::kCompute
                                                 : plan::Access::kStream,
                           ""});
  }
  plan::AssignRequest request{&inputs.units, &machine, unlimited, inputs.shape, "library"};
  request.stream = true;
  request.target = plan::Target::kTransformers;
  auto assigned = plan::assign(request, assignments);
  if (!assigned) return std::nullopt;
  for (plan::DeviceUse& use : assigned->devices)
    for (const machine::DeviceBudget& b : inputs.budgets.devices) {
      if (b.map_name != use.id) continue;
      use.budget_bytes = b.budget_bytes;
      use.overhead_bytes = b.overhead_bytes;
      use.margin_bytes = b.margin_bytes;
    }
  return *std::move(assigned);
}

// Whether Berth finds a place for whole blocks on accelerators alone, under the same budgets.
std::optional<plan::NativeAnswer> native_answer(const OpenedModel& model, const PlanInputs& inputs,
                                                const Options& options) {
  Options o = options;
  o.no_offload = true;
  o.pin.clear();
  auto request = plan_request(model, inputs, o);
  if (!request) return std::nullopt;
  request->strategy = "best";
  request->effort = 50000;
  request->with_change = nullptr;
  request->explain = plan::Explain::kNothing;
  const auto found = plan::make_plan(*request);
  if (!found && found.error().code != ErrorCode::kDoesNotFit) return std::nullopt;
  plan::NativeAnswer answer;
  answer.on_accelerators_only = found.has_value();
  if (found)
    for (const plan::DeviceUse& d : found->devices)
      if (d.weights_bytes > 0) answer.uses.push_back(plan::DeviceName::from_key(d.id));
  return answer;
}

std::optional<plan::NativeAnswer> native_answer(const OpenedModel& model, const PlanInputs& inputs,
                                                const Options& options, NativeAnswers* answers) {
  if (answers == nullptr) return native_answer(model, inputs, options);
  std::string budgets;
  for (const machine::DeviceBudget& b : inputs.budgets.devices)
    budgets += fmt::format("{}={} ", b.map_name, b.left_out ? 0 : b.usable_bytes());
  const auto known = answers->find(budgets);
  return known != answers->end() ? known->second
                                 : answers->emplace(budgets, native_answer(model, inputs, options)).first->second;
}

// What a library may fill: the budget, but for what the device takes before the first allocation. No margin of Berth's.
uint64_t library_limit(const machine::Machine& machine, const machine::DeviceBudget& budget) {
  const auto d = machine.find(budget.map_name);
  if (!d) return budget.budget_bytes;
  const machine::DeviceSpec& device = machine.devices[*d];
  return std::min(budget.budget_bytes, device.memory_bytes - std::min(device.memory_bytes, device.overhead_bytes));
}

bool is_fatal(plan::MapFaultKind kind) {
  using Kind = plan::MapFaultKind;
  return kind == Kind::kRefused || kind == Kind::kOverBudget || kind == Kind::kKvNotCounted ||
         kind == Kind::kNoRoomToStream || kind == Kind::kQuantizedRefused;
}

Error does_not_fit(const std::string& message, const std::string& device, const std::string& module, uint64_t needed,
                   uint64_t available) {
  Error e(ErrorCode::kDoesNotFit, message);
  JsonWriter details;
  details.begin_object()
      .member("device", device)
      .member("module", module)
      .member("needed_bytes", needed)
      .member("available_bytes", available);
  details.member("missing_bytes", needed - std::min(needed, available));
  // More than a device holds, or something the library does not do at all.
  details.member("proof", needed > available ? "volume" : "rule").end_object();
  e.details_json = details.take();
  return e;
}

// Fills the plan's warnings, and fails_here from the gravest of them.
void judge(const OpenedModel& model, const LibraryTree& library, const Options& o, bool users_map,
           const LibraryAsk& ask, LibraryPlan& planned) {
  const compat::CompatResult& result = planned.result;
  const PlanInputs& inputs = planned.planned.inputs;
  plan::MapFaultsRequest request;
  request.tree = &library.tree;
  request.map = &*result.map;
  std::vector<plan::DeviceLimit> limits;
  for (const machine::DeviceBudget& b : inputs.budgets.devices)
    if (b.map_name != "disk" && !b.left_out)
      limits.push_back({plan::DeviceName::from_key(b.map_name), library_limit(inputs.machine, b)});
  request.limits = limits;
  const sizing::TreeBytes bytes(library.tree, library.four_bit), wide(model.description.tree, library.four_bit);
  request.stored_bytes = [&](const std::string& path) { return bytes(path); };
  request.wide_bytes = [&](const std::string& path) { return wide(path); };
  std::vector<plan::KvShare> kv;
  for (const sizing::Unit& u : inputs.units.units)
    if (u.kv_bytes > 0) kv.push_back({u.path, u.kv_bytes});
  request.kv = kv;
  request.kv_for = fmt::format("{} tokens", group_digits(static_cast<uint64_t>(inputs.shape.ctx_size)));
  if (inputs.shape.batch > 1) request.kv_for += fmt::format(" x {} sequences", inputs.shape.batch);
  request.bitsandbytes = library.quantizer == compat::Quantizer::kBitsandbytes;
  request.enable_fp32_cpu_offload = o.llm_int8_enable_fp32_cpu_offload;
  request.map_is_users = users_map;
  request.planned = &result;
  bool away = false;
  for (const plan::DeviceName& d : result.map->devices()) away = away || !d.is_accelerator();
  if (away && !inputs.machine.accelerators().empty() && !ask.judge_only)
    request.native = native_answer(model, inputs, o, ask.answers);
  std::vector<std::string>& out = planned.planned.plan.warnings;
  out = library.notes;
  for (const plan::MapFault& fault : plan::map_faults(request)) {
    out.push_back(fault.message);
    if (planned.fails_here || !is_fatal(fault.kind)) continue;
    planned.fails_here =
        does_not_fit(fault.message, fault.device, fault.module, fault.needed_bytes, fault.available_bytes);
  }
  if (planned.here && !planned.fails_here)  // weights and KV cache fit; a forward pass may not
    for (const plan::DeviceUse& use : planned.here->devices) {
      const uint64_t needed = use.weights_bytes + use.kv_bytes + use.workspace_bytes + use.staging_bytes;
      const auto limit = std::find_if(limits.begin(), limits.end(),
                                      [&](const plan::DeviceLimit& l) { return l.device.text() == use.id; });
      if (limit == limits.end() || needed <= limit->budget_bytes) continue;
      out.push_back(
          fmt::format("Device {}: beside the weights, KV cache, activations for {} prompt tokens at once and what is "
                      "streamed in bring it to about {}, and it has {}.",
                      use.id, inputs.shape.prefill_chunk, format_bytes(needed), format_bytes(limit->budget_bytes)));
      planned.fails_here = does_not_fit(out.back(), use.id, "", needed, limit->budget_bytes);
      break;
    }
  for (const compat::LogFact& fact : result.log)
    if (fact.kind != compat::LogFact::Kind::kTiedSplit) out.push_back(compat::log_fact_text(fact, result.library));
  if (users_map) {
    const plan::AccelerateCheck check = plan::accelerate_check(library.tree, *result.map);
    if (!check.unknown_keys.empty())
      out.push_back(fmt::format(
          "accelerate warns that {} match no module, {} first.",
          check.unknown_keys.size() == 1 ? "one key does" : fmt::format("{} keys", check.unknown_keys.size()),
          quoted(check.unknown_keys.front())));
    if (!check.uncovered.empty())
      out.push_back(fmt::format("Dispatching raises ValueError: {} tensors have no device, {} first.",
                                check.uncovered.size(), quoted(check.uncovered.front())));
  }
}

// The part of a path that numbers a block: "model.layers.12" -> 12; -1 where there is none.
int32_t block_number(const std::string& path) {
  const size_t dot = path.rfind('.');
  const std::string last = dot == std::string::npos ? path : path.substr(dot + 1);
  return !last.empty() && last.size() <= 6 && last.find_first_not_of("0123456789") == std::string::npos
             ? static_cast<int32_t>(std::stol(last))
             : -1;
}

uint64_t parameter_bytes(const arch::Parameter& p) {
  return dtype_bytes(p.dtype, element_count(p.shape).value_or(0)).value_or(0);
}

// The model once loaded, where Transformers' planner counts otherwise: a packed weight of an odd number of elements
// ends in half a byte more, 8-bit modules that keep their wide weights have those, and two tensors that the config
// ties are two where the checkpoint has both and they differ.
uint64_t memory_footprint(const compat::CompatResult& result, const OpenedModel& model, const LibraryTree& library,
                          const Options& options) {
  uint64_t odd = 0, more = 0;
  arch::for_each_module(model.description.tree, [&](const std::string& path, const arch::Module& m) {
    for (const arch::Parameter& p : m.parameters)
      for (const auto& [target, source] : model.description.untied)
        if (target == arch::join_path(path, p.name)) more += parameter_bytes(p);
  });
  if (options.load_in_8bit && options.llm_int8_has_fp16_weight && !model.description.bitsandbytes)
    arch::for_each_module(library.tree, [&](const std::string& path, const arch::Module& m) {
      if (!m.same_as.empty() || m.class_name != "Linear8bitLt") return;
      const arch::Module* wide = model.description.tree.find(path);
      for (const arch::Parameter& p : wide->parameters)
        if (p.name == "weight") more += parameter_bytes(p) - element_count(p.shape).value_or(0);
    });
  if (options.compat == "transformers" && library.quantizer == compat::Quantizer::kBitsandbytes)
    arch::for_each_module(library.tree, [&](const std::string&, const arch::Module& m) {
      if (!m.same_as.empty() || m.class_name != "Linear4bit") return;
      for (const arch::Parameter& p : m.parameters)
        if (p.name == "weight") odd += static_cast<uint64_t>(element_count(p.shape).value_or(0)) % 2;
    });
  return result.total.as_bytes() + (odd + 1) / 2 + more;
}

plan::Plan plan_of(const compat::CompatResult& result, const PlanInputs& inputs, uint64_t footprint,
                   std::string strategy) {
  plan::Plan out;
  out.strategy = std::move(strategy);
  out.shape = inputs.shape;
  out.memory_footprint_bytes = footprint;
  std::string main = "cpu";
  for (const plan::DeviceName& d : result.map->devices())
    if (d.is_accelerator()) {
      main = d.text();
      break;
    }
  const auto machine_id = [&](const std::string& name) {
    const auto d = inputs.machine.find(name);
    return d ? inputs.machine.devices[*d].id : name;
  };
  for (const auto& [device, bytes] : result.filled.entries) {
    plan::DeviceUse use;
    use.id = device.text();
    use.machine_id = machine_id(use.id);
    use.budget_bytes = bytes.as_bytes();
    out.devices.push_back(std::move(use));
  }
  for (const auto& [device, bytes] : result.counted) {
    const std::string name = device.text();
    auto use =
        std::find_if(out.devices.begin(), out.devices.end(), [&](const plan::DeviceUse& d) { return d.id == name; });
    if (use == out.devices.end()) {  // the disk is always there, and a user's map may name anything
      const auto d = inputs.machine.find(name);
      plan::DeviceUse added;
      added.id = name;
      added.machine_id = machine_id(name);
      added.budget_bytes = d ? inputs.machine.devices[*d].memory_bytes : 0;
      use = out.devices.insert(out.devices.end(), std::move(added));
    }
    use->weights_bytes = bytes.as_bytes();
  }
  for (const compat::CompatUnit& u : result.units) {
    if (!u.device) continue;
    plan::PlacedUnit placed;
    placed.kind = u.is_block ? sizing::UnitKind::kLayer : sizing::UnitKind::kMlp;
    placed.path = u.path;
    placed.paths = {u.path};
    placed.layer = u.is_block ? block_number(u.path) : -1;
    placed.device = u.device->text();
    const bool away = !u.device->is_accelerator() && main != "cpu";
    placed.computed_on = away ? main : u.device->is_disk() ? "cpu" : placed.device;
    placed.access = placed.access_prefill =
        placed.computed_on == placed.device ? plan::Access::kCompute : plan::Access::kStream;
    placed.stored_bytes = placed.touched_bytes = u.bytes.as_bytes();
    placed.reason =
        away ? "stored there; copied to the main accelerator for every call" : "the library's order and budgets";
    out.units.push_back(std::move(placed));
  }
  // Every device that computes is listed, so that the document reads back.
  for (const plan::PlacedUnit& u : out.units)
    for (const std::string& id : {u.device, u.computed_on})
      if (out.device(id) == nullptr) {
        plan::DeviceUse added;
        added.id = id;
        added.machine_id = machine_id(id);
        out.devices.push_back(std::move(added));
      }
  return out;
}

// What is asked of the library.
struct Asked {
  std::optional<compat::Revision> transformers;  // nothing: accelerate
  std::optional<std::vector<compat::MemoryEntry>> max_memory;
  std::optional<compat::Mode> mode;  // or
  std::optional<plan::DeviceMap> map;
  std::string strategy;  // the mode's name, or "custom"
};

// All but the map, which only a machine's devices give a meaning.
Result<Asked> asked_of(const Options& options) {
  Asked out;
  out.transformers = transformers_revision(options.compat);
  if (!out.transformers && options.compat != "accelerate") {
    const std::vector<std::string> libraries = {"transformers", "accelerate"};
    return invalid(fmt::format("--compat must be transformers or accelerate, not {}{}", quoted(options.compat),
                               did_you_mean(options.compat, libraries)));
  }
  if (!out.transformers && (options.load_in_4bit || options.load_in_8bit))
    return Error(
        ErrorCode::kUnsupported,
        "--compat accelerate with 4 or 8 bit: infer_auto_device_map knows no quantizer, and load_and_quantize_model, "
        "which counts everything outside its skip list at the narrow type (embeddings and experts too, which it "
        "does not narrow), is not followed",
        {"--compat transformers plans quantized models as from_pretrained loads them.",
         "A *.tree.json of the quantized model is planned by --from-jsonl as infer_auto_device_map would."});
  if (!options.max_memory.empty()) {
    TRY(out.max_memory, memory_entries(options.max_memory));
  }
  out.strategy = options.device_map == "best" || options.device_map == "auto" ? "balanced" : options.device_map;
  out.mode = compat::mode_from_name(out.strategy);
  return out;
}

Status read_map(const Options& options, const machine::Machine& machine, Asked& asked) {
  if (asked.mode) return {};
  asked.strategy = "custom";
  TRY(const auto map, custom_map(options, machine));
  if (!map) {
    const std::vector<std::string> modes = {"auto", "balanced", "balanced_low_0", "sequential"};
    return invalid(fmt::format("--device-map {} is no mode of {}{}", quoted(options.device_map), options.compat,
                               did_you_mean(options.device_map, modes)),
                   {"Modes are auto, balanced, balanced_low_0 and sequential; a map is a JSON file or inline JSON."});
  }
  asked.map.emplace();
  for (const auto& [key, device] : map->entries) {
    const plan::DeviceName name = device.normalized();
    if (!name.is_cpu() && !name.is_disk() && !machine.find(name.text()))
      return invalid(fmt::format("device map: device {} is not one of this machine ({})", quoted(device.text()),
                                 join(machine.names(), ", ")));
    asked.map->entries.emplace(key, name);
  }
  return {};
}

Result<compat::CompatResult> ask_library(const LibraryTree& library, const machine::Machine& machine,
                                         const Options& options, const Asked& asked) {
  std::vector<uint64_t> free_bytes;
  for (const size_t d : machine.accelerators()) {
    const machine::DeviceSpec& device = machine.devices[d];
    free_bytes.push_back(device.memory_bytes - std::min(device.memory_bytes, device.overhead_bytes));
  }
  const auto cpu = machine.cpu();
  const uint64_t ram = cpu ? machine.devices[*cpu].memory_bytes : 0;
  const auto fill = [&](auto& request) {
    if (asked.mode) request.mode = *asked.mode;
    request.map = asked.map;
    request.max_memory = asked.max_memory;
    request.free_bytes = free_bytes;
    request.available_ram = ram;
  };
  if (!asked.transformers) {
    compat::AccelerateRequest request;
    fill(request);
    return compat::plan_as_accelerate(library.tree, request);
  }
  compat::TransformersRequest request;
  fill(request);
  request.quantizer = library.quantizer;
  request.revision = *asked.transformers;
  request.enable_fp32_cpu_offload = options.llm_int8_enable_fp32_cpu_offload;
  return compat::plan_as_transformers(library.tree, request);
}

}  // namespace

Result<compat::CompatResult> library_result(const OpenedModel& model, const Options& options) {
  TRY(Asked asked, asked_of(options));
  machine::Machine machine;
  if (!asked.max_memory || !asked.mode) {
    std::vector<std::string> notes;
    TRY(machine, find_machine(options, notes));
  }
  TRY_STATUS(read_map(options, machine, asked));
  TRY(const LibraryTree library, library_tree(model, options, asked.map));
  return ask_library(library, machine, options, asked);
}

Result<LibraryPlan> plan_as_library(const OpenedModel& model, const Options& options, const LibraryAsk& ask) {
  TRY(Asked asked, asked_of(options));
  LibraryPlan out;
  Options native = options;
  native.compat.clear();
  native.device_map = "best";
  native.target = "transformers";
  if (asked.max_memory) {
    const auto read = compat::read_max_memory(*asked.max_memory);
    if (!compat::raised(read))
      native.max_memory = caps_text(std::get<compat::Budgets>(read));
    else
      native.max_memory.clear();  // the library's planner will say so itself
  }
  TRY(out.planned.inputs, plan_inputs(model, native));
  const PlanInputs& inputs = out.planned.inputs;
  TRY_STATUS(read_map(options, inputs.machine, asked));
  TRY(const LibraryTree library, library_tree(model, options, asked.map));
  TRY(out.result, ask_library(library, inputs.machine, options, asked));
  if (!out.result.map) return library_error(out.result);
  out.planned.plan = plan_of(out.result, inputs, memory_footprint(out.result, model, library, options), asked.strategy);
  out.here = plan_here(model, inputs, *out.result.map);
  if (out.here) out.planned.plan.estimate = out.here->estimate;
  judge(model, library, native, asked.map.has_value(), ask, out);
  if (options.purpose == "training")
    for (std::string& fault : training_faults(model, inputs, *out.result.map))
      out.planned.plan.warnings.push_back(std::move(fault));
  if (asked.max_memory)
    for (std::string& note : compat::max_memory_notes(*asked.max_memory))
      out.planned.plan.warnings.push_back(std::move(note));
  return out;
}

plan::PlanDocument library_document(const OpenedModel& model, const LibraryPlan& planned, const Options& options) {
  plan::PlanDocument d = plan_document(model, planned.planned, options);
  d.compat = options.compat;
  d.device_map = *planned.result.map;
  d.sizes = {};
  if (planned.fails_here) {
    JsonWriter error;
    write_error_object(*planned.fails_here, error);
    d.error = error.take();
    d.fits = false;
  }
  if (const auto& e = planned.result.error) d.library_error = error_details(planned.result.library, *e);
  JsonWriter budgets;
  budgets.begin_object();
  for (const auto& [device, bytes] : planned.result.filled.entries) budgets.key(device.text()).raw(bytes.text());
  budgets.end_object();
  d.budgets = budgets.take();
  return d;
}

std::string library_plan_text(const OpenedModel& model, const LibraryPlan& planned, const TextStyle& style) {
  plan::Plan shown = planned.planned.plan;
  // Beside the main stack of blocks, one line for each entry of the map.
  std::map<std::string, uint64_t> stacks;
  const auto stack_of = [](const std::string& path) {
    return path.substr(0, path.rfind('.') == std::string::npos ? 0 : path.rfind('.'));
  };
  for (const plan::PlacedUnit& u : shown.units)
    if (u.layer >= 0) stacks[stack_of(u.path)] += u.stored_bytes + 1;
  std::string main;
  for (const auto& [stack, bytes] : stacks)
    if (main.empty() || bytes > stacks[main]) main = stack;
  std::vector<plan::PlacedUnit> units;
  std::map<std::pair<std::string, std::string>, size_t> by_entry;
  for (plan::PlacedUnit& u : shown.units) {
    if (u.layer >= 0 && stack_of(u.path) == main) {
      units.push_back(std::move(u));
      continue;
    }
    const auto* entry = planned.result.map->find(u.path);
    // An entry that covers the stack too is named by the part beside it.
    std::string name = entry == nullptr || (!main.empty() && (entry->first.empty() || main.starts_with(entry->first)))
                           ? u.path.substr(0, u.path.find('.', u.path.find('.') + 1))
                           : entry->first;
    const auto [at, added] = by_entry.try_emplace({name, u.device}, units.size());
    if (!added) {
      units[at->second].stored_bytes += u.stored_bytes;
      continue;
    }
    u.path = name;
    u.layer = -1;
    u.reason = u.computed_on == u.device ? "" : "copied there for every call";
    units.push_back(std::move(u));
  }
  shown.units = std::move(units);
  const std::string title =
      fmt::format("{}  as {} plans it ({}), {} by its count; context {}, batch {}", model.name,
                  compat::library_name(planned.result.library), shown.strategy,
                  format_bytes(shown.memory_footprint_bytes), shown.shape.ctx_size, shown.shape.batch);
  return plan::plan_picture(shown, {style.width, style.color}, title);
}

}  // namespace berth::engine
