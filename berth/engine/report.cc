// engine/report.cc — see report.h.
#include "berth/engine/report.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/base/version.h"

namespace berth::engine {
namespace {

std::string bar(double share, int width) {
  const int filled = std::clamp(static_cast<int>(share * width + 0.5), 0, width);
  std::string out;
  for (int i = 0; i < width; ++i) out += i < filled ? "█" : "·";
  return out;
}

std::string paint(std::string_view text, int color, const TextStyle& style) {
  return style.color ? fmt::format("\x1b[{}m{}\x1b[0m", color, text) : std::string(text);
}

// Cells of one device's bar: weights, KV, workspace, rest, free.
std::string device_bar(const plan::DeviceUse& d, int width, const TextStyle& style) {
  const uint64_t other = d.staging_bytes + d.overhead_bytes + d.margin_bytes;
  const uint64_t parts[] = {d.weights_bytes, d.kv_bytes, d.workspace_bytes, other};
  static constexpr const char* kCells[] = {"█", "▓", "▒", "░"};
  static constexpr int kColors[] = {34, 35, 33, 90};
  std::string out;
  int at = 0;
  uint64_t sum = 0;
  for (size_t i = 0; i < std::size(parts); ++i) {
    sum += parts[i];
    const int end = d.budget_bytes == 0 ? 0 : static_cast<int>(static_cast<double>(sum) / static_cast<double>(d.budget_bytes) * width + 0.5);
    std::string run;
    for (; at < std::min(end, width); ++at) run += kCells[i];
    if (!run.empty()) out += paint(run, kColors[i], style);
  }
  for (; at < width; ++at) out += "·";
  return out;
}

char device_letter(const std::string& id) { return id == "cpu" ? 'c' : id == "disk" ? 'd' : id.empty() ? '?' : id.back(); }

// One character per layer half: where attention and MLP live.
std::string layer_strip(const PlannedModel& planned) {
  const auto& units = planned.inputs.units;
  std::map<int32_t, std::string> by_layer;
  for (int32_t u = 0; u < units.chain_size; ++u) {
    const int32_t layer = units.units[static_cast<size_t>(u)].layer;
    if (layer >= 0) by_layer[layer] += device_letter(planned.plan.units[static_cast<size_t>(u)].device);
  }
  std::string out;
  for (const auto& [layer, letters] : by_layer) {
    if (layer > 0 && layer % 10 == 0) out += ' ';
    const bool whole = letters.find_first_not_of(letters[0]) == std::string::npos;
    out += whole ? std::string(1, letters[0]) : "[" + letters + "]";
  }
  return out;
}

}  // namespace

plan::DeviceMap device_map_of(const OpenedModel& model, const plan::Plan& plan) {
  plan::DeviceMap map;
  for (const plan::PlacedUnit& u : plan.units)
    for (const std::string& path : u.paths) map.entries[path] = plan::DeviceName::from_key(u.device);
  std::vector<plan::TensorPlace> places = plan::expanded(model.description.tree, map);
  // Buffers and skipped towers follow the last module before them that has a device.
  std::optional<plan::DeviceName> last;
  for (const plan::TensorPlace& p : places)
    if (p.device) {
      last = p.device;
      break;
    }
  for (plan::TensorPlace& p : places) {
    if (!p.device) p.device = last;
    last = p.device;
  }
  return plan::collapsed(model.description.tree, places);
}

std::string plan_text(const OpenedModel& model, const PlannedModel& planned, const TextStyle& style) {
  const plan::Plan& p = planned.plan;
  std::string out = fmt::format("{}  {}, {} parameters, {} stored; context {}, batch {}, KV cache {}\n", model.name,
                                model.spec().architecture, group_digits(model.parameters()), format_bytes(p.memory_footprint_bytes),
                                p.shape.ctx_size, p.shape.batch, dtype_info(p.shape.kv_dtype).torch);
  const int width = std::clamp(style.width - 44, 10, 40);
  for (const plan::DeviceUse& d : p.devices) {
    if (d.used() == d.overhead_bytes + d.margin_bytes) continue;
    out += fmt::format("  {:<10} {} {:>9} of {:<9} free {}\n", fmt::format("{} {}", d.id, d.machine_id == d.id ? "" : d.machine_id),
                       device_bar(d, width, style), format_bytes(d.used()), format_bytes(d.budget_bytes), format_bytes(d.free_bytes()));
    out += fmt::format("  {:<10} weights {}, KV cache {}, workspace {}{}\n", "", format_bytes(d.weights_bytes), format_bytes(d.kv_bytes),
                       format_bytes(d.workspace_bytes),
                       d.overhead_bytes + d.margin_bytes + d.staging_bytes > 0
                           ? fmt::format(", other {}", format_bytes(d.overhead_bytes + d.margin_bytes + d.staging_bytes)) : "");
  }
  out += fmt::format("  layers     {}\n", layer_strip(planned));
  for (size_t u = 0; u < p.units.size(); ++u) {
    const sizing::Unit& unit = planned.inputs.units.units[u];
    if (unit.kind == sizing::UnitKind::kHead || unit.kind == sizing::UnitKind::kTable)
      out += fmt::format("  {:<26} on {:<5} {:>9}  {}\n", p.units[u].path, p.units[u].device, format_bytes(p.units[u].stored_bytes),
                         unit.stored_with >= 0 ? "stored with the head" : p.units[u].reason);
  }
  if (p.estimate.decode_tokens_per_s > 0)
    out += fmt::format("  estimated  {:.1f} tokens/s decoding, {:.0f} prefilling; {} moves\n", p.estimate.decode_tokens_per_s,
                       p.estimate.prefill_tokens_per_s, p.estimate.cuts);
  for (const std::string& w : p.warnings) out += "  note: " + w + "\n";
  return out;
}

void write_plan(const OpenedModel& model, const PlannedModel& planned, const Options& options, JsonWriter& w) {
  const plan::Plan& p = planned.plan;
  w.begin_object().member("format", "berth-plan-1").member("berth", version());
  w.key("inputs").begin_object().key("options").begin_object();
  const Options defaults;
  std::map<std::string_view, std::string> default_text;
  const auto text_of = [](const auto& value) {
    JsonWriter one;
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      one.begin_array();
      for (const std::string& s : value) one.value(s);
      one.end_array();
    } else {
      one.value(value);
    }
    return one.take();
  };
  visit_options(defaults, [&](const OptionInfo& i, const auto& v) { default_text[i.name] = text_of(v); });
  visit_options(options, [&](const OptionInfo& i, const auto& v) {
    if (const std::string text = text_of(v); text != default_text[i.name]) w.key(i.name).raw(text);
  });
  w.end_object().key("machine");
  machine::write_machine(planned.inputs.machine, w);
  w.member("checkpoint", model.checkpoint->fingerprint())
      .member("ctx_size", p.shape.ctx_size)
      .member("batch", p.shape.batch)
      .member("kv_dtype", dtype_info(p.shape.kv_dtype).torch)
      .member("prefill_chunk", p.shape.prefill_chunk)
      .end_object();
  w.key("model").begin_object().member("name", model.name).member("architecture", model.spec().architecture)
      .member("dtype", dtype_info(model.dtype).torch).member("parameters", model.parameters()).member("quantization", model.quantization()).end_object();
  w.member("strategy", p.strategy).key("compat").null().member("fits", true);
  w.key("device_map").begin_object();
  for (const auto& [path, device] : device_map_of(model, p).entries) {
    w.key(path);
    device.write(w);
  }
  w.end_object().key("budgets").begin_object();
  for (const plan::DeviceUse& d : p.devices) w.member(d.id, d.budget_bytes);
  w.end_object().key("devices").begin_array();
  for (const plan::DeviceUse& d : p.devices)
    w.begin_object().member("id", d.id).member("machine_id", d.machine_id).member("budget_bytes", d.budget_bytes)
        .member("weights_bytes", d.weights_bytes).member("kv_bytes", d.kv_bytes).member("workspace_bytes", d.workspace_bytes)
        .member("staging_bytes", d.staging_bytes).member("overhead_bytes", d.overhead_bytes).member("margin_bytes", d.margin_bytes)
        .member("free_bytes", d.free_bytes()).end_object();
  w.end_array().key("units").begin_array();
  const auto access = [](plan::Access a) { return a == plan::Access::kCompute ? "compute" : a == plan::Access::kGather ? "gather" : "stream"; };
  for (const plan::PlacedUnit& u : p.units) {
    w.begin_object().member("path", u.path).key("paths").begin_array();
    for (const std::string& path : u.paths) w.value(path);
    w.end_array().key("device");
    plan::DeviceName::from_key(u.device).write(w);
    w.key("computed_on");
    plan::DeviceName::from_key(u.computed_on).write(w);
    w.member("access", access(u.access)).member("access_prefill", access(u.access_prefill)).member("stored_bytes", u.stored_bytes)
        .member("touched_bytes", u.touched_bytes).member("kv_bytes", u.kv_bytes).member("reason", u.reason).end_object();
  }
  w.end_array();
  w.key("estimate").begin_object().member("decode_tokens_per_s", p.estimate.decode_tokens_per_s)
      .member("prefill_tokens_per_s", p.estimate.prefill_tokens_per_s).member("cuts", static_cast<int64_t>(p.estimate.cuts)).end_object();
  w.key("certificate");
  if (p.certificate) {
    const plan::Certificate& c = *p.certificate;
    w.begin_object().member("objective", c.objective).member("value", c.value_s).member("bound", c.bound_s).member("gap", c.gap_s)
        .member("bound_any", c.bound_any_s).member("optimal", c.optimal).member("family", c.family).member("labels", c.labels).end_object();
  } else {
    w.null();
  }
  w.member("memory_footprint_bytes", p.memory_footprint_bytes).key("warnings").begin_array();
  for (const std::string& s : p.warnings) w.value(s);
  for (const std::string& s : model.notes) w.value(s);
  for (const std::string& s : planned.inputs.notes) w.value(s);
  w.end_array().end_object();
}

