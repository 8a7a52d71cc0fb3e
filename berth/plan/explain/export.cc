// plan/explain/export.cc — see export.h.
#include "berth/plan/explain/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/tensor/dtype.h"

namespace berth::plan {
namespace {

constexpr std::pair<ExportTarget, std::string_view> kTargets[] = {{ExportTarget::kTransformers, "transformers"},
                                                                  {ExportTarget::kAccelerate, "accelerate"},
                                                                  {ExportTarget::kLlamaCpp, "llama.cpp"},
                                                                  {ExportTarget::kVllm, "vllm"}};

std::optional<int> accelerator_number(const std::string& id) {
  const auto index = DeviceName::from_key(id).index();
  return index ? std::optional(static_cast<int>(*index)) : std::nullopt;
}

// A Python string literal.
std::string python_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

// "model.layers.2" before "model.layers.10": runs of digits by their number, all else by its characters.
bool by_number(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    size_t m = i, n = j;
    while (m < a.size() && digit(a[m])) ++m;
    while (n < b.size() && digit(b[n])) ++n;
    const std::string_view x = a.substr(i, m - i), y = b.substr(j, n - j);
    if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    i = m, j = n;
  }
  return a.size() - i < b.size() - j;
}

// For a POSIX shell.
std::string shell_quoted(std::string_view text) {
  if (!text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/,=:") ==
          std::string_view::npos)
    return std::string(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

// What was asked of the plan, by option name.
class AskedOptions {
 public:
  explicit AskedOptions(const std::string& json) : document_(JsonDocument::parse(json.empty() ? "{}" : json)) {}
  bool flag(std::string_view name) const { return document_ && document_->root()[name].as_bool().value_or(false); }
  std::string text(std::string_view name) const {
    if (!document_) return "";
    return std::string(document_->root()[name].as_string().value_or(""));
  }
  std::optional<int64_t> number(std::string_view name) const {
    return document_ ? document_->root()[name].as_int64() : std::nullopt;
  }

 private:
  Result<JsonDocument> document_;
};

bool uses(const Plan& plan, std::string_view id) {
  return std::any_of(plan.units.begin(), plan.units.end(), [&](const PlacedUnit& u) { return u.device == id; });
}

// Layers whose parts are not all on one device.
int cut_layers(const Plan& plan) {
  std::map<int32_t, std::set<std::string>> devices;
  for (const PlacedUnit& u : plan.units)
    if (u.layer >= 0) devices[u.layer].insert(u.device);
  return static_cast<int>(
      std::count_if(devices.begin(), devices.end(), [](const auto& d) { return d.second.size() > 1; }));
}

std::string bnb_config(const AskedOptions& asked, const std::string& quantization) {
  const bool four = asked.flag("load-in-4bit"), eight = asked.flag("load-in-8bit");
  if (!four && !eight) {
    (void)quantization;  // quantized in the checkpoint: its own config says so
    return "";
  }
  std::string out = "BitsAndBytesConfig(\n";
  if (four) {
    out += "        load_in_4bit=True,\n";
    const std::string type = asked.text("bnb-4bit-quant-type");
    out += fmt::format("        bnb_4bit_quant_type={},\n", python_quoted(type.empty() ? "nf4" : type));
    if (asked.flag("bnb-4bit-use-double-quant")) out += "        bnb_4bit_use_double_quant=True,\n";
    out += "        bnb_4bit_compute_dtype=torch.bfloat16,\n";
  } else {
    out += "        load_in_8bit=True,\n";
  }
  if (asked.flag("llm-int8-enable-fp32-cpu-offload")) out += "        llm_int8_enable_fp32_cpu_offload=True,\n";
  if (const std::string skip = asked.text("llm-int8-skip-modules"); !skip.empty()) {
    out += "        llm_int8_skip_modules=[";
    for (const std::string& m : split(skip, ',')) out += python_quoted(m) + ", ";
    out.resize(out.size() - 2);
    out += "],\n";
  }
  return out + "    )";
}

void python_notes(const PlanDocument& d, Exported& out) {
  if (const int cut = cut_layers(d.plan); cut > 0)
    out.notes.push_back(
        fmt::format("{} cut across devices. accelerate moves activations between the parts, but a class it must not "
                    "split can fail; "
                    "--target transformers plans whole layers.",
                    cut == 1 ? "1 decoder layer is" : fmt::format("{} decoder layers are", cut)));
  bool computed_on_cpu = false;
  for (const PlacedUnit& u : d.plan.units) computed_on_cpu |= u.device == "cpu" && u.computed_on == "cpu";
  const bool accelerators = std::any_of(d.plan.units.begin(), d.plan.units.end(),
                                        [](const PlacedUnit& u) { return accelerator_number(u.device).has_value(); });
  if (computed_on_cpu && accelerators)
    out.notes.push_back(
        "What this plan computes or gathers on the cpu, accelerate streams to the first card for every use: slower "
        "than estimated here.");
  if (uses(d.plan, "disk")) out.notes.push_back("Modules on the disk need an offload folder with free space for them.");
  out.notes.push_back(
      "The KV cache and activations are on the cards as well; the plan has left room for them, the library does not "
      "check it.");
}

Exported to_transformers(const PlanDocument& d) {
  Exported out;
  const AskedOptions asked(d.options);
  const std::string config = bnb_config(asked, d.model.quantization);
  out.text = "import torch\nfrom transformers import AutoModelForCausalLM" +
             std::string(config.empty() ? "" : ", BitsAndBytesConfig") + "\n\n";
  out.text += "device_map = " + python_device_map(d.device_map, 0) + "\n\n";
  out.text += fmt::format("model = AutoModelForCausalLM.from_pretrained(\n    {},\n    device_map=device_map,\n",
                          python_quoted(d.model.name));
  if (!d.model.dtype.empty()) out.text += fmt::format("    dtype=torch.{},\n", d.model.dtype);
  if (!config.empty()) out.text += "    quantization_config=" + config + ",\n";
  if (uses(d.plan, "disk")) out.text += "    offload_folder=\"offload\",\n";
  out.text += ")\n";
  python_notes(d, out);
  return out;
}

Exported to_accelerate(const PlanDocument& d) {
  Exported out;
  out.text =
      "import torch\nfrom accelerate import init_empty_weights, load_checkpoint_and_dispatch\n"
      "from transformers import AutoConfig, AutoModelForCausalLM\n\n";
  out.text += "device_map = " + python_device_map(d.device_map, 0) + "\n\n";
  out.text += fmt::format(
      "config = AutoConfig.from_pretrained({})\nwith init_empty_weights():\n    model = "
      "AutoModelForCausalLM.from_config(config",
      python_quoted(d.model.name));
  if (!d.model.dtype.empty()) out.text += fmt::format(", dtype=torch.{}", d.model.dtype);
  out.text += ")\nmodel.tie_weights()\n";
  out.text += fmt::format(
      "model = load_checkpoint_and_dispatch(\n    model,\n    {},  # the folder with the weights\n    "
      "device_map=device_map,\n",
      python_quoted(d.model.name));
  if (uses(d.plan, "disk")) out.text += "    offload_folder=\"offload\",\n";
  out.text += ")\n";
  const AskedOptions asked(d.options);
  if (asked.flag("load-in-4bit") || asked.flag("load-in-8bit"))
    out.notes.push_back(
        "load_checkpoint_and_dispatch does not quantize: the plan's 4 or 8 bit sizes hold for a checkpoint that is "
        "quantized already.");
  python_notes(d, out);
  return out;
}

// "3|4|5" and ranges kept as alternatives: llama.cpp's rules are regular expressions.
std::string alternatives(const std::set<int32_t>& layers) {
  std::vector<std::string> parts;
  for (const int32_t l : layers) parts.push_back(std::to_string(l));
  return parts.size() == 1 ? parts.front() : "(" + join(parts, "|") + ")";
}

// The accelerator that a layer's cache and default tensors go to.
std::map<int32_t, int> layer_accelerators(const Plan& plan) {
  std::map<int32_t, int> out;
  int32_t layers = 0;
  for (const PlacedUnit& u : plan.units) layers = std::max(layers, u.layer + 1);
  for (const PlacedUnit& u : plan.units) {
    const auto number = accelerator_number(u.computed_on);
    if (u.layer >= 0 && number &&
        (u.kind == sizing::UnitKind::kAttention || u.kind == sizing::UnitKind::kLayer || !out.contains(u.layer)))
      out[u.layer] = *number;
  }
  // A layer wholly elsewhere goes with the one before it.
  int last = out.empty() ? 0 : out.begin()->second;
  for (int32_t l = 0; l < layers; ++l) {
    if (const auto at = out.find(l); at != out.end())
      last = at->second;
    else
      out[l] = last;
  }
  return out;
}

Exported to_llama_cpp(const PlanDocument& d) {
  Exported out;
  const std::vector<std::string> overrides = tensor_overrides(d.plan, out.notes);
  const LlamaCppSplit shared = llama_cpp_split(d.plan);
  std::vector<std::string> lines;
  lines.push_back(shared.devices.empty() ? "--n-gpu-layers 0" : "--n-gpu-layers 999");
  lines.push_back("--fit off");
  if (!shared.devices.empty()) {
    std::vector<std::string> devices, split;
    for (const int n : shared.devices) devices.push_back(fmt::format("CUDA{}", n));
    for (const int n : shared.layers) split.push_back(std::to_string(n));
    split.back() = std::to_string(shared.layers.back() + 1);
    lines.push_back("--device " + join(devices, ","));
    if (split.size() > 1) lines.push_back("--split-mode layer --tensor-split " + join(split, ","));
  }
  for (const std::string& rule : overrides) lines.push_back("--override-tensor " + shell_quoted(rule));
  const sizing::RunShape& s = d.plan.shape;
  lines.push_back(
      fmt::format("--ctx-size {} --parallel {} --ubatch-size {}", s.ctx_size * s.batch, s.batch, s.prefill_chunk));
  const std::string_view kv = s.kv_dtype == DType::kF32 ? "f32" : s.kv_dtype == DType::kBF16 ? "bf16" : "f16";
  lines.push_back(fmt::format("--cache-type-k {} --cache-type-v {}", kv, kv));
  out.text = join(lines, " \\\n  ") + "\n";
  if (uses(d.plan, "disk"))
    out.notes.push_back("llama.cpp keeps what is on the disk in the cpu's mapped file: its pages are read on demand.");
  for (const PlacedUnit& u : d.plan.units)
    if (u.access == Access::kStream && u.device != "disk") {
      out.notes.push_back("llama.cpp computes on the cpu what this plan brings to a card for each use.");
      break;
    }
  return out;
}

Exported to_vllm(const PlanDocument& d) {
  Exported out;
  std::string prefix;
  std::vector<int> layers;  // of the accelerators that have some: a stage each
  std::vector<std::string> cards;
  const std::vector<int> by_card = layers_by_accelerator(d.plan);
  for (size_t k = 0; k < by_card.size(); ++k) {
    if (by_card[k] == 0) continue;
    layers.push_back(by_card[k]);
    cards.push_back(std::to_string(k));
  }
  if (layers.size() < by_card.size() && !layers.empty()) prefix = "CUDA_VISIBLE_DEVICES=" + join(cards, ",") + " ";
  std::vector<std::string> lines = {"vllm serve " + shell_quoted(d.model.name)};
  if (layers.size() > 1) {
    std::vector<std::string> parts;
    for (const int n : layers) parts.push_back(std::to_string(n));
    prefix += "VLLM_PP_LAYER_PARTITION=" + join(parts, ",") + " ";
    lines.push_back(fmt::format("--pipeline-parallel-size {}", layers.size()));
  }
  const sizing::RunShape& s = d.plan.shape;
  lines.push_back(fmt::format("--max-model-len {} --max-num-seqs {}", s.ctx_size, s.batch));
  if (!d.model.dtype.empty()) lines.push_back("--dtype " + d.model.dtype);
  uint64_t away = 0;
  double share = 0;
  for (const PlacedUnit& u : d.plan.units)
    if (!accelerator_number(u.device)) away += u.stored_bytes;
  for (const DeviceUse& use : d.plan.devices)
    if (accelerator_number(use.id) && use.budget_bytes > 0)
      share = std::max(share, static_cast<double>(use.used()) / static_cast<double>(use.budget_bytes));
  if (away > 0 && !layers.empty()) {
    const uint64_t each = ceil_div<uint64_t>(away, layers.size());
    lines.push_back(fmt::format("--cpu-offload-gb {:.1f}", static_cast<double>(each) / (1 << 30) + 0.05));
    out.notes.push_back(
        "vLLM chooses itself what it keeps on the host and streams it for each use; the plan's choice of modules is "
        "lost.");
  }
  if (share > 0) lines.push_back(fmt::format("--gpu-memory-utilization {:.2f}", std::min(0.99, share + 0.02)));
  const AskedOptions asked(d.options);
  if (asked.flag("load-in-4bit")) {
    lines.push_back("--quantization bitsandbytes");
    out.notes.push_back("vLLM had bitsandbytes in older releases and has not in 0.33, which refuses the option.");
  }
  if (asked.flag("load-in-8bit"))
    out.notes.push_back("vLLM cannot make LLM.int8 of a checkpoint on load; as written, it would hold it in 16 bit.");
  out.text = prefix + join(lines, " \\\n  ") + "\n";
  if (layers.size() > 1)
    out.notes.push_back(
        "vLLM's stages are whole layers on cards of one size; parts of layers and unequal cards are rounded to that.");
  if (layers.empty()) out.notes.push_back("The plan uses no accelerator; vLLM needs its CPU build for that.");
  if (uses(d.plan, "disk")) out.notes.push_back("vLLM has no disk offload.");
  return out;
}

}  // namespace

Result<ExportTarget> parse_export_target(std::string_view text) {
  std::vector<std::string> names;
  for (const auto& [target, name] : kTargets) {
    if (name == text) return target;
    names.emplace_back(name);
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("plans cannot be exported to {}{}", quoted(text), did_you_mean(text, names)),
               {"Targets are " + join(names, ", ") + "."});
}

std::string python_device_map(const DeviceMap& map, int indent) {
  const std::string pad(static_cast<size_t>(indent), ' ');
  std::string out = "{\n";
  std::vector<std::pair<std::string, DeviceName>> entries(map.entries.begin(), map.entries.end());
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return by_number(a.first, b.first); });
  for (const auto& [path, device] : entries)
    out += fmt::format("{}    {}: {},\n", pad, python_quoted(path),
                       device.index() ? std::to_string(*device.index()) : python_quoted(device.text()));
  return out + pad + "}";
}

