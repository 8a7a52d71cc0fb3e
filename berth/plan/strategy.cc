// plan/strategy.cc — pins resolved, the strategy chosen; and maps of the user's own.
#include "berth/plan/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "berth/base/strings.h"
#include "berth/plan/reason.h"
#include "berth/plan/refusal.h"
#include "berth/plan/strategies/balanced.h"
#include "berth/plan/strategies/best.h"
#include "berth/plan/strategies/sequential.h"

namespace berth::plan {
namespace {

constexpr std::string_view kStrategies[] = {"best", "auto", "balanced", "balanced_low_0", "sequential"};
constexpr int64_t kBoundEffort = 20000;                      // for the certificate of other strategies
constexpr int64_t kQuickEffort = 20000, kQuickNodes = 2000;  // where any plan will do
constexpr int64_t kScatterNodes = 50000;                     // outside one run per accelerator: a tenth of a second

bool is_under(std::string_view path, std::string_view ancestor) {
  return ancestor.empty() || path == ancestor || (path.starts_with(ancestor) && path[ancestor.size()] == '.');
}

bool is_glob(const Pin& pin) { return pin.pattern.find_first_of("*?[") != std::string::npos; }

// How much a pin has to say about a unit; nothing: it does not concern it. It does where it names the unit, a module
// above it or one of its own modules. Most to say has a path to the unit, the deeper the more; then a path to another
// of its modules (the norm before the head); then globs, in the same order.
std::optional<std::pair<int, size_t>> pin_rank(const Pin& pin, const sizing::Unit& unit) {
  const bool glob = is_glob(pin);
  const size_t depth = glob ? 0 : pin.pattern.size();
  if (glob_match(pin.pattern, unit.path) || is_under(unit.path, pin.pattern) || is_under(pin.pattern, unit.path))
    return std::pair(glob ? 1 : 3, depth);
  const bool part = std::any_of(unit.paths.begin(), unit.paths.end(), [&](const std::string& p) {
    return glob_match(pin.pattern, p) || is_under(p, pin.pattern);
  });
  if (part) return std::pair(glob ? 0 : 2, depth);
  return std::nullopt;
}

// Everything a pin may name: units, their modules, and the modules above.
std::vector<std::string> unit_paths(const sizing::UnitTable& table) {
  std::set<std::string> paths;
  const auto add = [&](std::string path) {
    while (!path.empty() && paths.insert(path).second) {
      const size_t dot = path.rfind('.');
      path.resize(dot == std::string::npos ? 0 : dot);
    }
  };
  for (const sizing::Unit& u : table.units) {
    add(u.path);
    for (const std::string& path : u.paths) add(path);
  }
  return {paths.begin(), paths.end()};
}

Result<size_t> find_device(const AssignRequest& r, const std::string& name) {
  const auto d = r.machine->find(name);
  if (!d) {
    const std::vector<std::string> names = r.machine->names();
    return Error(ErrorCode::kInvalidArgument, fmt::format("device {} is not one of this machine ({}){}", quoted(name),
                                                          join(names, ", "), did_you_mean(name, names)));
  }
  return *d;
}

// What runs the plan computes nothing from the disk, and only units that compute nothing may be pinned there.
bool computes_from_disk(const PlanRequest& r) {
  return r.stream && r.target != Target::kLlamaCpp && r.assign.machine->cpu().has_value();
}

Result<std::vector<std::optional<size_t>>> resolve_pins(const PlanRequest& r) {
  const sizing::UnitTable& table = *r.assign.units;
  std::vector<std::optional<size_t>> out(table.units.size());
  std::vector<const Pin*> by(table.units.size(), nullptr);
  std::vector<std::pair<int, size_t>> ranks(table.units.size());
  for (const Pin& pin : r.pins) {
    TRY(const size_t device, find_device(r.assign, pin.device));
    const bool disk = r.assign.machine->devices[device].kind == machine::DeviceKind::kDisk;
    bool any = false;
    for (size_t u = 0; u < table.units.size(); ++u) {
      const auto rank = pin_rank(pin, table.units[u]);
      if (!rank) continue;
      any = true;
      // A table stored with the head is the head's to place.
      const size_t holder = table.units[u].stored_with >= 0 ? static_cast<size_t>(table.units[u].stored_with) : u;
      if (disk && static_cast<int32_t>(holder) < table.chain_size && !computes_from_disk(r))
        return Error(ErrorCode::kUnsupported,
                     fmt::format("--pin {}={} puts {} on the disk, from where nothing can be computed here",
                                 pin.pattern, pin.device, quoted(table.units[holder].path)),
                     {"Pin it to the cpu or an accelerator."});
      if (by[holder] != nullptr && *rank < ranks[holder]) continue;
      if (by[holder] != nullptr && *rank == ranks[holder] && *out[holder] != device)
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("two pins put {} on different devices: {}={} and {}={}", quoted(table.units[u].path),
                                 by[holder]->pattern, by[holder]->device, pin.pattern, pin.device),
                     {"Of a path and a glob the path decides, of two paths the deeper one."});
      out[holder] = device;
      by[holder] = &pin;
      ranks[holder] = *rank;
    }
    if (!any) {
      const auto paths = unit_paths(table);
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--pin {}={} matches no module{}", pin.pattern, pin.device, did_you_mean(pin.pattern, paths)),
          {"Module paths are listed by: berth inspect MODEL"});
    }
  }
  return out;
}

