// plan/explain/explain.cc — see explain.h.
#include "berth/plan/explain/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/plan/cost.h"
#include "berth/plan/device_map.h"

namespace berth::plan {
namespace {

bool is_under(std::string_view path, std::string_view ancestor) {
  return path == ancestor ||
         (path.starts_with(ancestor) && path.size() > ancestor.size() && path[ancestor.size()] == '.');
}

Result<size_t> unit_of(const Plan& plan, std::string_view module) {
  std::vector<size_t> exact, below, above;
  std::set<std::string> paths;  // of units, their modules and the modules above: what a typo may have meant
  const auto add = [&](std::string path) {
    while (!path.empty() && paths.insert(path).second) {
      const size_t dot = path.rfind('.');
      path.resize(dot == std::string::npos ? 0 : dot);
    }
  };
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const PlacedUnit& unit = plan.units[u];
    add(unit.path);
    for (const std::string& path : unit.paths) add(path);
    const bool listed = std::find(unit.paths.begin(), unit.paths.end(), module) != unit.paths.end();
    if (unit.path == module || listed)
      exact.push_back(u);
    else if (std::any_of(unit.paths.begin(), unit.paths.end(),
                         [&](const std::string& p) { return is_under(module, p); }))
      below.push_back(u);
    else if (!module.empty() && is_under(unit.path, module))
      above.push_back(u);
  }
  if (!exact.empty()) return exact.front();
  if (below.size() == 1) return below.front();
  if (above.size() == 1) return above.front();
  if (above.size() > 1) {
    std::vector<std::string> some;
    for (size_t k = 0; k < above.size() && k < 4; ++k) some.push_back(plan.units[above[k]].path);
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("explaining {}: {} units are below it ({}{})", quoted(module), above.size(),
                             join(some, ", "), above.size() > some.size() ? ", .." : ""),
                 {"Name one of them."});
  }
  const std::vector<std::string> names(paths.begin(), paths.end());
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("the plan has no module {}{}", quoted(module), did_you_mean(module, names)));
}

Result<Placement> placement_of(const AssignRequest& r, const Plan& plan) {
  if (plan.units.size() != r.units->units.size())
    return Error(ErrorCode::kInvalidArgument, "explaining a plan: it is for another model (other units)");
  Placement p;
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const auto memory = r.machine->find(plan.units[u].device), compute = r.machine->find(plan.units[u].computed_on);
    if (!memory || !compute)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("explaining a plan: the machine has no device {}", quoted(plan.units[u].device)));
    if (static_cast<int32_t>(u) < r.units->chain_size)
      p.units.push_back({static_cast<int16_t>(*compute), static_cast<int16_t>(*memory)});
    else
      p.tables.push_back(static_cast<int16_t>(*memory));
  }
  return p;
}

double seconds(int64_t ps) { return static_cast<double>(ps) / 1e12; }

}  // namespace

std::vector<std::string> units_below(const Plan& plan, std::string_view module) {
  std::vector<std::string> out;
  for (const PlacedUnit& unit : plan.units) {
    const bool inside = std::any_of(unit.paths.begin(), unit.paths.end(),
                                    [&](const std::string& path) { return is_under(module, path); });
    if (unit.path == module || inside) return {};
    if (!module.empty() && is_under(unit.path, module)) out.push_back(unit.path);
  }
  return out;
}