std::vector<int> layers_by_accelerator(const Plan& plan) {
  int most = -1;
  for (const PlacedUnit& u : plan.units)
    for (const std::string& id : {u.device, u.computed_on})
      if (const auto number = accelerator_number(id)) most = std::max(most, *number);
  std::vector<int> out(static_cast<size_t>(most + 1), 0);
  if (out.empty()) return out;
  for (const auto& [layer, device] : layer_accelerators(plan)) ++out[static_cast<size_t>(device)];
  return out;
}

LlamaCppSplit llama_cpp_split(const Plan& plan) {
  LlamaCppSplit out;
  const auto index_of = [&](int device) {
    const auto at = std::find(out.devices.begin(), out.devices.end(), device);
    if (at != out.devices.end()) return static_cast<size_t>(at - out.devices.begin());
    out.devices.push_back(device);
    out.layers.push_back(0);
    return out.devices.size() - 1;
  };
  const std::map<int32_t, int> wanted = layer_accelerators(plan);
  if (!layers_by_accelerator(plan).empty())
    for (const auto& [layer, device] : wanted) ++out.layers[index_of(device)];
  // Accelerators that hold no layer, but a head or a table.
  for (const PlacedUnit& u : plan.units)
    if (const auto number = accelerator_number(u.device)) index_of(*number);
  size_t k = 0;
  int taken = 0;
  for (const auto& [layer, device] : wanted) {
    while (k < out.layers.size() && taken == out.layers[k]) ++k, taken = 0;
    if (k == out.layers.size()) break;
    out.home[layer] = out.devices[k];
    ++taken;
  }
  return out;
}