double seconds(int64_t ps) { return static_cast<double>(ps) / 1e12; }

Certificate certificate_of(const BestResult& search, int64_t value_ps, bool optimal) {
  Certificate c;
  c.value_s = seconds(value_ps);
  c.bound_s = seconds(std::min(search.bound_ps, value_ps));
  c.gap_s = seconds(value_ps - std::min(search.bound_ps, value_ps));
  c.bound_any_s = seconds(std::min(search.bound_any_ps, value_ps));
  c.optimal = optimal;
  c.family = search.family;
  c.labels = static_cast<uint64_t>(search.labels);
  return c;
}

Status known_strategy(const std::string& name) {
  if (std::find(std::begin(kStrategies), std::end(kStrategies), name) != std::end(kStrategies)) return {};
  const std::vector<std::string> names(std::begin(kStrategies), std::end(kStrategies));
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("there is no strategy {}{}", quoted(name), did_you_mean(name, names)),
               {"Strategies are " + join(names, ", ") + ".",
                "A device (0, cuda:0, cpu), a map as inline JSON or a *.json file are taken as well."});
}

// The placement of a strategy other than `best`; nothing where it has none.
std::optional<Placement> place_by(const std::string& strategy, const CostModel& model) {
  if (strategy == "sequential") return place_sequential(model);
  return place_balanced(model, strategy == "balanced_low_0").placement;
}

BestResult searched(const PlanRequest& request, const CostModel& model, int64_t effort) {
  if (request.memo == nullptr) return find_best(model, effort, kScatterNodes);
  const auto known = request.memo->find(effort);
  return known != request.memo->end()
             ? known->second
             : request.memo->emplace(effort, find_best(model, effort, kScatterNodes)).first->second;
}

}  // namespace

std::span<const std::string_view> strategy_names() { return kStrategies; }

std::vector<machine::DeviceBudget> searched_budgets(const PlanRequest& request) {
  std::vector<machine::DeviceBudget> out(request.assign.budgets.begin(), request.assign.budgets.end());
  for (size_t d = 0; d < out.size(); ++d)
    if (request.assign.machine->devices[d].is_accelerator() && !out[d].left_out)
      out[d].margin_bytes += std::min(request.prefill_room_bytes, machine::kMaxMemoryBytes);
  return out;
}

Result<Rules> rules_of(const PlanRequest& request) {
  Rules rules;
  TRY(rules.pins, resolve_pins(request));
  rules.tables = request.tables;
  rules.target = request.target;
  rules.offload = request.offload;
  rules.stream = request.stream;
  return rules;
}