std::string memory_text(std::span<const MemoryRow> rows) {
  std::string out = fmt::format("{:<6} {:>26} {:>26} {:>26} {:>26}\n{:<6}", "device", "weights", "KV cache", "workspace", "peak", "");
  for (int i = 0; i < 4; ++i) out += fmt::format(" {:>13}{:>13}", "predicted", "measured");
  out += '\n';
  for (const MemoryRow& r : rows) {
    out += fmt::format("{:<6}", r.device);
    for (const MemoryRow::Pair& p : {r.weights, r.kv, r.workspace, r.peak}) out += fmt::format(" {:>13}{:>13}", group_digits(p.predicted), group_digits(p.measured));
    out += '\n';
  }
  return out;
}

void write_memory(std::span<const MemoryRow> rows, JsonWriter& w) {
  w.begin_object();
  for (const MemoryRow& r : rows) {
    w.key(r.device).begin_object();
    const auto pair = [&](std::string_view name, const MemoryRow::Pair& p) {
      w.key(name).begin_object().member("predicted", p.predicted).member("measured", p.measured).end_object();
    };
    pair("weights", r.weights);
    pair("kv", r.kv);
    pair("workspace", r.workspace);
    pair("staging", r.staging);
    pair("peak", r.peak);
    w.end_object();
  }
  w.end_object();
}

