// plan/assign.cc — see assign.h.
#include "berth/plan/assign.h"

#include <algorithm>

#include <fmt/format.h>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"

namespace berth::plan {
namespace {

uint64_t weights_on(const machine::DeviceSpec& device, const sizing::Unit& unit) {
  if (device.kind == machine::DeviceKind::kDisk) return unit.disk_bytes;
  return device.kind == machine::DeviceKind::kCuda ? unit.stored_bytes_512 : unit.stored_bytes;
}

Error over_budget(const AssignRequest& r, std::span<const Assignment> assignments, size_t d, const DeviceUse& use) {
  const sizing::Unit* largest = nullptr;
  for (size_t u = 0; u < assignments.size(); ++u)
    if (assignments[u].memory == d && (largest == nullptr || r.units->units[u].stored_bytes > largest->stored_bytes))
      largest = &r.units->units[u];
  const std::string module = largest == nullptr ? "" : largest->path;
  const uint64_t missing = use.used() - use.budget_bytes;
  JsonWriter details;
  details.begin_object()
      .member("device", use.id)
      .member("module", module)
      .member("needed_bytes", use.used())
      .member("available_bytes", use.budget_bytes)
      .member("missing_bytes", missing)
      .member("proof", largest != nullptr && largest->stored_bytes > use.budget_bytes ? "unit" : "volume")
      .key("remedies")
      .begin_array()
      .end_array()
      .end_object();
  Error e(ErrorCode::kDoesNotFit,
          fmt::format("device {} would hold {} bytes (weights {}, KV cache {}, workspace {}, staging {}, overhead {}, margin {}) and has "
                      "{}: {} bytes are missing; the largest module there is {}",
                      use.id, use.used(), use.weights_bytes, use.kv_bytes, use.workspace_bytes, use.staging_bytes, use.overhead_bytes,
                      use.margin_bytes, use.budget_bytes, missing, module.empty() ? "none" : quoted(module)),
          {"Give the device more memory (--max-memory), move modules off it, or shrink the model (--load-in-4bit), the "
           "context (--ctx-size) or the batch."});
  e.details_json = details.take();
  return e;
}

}  // namespace

std::vector<DeviceUse> device_use(const AssignRequest& r, std::span<const Assignment> assignments) {
  CHECK(assignments.size() == r.units->units.size());
  const auto& devices = r.machine->devices;
  CHECK(r.budgets.size() == devices.size());
  std::vector<DeviceUse> use(devices.size());
  for (size_t d = 0; d < devices.size(); ++d) {
    use[d].id = r.budgets[d].map_name;
    use[d].machine_id = devices[d].id;
    use[d].budget_bytes = r.budgets[d].budget_bytes;
    use[d].overhead_bytes = r.budgets[d].overhead_bytes;
    use[d].margin_bytes = r.budgets[d].margin_bytes;
  }
  std::vector<std::vector<int32_t>> copied_caches(devices.size());
  for (size_t u = 0; u < assignments.size(); ++u) {
    const sizing::Unit& unit = r.units->units[u];
    const Assignment& a = assignments[u];
    const bool is_table = static_cast<int32_t>(u) >= r.units->chain_size;
    use[a.memory].weights_bytes += weights_on(devices[a.memory], unit);
    DeviceUse& computing = use[is_table ? a.memory : a.compute];
    computing.workspace_bytes = std::max(computing.workspace_bytes, unit.workspace_bytes);
    computing.kv_bytes += unit.kv_bytes;
    if (unit.kv_source >= 0) {
      // A reader of another device's cache keeps a copy of it, one per source.
      const size_t source_on = assignments[static_cast<size_t>(unit.kv_source)].compute;
      auto& copies = copied_caches[a.compute];
      if (source_on != a.compute && std::find(copies.begin(), copies.end(), unit.kv_source) == copies.end()) {
        copies.push_back(unit.kv_source);
        computing.kv_bytes += r.units->units[static_cast<size_t>(unit.kv_source)].kv_bytes;
      }
    }
    if (a.access == Access::kStream) {
      computing.staging_bytes = std::max(computing.staging_bytes, 2 * unit.grain_bytes);
      if (devices[a.memory].kind == machine::DeviceKind::kDisk && devices[a.compute].is_accelerator())
        for (size_t d = 0; d < devices.size(); ++d)
          if (devices[d].kind == machine::DeviceKind::kCpu)
            use[d].staging_bytes = std::max(use[d].staging_bytes, 2 * unit.grain_bytes);
    }
  }
  return use;
}

Result<Plan> assign(const AssignRequest& r, std::span<const Assignment> assignments) {
  const std::vector<DeviceUse> use = device_use(r, assignments);
  Plan plan;
  plan.strategy = r.strategy;
  plan.shape = r.shape;
  plan.memory_footprint_bytes = r.units->memory_footprint_bytes;
  for (size_t d = 0; d < use.size(); ++d) {
    const bool used = use[d].weights_bytes + use[d].kv_bytes + use[d].workspace_bytes + use[d].staging_bytes > 0;
    if (used && use[d].used() > use[d].budget_bytes) return over_budget(r, assignments, d, use[d]);
    if (used || !r.budgets[d].left_out) plan.devices.push_back(use[d]);
  }
  for (size_t u = 0; u < assignments.size(); ++u) {
    const sizing::Unit& unit = r.units->units[u];
    PlacedUnit placed;
    placed.path = unit.path;
    placed.paths = unit.paths;
    placed.device = use[assignments[u].memory].id;
    placed.computed_on = use[assignments[u].compute].id;
    placed.access = assignments[u].access;
    placed.access_prefill = assignments[u].access;
    placed.stored_bytes = weights_on(r.machine->devices[assignments[u].memory], unit);
    placed.touched_bytes = unit.touched_bytes;
    placed.kv_bytes = unit.kv_bytes;
    placed.reason = assignments[u].reason;
    plan.units.push_back(std::move(placed));
    if (u > 0 && static_cast<int32_t>(u) < r.units->chain_size && assignments[u].compute != assignments[u - 1].compute)
      ++plan.estimate.cuts;
  }
  return plan;
}

}  // namespace berth::plan