Result<Plan> make_plan(const PlanRequest& request) {
  TRY_STATUS(known_strategy(request.strategy));
  if (request.assign.units->chain_size < 1)
    return Error(ErrorCode::kInvalidArgument, "planning: the model has no unit that computes anything");
  TRY(Rules rules, rules_of(request));
  PlanRequest named = request;
  named.assign.strategy = request.strategy == "auto" ? "best" : request.strategy;
  named.assign.stream = request.stream;
  named.assign.target = request.target;
  const auto model_under = [&] {
    return CostModel::make(*request.assign.units, *request.assign.machine, searched_budgets(request),
                           request.assign.shape, rules);
  };
  // Room for prompts is of use to what has no KV cache: the rest stays on accelerators, if it can.
  rules.kv_on_accelerators = request.prefill_room_bytes > 0 && request.stream;
  CostModel model = model_under();
  std::vector<std::string> warnings;
  std::optional<Placement> placement;
  if (named.assign.strategy != "best") {
    placement = place_by(named.assign.strategy, model);
    if (!placement) {
      warnings.push_back(fmt::format("{} does not hold everything {}; this is the plan of best.", named.assign.strategy,
                                     named.assign.strategy == "sequential" ? "in machine order" : "on accelerators"));
      named.assign.strategy = "best";
    }
  }
  const bool best = !placement.has_value();
  const int64_t effort = best ? request.effort : std::min(request.effort, kBoundEffort);
  BestResult search =
      rules.kv_on_accelerators ? find_best(model, effort, kScatterNodes) : searched(request, model, effort);
  if (best && !search.placement && rules.kv_on_accelerators) {
    rules.kv_on_accelerators = false;
    model = model_under();
    search = find_best(model, effort, kScatterNodes);
  }
  if (best) {
    if (!search.placement) return refusal(named, rules, model, search);
    placement = search.placement;
  }
  TRY(Plan plan, assign(named.assign, with_reasons(named.assign, model, rules, *placement)));
  const Cost cost = model.cost(*placement);
  plan.certificate =
      certificate_of(search, cost.time_ps, best ? search.optimal : search.optimal && cost.time_ps == search.bound_ps);
  if (best && search.family == "scatter")
    warnings.push_back(
        "No plan with one run of layers per accelerator fits; this one visits accelerators more than once.");
  if (best && !search.optimal && search.family != "scatter")
    warnings.push_back(fmt::format(
        "The search stopped at {} labels: the plan is at most {:.2f} % slower than the best one (--plan-effort).",
        search.labels, 100.0 * plan.certificate->gap_s / std::max(plan.certificate->value_s, 1e-30)));
  plan.warnings = std::move(warnings);
  return plan;
}

Result<bool> plan_exists(const PlanRequest& request) {
  if (request.assign.units->chain_size < 1)
    return Error(ErrorCode::kInvalidArgument, "planning: the model has no unit that computes anything");
  TRY(const Rules rules, rules_of(request));
  const CostModel model = CostModel::make(*request.assign.units, *request.assign.machine, searched_budgets(request),
                                          request.assign.shape, rules);
  return finds_placement(model, kQuickEffort, kQuickNodes) ||
         find_best(model, request.effort, kScatterNodes).placement.has_value();
}

Result<Plan> plan_from_map(const PlanRequest& request, const DeviceMap& map) {
  const sizing::UnitTable& table = *request.assign.units;
  PlanRequest named = request;
  named.assign.strategy = "custom";
  named.assign.stream = request.stream;
  named.assign.target = request.target;
  std::vector<Assignment> assignments;
  for (size_t u = 0; u < table.units.size(); ++u) {
    const bool is_table = static_cast<int32_t>(u) >= table.chain_size;
    const size_t holder = table.units[u].stored_with >= 0 ? static_cast<size_t>(table.units[u].stored_with) : u;
    const sizing::Unit& unit = table.units[holder];
    std::optional<size_t> device;
    for (const std::string& path : unit.paths) {
      const DeviceName* name = map.lookup(path);
      if (name == nullptr) {
        if (unit.stored_bytes == 0) continue;
        return Error(ErrorCode::kInvalidArgument, fmt::format("the device map covers no device for {}", quoted(path)),
                     {"Add an entry for it or for a module above it (\"\" covers the whole model)."});
      }
      TRY(const size_t d, find_device(request.assign, name->normalized().text()));
      if (device && *device != d)
        return Error(
            ErrorCode::kUnsupported,
            fmt::format(
                "the device map separates modules of {} ({} is on {}, others on {}); Berth places it as a whole",
                quoted(unit.path), quoted(path), request.assign.budgets[d].map_name,
                request.assign.budgets[*device].map_name),
            {"Give the whole module one device."});
      device = d;
    }
    if (!device)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the device map covers no device for {}", quoted(unit.path)));
    size_t computes = *device;
    if (request.assign.machine->devices[*device].kind == machine::DeviceKind::kDisk && !is_table) {
      const auto cpu = request.assign.machine->cpu();
      if (!request.stream || !cpu)
        return Error(ErrorCode::kUnsupported,
                     fmt::format("the device map puts {} on the disk, from where nothing can be computed here",
                                 quoted(unit.path)),
                     {"Put it on the cpu or an accelerator."});
      computes = *cpu;
    }
    const Access access = is_table ? Access::kGather : computes == *device ? Access::kCompute : Access::kStream;
    assignments.push_back({*device, computes, access, "the map says so"});
  }
  auto plan = assign(named.assign, assignments);
  if (plan || plan.error().code != ErrorCode::kDoesNotFit || request.explain != Explain::kRemedies) return plan;
  TRY(const Rules rules, rules_of(request));
  return with_remedies(request, rules, assignments, std::move(plan).error());
}

}  // namespace berth::plan