Result<Explanation> explain_module(const AssignRequest& r, const Plan& plan, std::string_view module) {
  TRY(size_t u, unit_of(plan, module));
  TRY(const Placement placement, placement_of(r, plan));
  const CostModel model = CostModel::make(*r.units, *r.machine, r.budgets, r.shape, Rules{});
  Explanation e;
  e.module = std::string(module);
  const int n = model.unit_count();
  if (static_cast<int>(u) >= n && model.table(static_cast<int>(u) - n).stored_with >= 0) {
    u = static_cast<size_t>(model.table(static_cast<int>(u) - n).stored_with);
    e.source = plan.units[u].path;
  }
  e.unit = plan.units[u];
  const bool table = static_cast<int>(u) >= n;
  const int index = table ? static_cast<int>(u) - n : static_cast<int>(u);
  const Cost before = model.cost(placement);
  const std::vector<DeviceLoad> loads = model.loads(placement);
  const int here = table ? placement.tables[static_cast<size_t>(index)] : placement.units[u].memory;
  e.step_s = table ? seconds(model.gather_ps(index, here,
                                             placement.units[static_cast<size_t>(model.table(index).consumer)].compute))
                   : seconds(model.step_ps(index, placement.units[u]));
  for (int d = 0; d < model.device_count(); ++d) {
    if (d == here || r.budgets[static_cast<size_t>(d)].left_out) continue;
    // Off the accelerators a unit computes there (from the disk: on the cpu) or is brought to where it computes now:
    // the quicker of those that fit.
    std::vector<Placement> ways;
    const auto way = [&](int compute) {
      ways.push_back(placement);
      if (table)
        ways.back().tables[static_cast<size_t>(index)] = static_cast<int16_t>(d);
      else
        ways.back().units[u] = {static_cast<int16_t>(compute), static_cast<int16_t>(d)};
    };
    const int computes = table ? d : placement.units[u].compute;
    const auto cpu = r.machine->cpu();
    const bool disk = model.device(d).kind == machine::DeviceKind::kDisk;
    if (table || !disk)
      way(d);
    else if (cpu)
      way(static_cast<int>(*cpu));
    if (!table && !model.device(d).accelerator && model.device(computes).accelerator) way(computes);
    if (ways.empty()) continue;
    const Placement* moved = nullptr;
    for (const Placement& candidate : ways)
      if (model.fits(candidate) && (moved == nullptr || model.cost(candidate).time_ps < model.cost(*moved).time_ps))
        moved = &candidate;
    Alternative a;
    a.device = r.budgets[static_cast<size_t>(d)].map_name;
    a.fits = moved != nullptr;
    if (moved == nullptr) moved = &ways.front();
    const std::vector<DeviceLoad> after = model.loads(*moved);
    a.delta_bytes = after[static_cast<size_t>(d)].total() - loads[static_cast<size_t>(d)].total();
    for (int other = 0; other < model.device_count(); ++other)  // bringing it over may need room elsewhere
      a.missing_bytes =
          std::max<int64_t>(a.missing_bytes, after[static_cast<size_t>(other)].total() - model.device(other).budget);
    a.delta_decode_s = seconds(model.cost(*moved).time_ps - before.time_ps);
    e.alternatives.push_back(std::move(a));
  }
  return e;
}

std::string explanation_text(const Explanation& e, const PictureStyle&) {
  std::string out = fmt::format("{}\n", escaped(e.unit.path));
  if (!e.source.empty())
    out += fmt::format("  {} is the same tensor: it is wherever {} is\n", escaped(e.module), escaped(e.source));
  else if (e.module != e.unit.path)
    out += fmt::format("  {} is part of it: a unit is placed as a whole\n", escaped(e.module));
  out += fmt::format("  on {}", e.unit.device);
  if (e.unit.computed_on != e.unit.device) out += fmt::format(", brought to {} for each use", e.unit.computed_on);
  out += fmt::format(": {}\n", e.unit.reason);
  out += fmt::format("  {} stored, {} read per step", format_bytes(e.unit.stored_bytes),
                     format_bytes(e.unit.touched_bytes));
  if (e.unit.kv_bytes > 0) out += fmt::format(", {} of KV cache", format_bytes(e.unit.kv_bytes));
  out += fmt::format("; {:.3f} ms of each step\n\n", e.step_s * 1e3);
  out += fmt::format("  {:<8} {:>16} {:>14}  {}\n", "moved to", "takes there", "step", "fits");
  for (const Alternative& a : e.alternatives)
    out +=
        fmt::format("  {:<8} {:>16} {:>11.3f} ms  {}\n", a.device,
                    (a.delta_bytes < 0 ? "-" : "+") +
                        format_bytes(static_cast<uint64_t>(a.delta_bytes < 0 ? -a.delta_bytes : a.delta_bytes)),
                    a.delta_decode_s * 1e3,
                    a.fits                ? "yes"
                    : a.missing_bytes > 0 ? "no: " + format_bytes(static_cast<uint64_t>(a.missing_bytes)) + " missing"
                                          : "no");
  return out;
}

void write_explanation(const Explanation& e, JsonWriter& out) {
  const auto device = [&](std::string_view key, const std::string& id) {
    out.key(key);
    DeviceName::from_key(id).write(out);
  };
  out.begin_object()
      .member("module", e.module)
      .key("unit")
      .begin_object()
      .member("path", e.unit.path)
      .key("paths")
      .begin_array();
  for (const std::string& p : e.unit.paths) out.value(p);
  out.end_array();
  device("device", e.unit.device);
  device("computed_on", e.unit.computed_on);
  out.member("stored_bytes", e.unit.stored_bytes)
      .member("touched_bytes", e.unit.touched_bytes)
      .member("kv_bytes", e.unit.kv_bytes)
      .end_object();
  out.member("reason", e.unit.reason).key("stored_with");
  if (e.source.empty())
    out.null();
  else
    out.value(e.source);
  out.member("step_s", e.step_s).key("alternatives").begin_array();
  for (const Alternative& a : e.alternatives) {
    out.begin_object();
    device("device", a.device);
    out.member("fits", a.fits)
        .member("delta_bytes", a.delta_bytes)
        .member("delta_decode_s", a.delta_decode_s)
        .member("missing_bytes", a.missing_bytes)
        .end_object();
  }
  out.end_array().end_object();
}

}  // namespace berth::plan