namespace {

struct ModuleSize {
  uint64_t parameters = 0, stored = 0, touched = 0;
  std::string dtype;
  std::string tied_to;
};

// Bytes by module, own tensors only; aliases count nothing.
std::map<std::string, ModuleSize> module_sizes(const OpenedModel& model) {
  std::map<std::string, ModuleSize> out;
  const arch::ModelSpec& spec = model.spec();
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    const arch::TensorSpec& t = spec.tensors[i];
    ModuleSize& m = out[t.module];
    if (t.tied_to) {
      for (const arch::TensorSpec& target : spec.tensors)
        if (target.role == *t.tied_to && target.layer == -1 && !target.tied_to) m.tied_to = target.module;
      m.dtype = quant::format_text(model.storage[i].layout.format);
      m.touched += model.storage[i].layout.total_bytes;
      continue;
    }
    const uint64_t elements = static_cast<uint64_t>(t.rows) * static_cast<uint64_t>(t.cols) * static_cast<uint64_t>(t.experts);
    m.parameters += elements;
    m.stored += model.storage[i].bytes;
    if (t.kind == arch::TensorKind::kTable) m.touched += model.storage[i].bytes / static_cast<uint64_t>(std::max<int64_t>(t.rows, 1));
    else m.touched += model.storage[i].bytes;
    if (m.dtype.empty() || t.kind != arch::TensorKind::kVector) m.dtype = quant::format_text(model.storage[i].layout.format);
  }
  return out;
}

}  // namespace

