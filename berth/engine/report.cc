// engine/report.cc — see report.h.
#include "berth/engine/report.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/base/version.h"
#include "berth/engine/skipped_parts.h"
#include "berth/plan/explain/text.h"

namespace berth::engine {
namespace {

std::string bar(double share, int width) {
  const int filled = std::clamp(static_cast<int>(share * width + 0.5), 0, width);
  std::string out;
  for (int i = 0; i < width; ++i) out += i < filled ? "█" : "·";
  return out;
}

// What differs from the defaults, as a JSON object.
std::string options_json(const Options& options) {
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
  const Options defaults;
  std::map<std::string_view, std::string> default_text;
  visit_options(defaults, [&](const OptionInfo& i, const auto& v) { default_text[i.name] = text_of(v); });
  JsonWriter w;
  w.begin_object();
  visit_options(options, [&](const OptionInfo& i, const auto& v) {
    if (const std::string text = text_of(v); text != default_text[i.name]) w.key(i.name).raw(text);
  });
  w.end_object();
  return w.take();
}

}  // namespace

plan::DeviceMap device_map_of(const OpenedModel& model, const plan::Plan& plan) {
  return plan::device_map_of(plan, &model.description.tree);
}

plan::PlanDocument plan_document(const OpenedModel& model, const PlannedModel& planned, const Options& options) {
  plan::PlanDocument d;
  d.berth = version();
  d.options = options_json(options);
  d.machine = planned.inputs.machine;
  d.checkpoint = model.checkpoint->fingerprint();
  d.model = {model.name, model.spec().architecture, std::string(dtype_info(model.dtype).torch), model.quantization(), model.parameters()};
  d.compat = options.compat;
  d.device_map = device_map_of(model, planned.plan);
  d.plan = planned.plan;
  d.plan.warnings.insert(d.plan.warnings.end(), model.notes.begin(), model.notes.end());
  d.plan.warnings.insert(d.plan.warnings.end(), planned.inputs.notes.begin(), planned.inputs.notes.end());
  d.sizes = planned.inputs.units;
  return d;
}

std::string plan_text(const OpenedModel& model, const PlannedModel& planned, const TextStyle& style) {
  const plan::Plan& p = planned.plan;
  const std::string title = fmt::format("{}  {}, {} parameters, {} stored; context {}, batch {}, KV cache {}", model.name,
                                        model.spec().architecture, group_digits(model.parameters()), format_bytes(p.memory_footprint_bytes),
                                        p.shape.ctx_size, p.shape.batch, dtype_info(p.shape.kv_dtype).torch);
  return plan::plan_picture(p, {style.width, style.color}, title);
}

void write_plan(const OpenedModel& model, const PlannedModel& planned, const Options& options, JsonWriter& w) {
  plan::write_plan(plan_document(model, planned, options), w);
}

namespace {

// What was predicted beside what was found: pairs of numbers under a heading each, columns as wide as their widest cell.
class PairTable {
 public:
  // `second`: the heading of the right column of every pair.
  PairTable(std::string corner, std::vector<std::string> headings, std::string_view second)
      : corner_(std::move(corner)), headings_(std::move(headings)), second_(second) {}
  void add(std::string name, const std::vector<std::pair<uint64_t, uint64_t>>& pairs) {
    std::vector<std::string> cells;
    for (const auto& [a, b] : pairs) {
      cells.push_back(group_digits(a));
      cells.push_back(group_digits(b));
    }
    rows_.push_back({std::move(name), std::move(cells)});
  }
  std::string text() const {
    size_t name = corner_.size();
    std::vector<size_t> width(2 * headings_.size());
    for (size_t c = 0; c < width.size(); ++c) width[c] = c % 2 == 0 ? kFirst.size() : second_.size();
    for (const auto& [label, cells] : rows_) {
      name = std::max(name, label.size());
      for (size_t c = 0; c < cells.size(); ++c) width[c] = std::max(width[c], cells[c].size());
    }
    std::string out = fmt::format("{:<{}}", corner_, name);
    for (size_t h = 0; h < headings_.size(); ++h) {
      const size_t both = width[2 * h] + kGap + width[2 * h + 1];
      if (headings_[h].size() > both) width[2 * h] += headings_[h].size() - both;
      out += fmt::format("{:>{}}", headings_[h], kBetween + std::max(both, headings_[h].size()));
    }
    out += fmt::format("\n{:<{}}", "", name);
    const auto cell = [&](size_t c, std::string_view text) {
      out += fmt::format("{:>{}}", text, (c % 2 == 0 ? kBetween : kGap) + width[c]);
    };
    for (size_t c = 0; c < width.size(); ++c) cell(c, c % 2 == 0 ? kFirst : second_);
    for (const auto& [label, cells] : rows_) {
      out += fmt::format("\n{:<{}}", label, name);
      for (size_t c = 0; c < cells.size(); ++c) cell(c, cells[c]);
    }
    return out + '\n';
  }

