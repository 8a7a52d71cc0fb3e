// plan/strategy.cc — pins resolved, the strategy chosen; and maps of the user's own.
#include "berth/plan/strategy.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "berth/base/strings.h"
#include "berth/plan/strategies/sequential.h"

namespace berth::plan {
namespace {

constexpr std::string_view kStrategies[] = {"sequential"};

bool is_under(std::string_view path, std::string_view ancestor) {
  return ancestor.empty() || path == ancestor || (path.starts_with(ancestor) && path[ancestor.size()] == '.');
}

// Whether a pin's pattern concerns the unit: it names the unit, a module above it, or one of the unit's own modules.
bool pin_matches(const Pin& pin, const sizing::Unit& unit) {
  const auto one = [&](const std::string& path) {
    return glob_match(pin.pattern, path) || is_under(path, pin.pattern) || is_under(pin.pattern, path);
  };
  return one(unit.path) || std::any_of(unit.paths.begin(), unit.paths.end(), [&](const std::string& p) {
           return glob_match(pin.pattern, p) || is_under(p, pin.pattern);
         });
}

std::vector<std::string> unit_paths(const sizing::UnitTable& table) {
  std::vector<std::string> paths;
  for (const sizing::Unit& u : table.units) paths.push_back(u.path);
  return paths;
}

Result<size_t> find_device(const AssignRequest& r, const std::string& name) {
  const auto d = r.machine->find(name);
  if (!d) {
    const std::vector<std::string> names = r.machine->names();
    return Error(ErrorCode::kInvalidArgument, fmt::format("device {} is not one of this machine ({}){}", quoted(name), join(names, ", "),
                                                          did_you_mean(name, names)));
  }
  return *d;
}

Result<std::vector<std::optional<size_t>>> resolve_pins(const PlanRequest& r) {
  const sizing::UnitTable& table = *r.assign.units;
  std::vector<std::optional<size_t>> out(table.units.size());
  for (const Pin& pin : r.pins) {
    TRY(const size_t device, find_device(r.assign, pin.device));
    bool any = false;
    for (size_t u = 0; u < table.units.size(); ++u) {
      if (!pin_matches(pin, table.units[u])) continue;
      any = true;
      // A table stored with the head is the head's to place.
      const size_t holder = table.units[u].stored_with >= 0 ? static_cast<size_t>(table.units[u].stored_with) : u;
      if (out[holder] && *out[holder] != device)
        return Error(ErrorCode::kInvalidArgument, fmt::format("two pins put {} on different devices", quoted(table.units[u].path)));
      out[holder] = device;
    }
    if (!any) {
      const auto paths = unit_paths(table);
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--pin {}={} matches no module{}", pin.pattern, pin.device, did_you_mean(pin.pattern, paths)),
                   {"Module paths are listed by: berth inspect MODEL"});
    }
  }
  return out;
}

}  // namespace

std::span<const std::string_view> strategy_names() { return kStrategies; }

Result<Plan> make_plan(const PlanRequest& request) {
  TRY(const auto pins, resolve_pins(request));
  PlanRequest named = request;
  named.assign.strategy = request.strategy;
  return plan_sequential(named, pins);
}

Result<Plan> plan_from_map(const PlanRequest& request, const DeviceMap& map) {
  const sizing::UnitTable& table = *request.assign.units;
  PlanRequest named = request;
  named.assign.strategy = "custom";
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
        return Error(ErrorCode::kUnsupported,
                     fmt::format("the device map separates modules of {} ({} is on {}, others on {}); Berth places it as a whole",
                                 quoted(unit.path), quoted(path), request.assign.budgets[d].map_name,
                                 request.assign.budgets[*device].map_name),
                     {"Give the whole module one device."});
      device = d;
    }
    if (!device) return Error(ErrorCode::kInvalidArgument, fmt::format("the device map covers no device for {}", quoted(unit.path)));
    assignments.push_back({*device, *device, is_table ? Access::kGather : Access::kCompute, "the map says so"});
  }
  return assign(named.assign, assignments);
}

}  // namespace berth::plan