std::string inspect_text(const OpenedModel& model, int depth, const TextStyle& style) {
  const auto own = module_sizes(model);
  std::map<std::string, ModuleSize> sums;
  uint64_t total = 0;
  for (const auto& [path, m] : own) {
    total += m.stored;
    std::string p = path;
    for (;;) {
      sums[p].parameters += m.parameters;
      sums[p].stored += m.stored;
      sums[p].touched += m.touched;
      if (p.empty()) break;
      const size_t dot = p.rfind('.');
      p = dot == std::string::npos ? "" : p.substr(0, dot);
    }
  }
  std::string out = fmt::format("{}  {} ({})\n{} parameters, {} stored, quantization {}, dtype {}, {} layers, context {}\n\n", model.name,
                                model.spec().architecture, model.spec().family, group_digits(model.parameters()), format_bytes(total),
                                model.quantization(), dtype_info(model.dtype).torch, model.spec().layers.size(), model.spec().max_position);
  out += fmt::format("{:<52} {:>10} {:>10}  share\n", "module", "stored", "touched");
  arch::for_each_module(model.description.tree, [&](const std::string& path, const arch::Module& module) {
    const int level = path.empty() ? 0 : 1 + static_cast<int>(std::count(path.begin(), path.end(), '.'));
    const auto sum = sums.find(path);
    if (level > depth || (sum == sums.end() && own.find(path) == own.end())) return;
    const auto leaf = own.find(path);
    std::string label = std::string(static_cast<size_t>(level) * 2, ' ') + (path.empty() ? module.class_name : module.name);
    if (leaf != own.end()) label += "  " + (leaf->second.tied_to.empty() ? leaf->second.dtype : "= " + leaf->second.tied_to);
    const uint64_t stored = sum == sums.end() ? 0 : sum->second.stored;
    out += fmt::format("{:<52} {:>10} {:>10}  {}\n", label, format_bytes(stored), format_bytes(sum == sums.end() ? 0 : sum->second.touched),
                       bar(total == 0 ? 0 : static_cast<double>(stored) / static_cast<double>(total), std::clamp(style.width - 78, 8, 24)));
  });
  if (!model.spec().unsupported.empty()) out += "\nThis model can be planned, not run: " + model.spec().unsupported + "\n";
  for (const std::string& note : model.notes) out += "note: " + note + "\n";
  return out;
}

void write_inspect(const OpenedModel& model, JsonWriter& w) {
  const auto own = module_sizes(model);
  w.begin_object().key("model").begin_object().member("name", model.name).member("architecture", model.spec().architecture)
      .member("family", model.spec().family).member("dtype", dtype_info(model.dtype).torch).member("parameters", model.parameters())
      .member("quantization", model.quantization()).member("layers", static_cast<uint64_t>(model.spec().layers.size()))
      .member("hidden_size", static_cast<int64_t>(model.spec().hidden)).member("vocab_size", model.spec().vocab_size)
      .member("max_position", model.spec().max_position).member("runs", model.spec().unsupported.empty());
  if (!model.spec().unsupported.empty()) w.member("unsupported", model.spec().unsupported);
  w.key("notes").begin_array();
  for (const std::string& note : model.notes) w.value(note);
  w.end_array().end_object().key("modules").begin_array();
  arch::for_each_module(model.description.tree, [&](const std::string& path, const arch::Module& module) {
    const auto m = own.find(path);
    if (m == own.end()) return;
    w.begin_object().member("path", path).member("class", module.class_name).member("parameters", m->second.parameters)
        .member("stored_bytes", m->second.stored).member("touched_bytes", m->second.touched).member("dtype", m->second.dtype).key("tied_to");
    if (m->second.tied_to.empty()) w.null();
    else w.value(m->second.tied_to);
    w.end_object();
  });
  w.end_array().end_object();
}

std::string bench_text(std::span<const BenchRow> rows) {
  std::string out = fmt::format("{:<8} {:>7} {:>12} {:>8} {:>12} {:>10} {:>7}\n", "test", "threads", "tokens/s", "stdev", "read GB/s", "limit", "share");
  for (const BenchRow& r : rows)
    out += fmt::format("{:<8} {:>7} {:>12.2f} {:>8.2f} {:>12} {:>10.1f} {:>7}\n", r.test, r.threads, r.tokens_per_s, r.stdev,
                       r.read_gb_per_s > 0 ? fmt::format("{:.1f}", r.read_gb_per_s) : "", r.read_limit_gb_per_s,
                       r.share > 0 ? fmt::format("{:.0f} %", r.share * 100) : "");
  return out;
}

void write_bench(std::span<const BenchRow> rows, JsonWriter& w) {
  w.begin_array();
  for (const BenchRow& r : rows)
    w.begin_object().member("test", r.test).member("threads", r.threads).member("tokens_per_s", r.tokens_per_s).member("stdev", r.stdev)
        .member("bytes_per_token", r.bytes_per_token).member("read_gb_per_s", r.read_gb_per_s)
        .member("read_limit_gb_per_s", r.read_limit_gb_per_s).member("share", r.share).end_object();
  w.end_array();
}

void write_error(const Error& e, JsonWriter& w) {
  w.begin_object().key("error").begin_object().member("code", error_code_name(e.code)).member("message", e.message).key("hints").begin_array();
  for (const std::string& hint : e.hints) w.value(hint);
  w.end_array().key("details");
  w.raw(e.details_json.empty() ? "{}" : e.details_json);
  w.end_object().end_object();
}

}  // namespace berth::engine