 private:
  static constexpr std::string_view kFirst = "predicted";
  static constexpr size_t kGap = 1, kBetween = 3;
  std::string corner_;
  std::vector<std::string> headings_;
  std::string_view second_;
  std::vector<std::pair<std::string, std::vector<std::string>>> rows_;
};

}  // namespace

std::string memory_text(std::span<const MemoryRow> rows) {
  // Staging has a column where something is streamed.
  const bool staging = std::any_of(rows.begin(), rows.end(), [](const MemoryRow& r) { return r.staging.predicted + r.staging.measured > 0; });
  std::vector<std::string> headings{"weights", "KV cache", "workspace"};
  if (staging) headings.push_back("staging");
  headings.push_back("peak");
  PairTable table("device", std::move(headings), "measured");
  for (const MemoryRow& r : rows) {
    std::vector<std::pair<uint64_t, uint64_t>> pairs;
    const auto add = [&](const MemoryRow::Pair& p) { pairs.emplace_back(p.predicted, p.measured); };
    add(r.weights);
    add(r.kv);
    add(r.workspace);
    if (staging) add(r.staging);
    add(r.peak);
    table.add(r.device, pairs);
  }
  return table.text();
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

std::string traffic_text(std::span<const TrafficRow> rows) {
  if (rows.empty()) return "";
  PairTable table("moved per token", {"bytes"}, "counted");
  for (const TrafficRow& r : rows)
    table.add(r.from + " > " + r.to + "  " + r.cargo, {{r.predicted, static_cast<uint64_t>(r.counted + 0.5)}});
  return table.text();
}

void write_traffic(std::span<const TrafficRow> rows, JsonWriter& w) {
  w.begin_array();
  for (const TrafficRow& r : rows)
    w.begin_object()
        .member("from", r.from)
        .member("to", r.to)
        .member("cargo", r.cargo)
        .member("predicted_bytes", r.predicted)
        .member("counted_bytes", r.counted)
        .end_object();
  w.end_array();
}

namespace {

struct ModuleSize {
  uint64_t parameters = 0, stored = 0, touched = 0;
  std::string dtype;
  std::string tied_to;
};

// Of a bare tree: what its tensors take; of an Embedding a row is touched.
std::map<std::string, ModuleSize> tree_module_sizes(const OpenedModel& model) {
  std::map<std::string, ModuleSize> out;
  std::map<std::string, std::string> source_of;
  for (const auto& [target, source] : model.description.tree.ties) source_of[target] = source;
  arch::for_each_module(model.description.tree, [&](const std::string& path, const arch::Module& module) {
    if (!module.same_as.empty() || module.parameters.size() + module.buffers.size() == 0) return;
    ModuleSize& m = out[path];
    const bool table = module.class_name.ends_with("Embedding");
    const auto add = [&](const std::string& name, const Shape& shape, DType dtype, bool parameter) {
      const std::string full = arch::join_path(path, name);
      const uint64_t bytes = (*model.tree_bytes)(full);
      m.touched += table && shape.size() == 2 ? bytes / static_cast<uint64_t>(std::max<int64_t>(shape[0], 1)) : bytes;
      if (m.dtype.empty() || (parameter && shape.size() > 1)) m.dtype = dtype_name(dtype);
      if (const auto tied = source_of.find(full); tied != source_of.end()) {
        m.tied_to = tied->second.substr(0, tied->second.rfind('.'));
        return;
      }
      m.stored += bytes;
      if (parameter) m.parameters += element_count(shape).value_or(0);
    };
    for (const auto& p : module.parameters) add(p.name, p.shape, p.dtype, true);
    for (const auto& b : module.buffers) add(b.name, b.shape, b.dtype, false);
    const auto decided = std::find_if(model.quantize_rules.decisions.begin(), model.quantize_rules.decisions.end(),
                                      [&](const arch::QuantizeDecision& d) { return d.path == path && d.replaced; });
    if (model.quantize_to && decided != model.quantize_rules.decisions.end()) m.dtype = quant::format_text(*model.quantize_to);
  });
  return out;
}

// Bytes by module, own tensors only; aliases count nothing.
std::map<std::string, ModuleSize> module_sizes(const OpenedModel& model) {
  if (model.tree_bytes) return tree_module_sizes(model);
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
    if (m.dtype.empty() || t.kind != arch::TensorKind::kVector)
      m.dtype = model.storage[i].counted_only ? model.quantization() : quant::format_text(model.storage[i].layout.format);
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
  const auto skipped = skipped_parts(model);
  if (!skipped.empty())
    out += fmt::format("\n{:<52} {:>10} {:>14}\n", "not read: no part of the text model", "as built", "Transformers");
  for (const SkippedPart& part : skipped)
    out += fmt::format("{:<52} {:>10} {:>14}\n", part.path, format_bytes(part.built_bytes), format_bytes(part.transformers_bytes));
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
  w.end_array().key("not_read").begin_array();
  for (const SkippedPart& part : skipped_parts(model))
    w.begin_object().member("path", part.path).member("parameters", part.parameters).member("built_bytes", part.built_bytes)
        .member("transformers_bytes", part.transformers_bytes).end_object();
  w.end_array().end_object();
}

// A token's time by operation, and of that what threads waited.
static std::string timeline_text(const BenchRow& r) {
  if (r.timeline.empty()) return "";
  std::string out = fmt::format("\na token of {} with {} threads, us; waiting is the mean over the threads\n{:<28} {:>6} {:>9} {:>9} {:>8} {:>8} {:>8} {:>7}\n", r.test,
                                r.threads, "operation", "times", "all", "alone", "early", "between", "late", "GB/s");
  Trace::Row sum;
  const auto line = [&](const std::string& name, const Trace::Row& row, const std::string& times) {
    const double bytes = static_cast<double>(row.operation.bytes * row.count) / 1e9;
    out += fmt::format("{:<28} {:>6} {:>9.1f} {:>9.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>7}\n", name, times, row.seconds * 1e6, row.alone * 1e6,
                       row.early * 1e6, row.between * 1e6, row.late * 1e6,
                       bytes > 0 ? fmt::format("{:.1f}", bytes / row.seconds) : "");
  };
  for (const Trace::Row& row : r.timeline) {
    const Trace::Operation& o = row.operation;
    line(o.outputs > 0 ? fmt::format("{} {} x {}", o.name, o.outputs, o.inputs) : o.name, row, fmt::format("{}", row.count));
    sum.seconds += row.seconds;
    sum.alone += row.alone;
    sum.early += row.early;
    sum.between += row.between;
    sum.late += row.late;
  }
  line("all", sum, "");
  return out;
}

std::string bench_text(std::span<const BenchRow> rows) {
  std::string out = fmt::format("{:<8} {:>7} {:>12} {:>8} {:>12} {:>10} {:>7}\n", "test", "threads", "tokens/s", "stdev", "read GB/s", "limit", "share");
  for (const BenchRow& r : rows)
    out += fmt::format("{:<8} {:>7} {:>12.2f} {:>8.2f} {:>12} {:>10.1f} {:>7}\n", r.test, r.threads, r.tokens_per_s, r.stdev,
                       r.read_gb_per_s > 0 ? fmt::format("{:.1f}", r.read_gb_per_s) : "", r.read_limit_gb_per_s,
                       r.share > 0 ? fmt::format("{:.0f} %", r.share * 100) : "");
  for (const BenchRow& r : rows) out += timeline_text(r);
  if (!rows.empty() && rows.front().ready_s > 0)
    out += fmt::format("first token after {:.2f} s, with at most {} resident\n", rows.front().ready_s, format_bytes(rows.front().peak_rss_bytes));
  return out;
}

void write_load_bench(std::span<const LoadBenchRow> rows, JsonWriter& w) {
  w.begin_array();
  for (const LoadBenchRow& r : rows)
    w.begin_object().member("what", r.what).member("cold", r.cold).member("threads", r.threads).member("seconds", r.seconds)
        .member("gb_per_s", r.gb_per_s).member("share", r.share).member("first_seconds", r.first_seconds)
        .member("cpu_seconds", r.cpu_seconds).member("quantized_bytes", r.quantized_bytes)
        .member("weights_bytes", r.weights_bytes).member("mapped_bytes", r.mapped_bytes)
        .member("beyond_weights_bytes", r.beyond_weights_bytes).end_object();
  w.end_array();
}

void write_bench(std::span<const BenchRow> rows, JsonWriter& w) {
  w.begin_array();
  for (const BenchRow& r : rows) {
    w.begin_object().member("test", r.test).member("threads", r.threads).member("tokens_per_s", r.tokens_per_s).member("stdev", r.stdev)
        .member("bytes_per_token", r.bytes_per_token).member("read_gb_per_s", r.read_gb_per_s)
        .member("read_limit_gb_per_s", r.read_limit_gb_per_s).member("share", r.share).member("ready_s", r.ready_s)
        .member("peak_rss_bytes", r.peak_rss_bytes);
    if (!r.timeline.empty()) {
      w.key("timeline").begin_array();
      for (const Trace::Row& t : r.timeline)
        w.begin_object().member("operation", t.operation.name).member("outputs", t.operation.outputs).member("inputs", t.operation.inputs)
            .member("bytes", t.operation.bytes).member("count", t.count).member("seconds", t.seconds).member("alone", t.alone)
            .member("early", t.early).member("between", t.between).member("late", t.late).end_object();
      w.end_array();
    }
    w.end_object();
  }
  w.end_array();
}

void write_error_object(const Error& e, JsonWriter& w) {
  w.begin_object().member("code", error_code_name(e.code)).member("message", e.message).key("hints").begin_array();
  for (const std::string& hint : e.hints) w.value(hint);
  w.end_array().key("details");
  w.raw(e.details_json.empty() ? "{}" : e.details_json);
  w.end_object();
}

void write_error(const Error& e, JsonWriter& w) {
  w.begin_object().key("error");
  write_error_object(e, w);
  w.end_object();
}

}  // namespace berth::engine