std::vector<std::string> tensor_overrides(const Plan& plan, std::vector<std::string>& notes) {
  using sizing::UnitKind;
  const LlamaCppSplit shared = llama_cpp_split(plan);
  const std::map<int32_t, int>& home = shared.home;
  std::vector<std::string> rules;
  if (shared.devices.empty()) return rules;
  const auto buffer_of = [](const PlacedUnit& u) {
    const auto number = accelerator_number(u.device);
    return number ? fmt::format("CUDA{}", *number) : std::string("CPU");
  };
  // Expert banks first: the rule for a layer's other MLP tensors would match them too.
  const std::pair<UnitKind, const char*> kinds[] = {
      {UnitKind::kExpertBank, "ffn_.*_exps\\."},
      {UnitKind::kMlp, "(ffn_|post_ffw|exp_probs)"},
      {UnitKind::kAttention, "(attn_|ssm_|post_attention|inp_gate|proj|layer_output_scale)"},
      {UnitKind::kLayer, ""}};
  bool kv_elsewhere = false;
  for (const auto& [kind, pattern] : kinds) {
    std::map<std::string, std::set<int32_t>> away;     // buffer -> layers
    std::map<std::string, std::set<int32_t>> at_home;  // layers of this kind that a later, wider rule must not catch
    for (const PlacedUnit& u : plan.units) {
      if (u.layer < 0 || u.kind != kind) continue;
      const std::string buffer = buffer_of(u);
      const bool here = buffer == fmt::format("CUDA{}", home.at(u.layer));
      if (!here) away[buffer].insert(u.layer);
      if (!here && (kind == UnitKind::kAttention || kind == UnitKind::kLayer)) kv_elsewhere = true;
      if (here && kind == UnitKind::kExpertBank)
        for (const PlacedUnit& m : plan.units)
          if (m.layer == u.layer && m.kind == UnitKind::kMlp && buffer_of(m) != buffer) at_home[buffer].insert(u.layer);
    }
    for (const auto& [buffer, layers] : at_home)
      rules.push_back(fmt::format("blk\\.{}\\.{}={}", alternatives(layers), pattern, buffer));
    for (const auto& [buffer, layers] : away)
      rules.push_back(fmt::format("blk\\.{}\\.{}={}", alternatives(layers), pattern, buffer));
  }
  for (const PlacedUnit& u : plan.units) {
    if (u.kind == UnitKind::kHead) rules.push_back("^output(_norm)?\\.=" + buffer_of(u));
    if (u.kind == UnitKind::kTable && u.path.find("per_layer") != std::string::npos)
      rules.push_back("^per_layer_token_embd\\.=" + buffer_of(u));
    else if (u.kind == UnitKind::kTable && u.stored_bytes > 0)
      rules.push_back("^token_embd\\.=" + buffer_of(u));
  }
  if (kv_elsewhere)
    notes.push_back(
        "llama.cpp keeps a layer's KV cache with the card that the layer is shared out to, also where its attention "
        "weights are elsewhere; the plan has both together.");
  return rules;
}

Exported export_plan(const PlanDocument& document, ExportTarget target) {
  switch (target) {
    case ExportTarget::kTransformers:
      return to_transformers(document);
    case ExportTarget::kAccelerate:
      return to_accelerate(document);
    case ExportTarget::kLlamaCpp:
      return to_llama_cpp(document);
    case ExportTarget::kVllm:
      return to_vllm(document);
  }
  return {};
}

}  // namespace berth::plan
