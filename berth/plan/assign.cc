// plan/assign.cc — see assign.h.
#include "berth/plan/assign.h"

#include <fmt/format.h>

#include <algorithm>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/plan/prefill.h"

namespace berth::plan {
namespace {

CostModel model_of(const AssignRequest& r) {
  Rules rules;
  rules.target = r.target;
  return CostModel::make(*r.units, *r.machine, r.budgets, r.shape, rules);
}

Placement placement_of(const AssignRequest& r, std::span<const Assignment> assignments) {
  CHECK(assignments.size() == r.units->units.size());
  Placement p;
  for (size_t u = 0; u < assignments.size(); ++u) {
    CHECK(assignments[u].memory < r.machine->devices.size() && assignments[u].compute < r.machine->devices.size());
    if (static_cast<int32_t>(u) < r.units->chain_size)
      p.units.push_back({static_cast<int16_t>(assignments[u].compute), static_cast<int16_t>(assignments[u].memory)});
    else
      p.tables.push_back(static_cast<int16_t>(assignments[u].memory));
  }
  return p;
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
          fmt::format("device {} would hold {} bytes (weights {}, KV cache {}, workspace {}, staging {}, overhead {}, "
                      "margin {}) and has "
                      "{}: {} bytes are missing; the largest module there is {}",
                      use.id, use.used(), use.weights_bytes, use.kv_bytes, use.workspace_bytes, use.staging_bytes,
                      use.overhead_bytes, use.margin_bytes, use.budget_bytes, missing,
                      module.empty() ? "none" : quoted(module)),
          {"Give the device more memory (--max-memory), move modules off it, or shrink the model (--load-in-4bit), the "
           "context (--ctx-size) or the batch."});
  e.details_json = details.take();
  return e;
}

std::vector<DeviceUse> use_of(const AssignRequest& r, const CostModel& model, const Placement& placement) {
  const std::vector<DeviceLoad> loads = model.loads(placement);
  std::vector<DeviceUse> use(loads.size());
  for (size_t d = 0; d < loads.size(); ++d) {
    use[d].id = r.budgets[d].map_name;
    use[d].machine_id = r.machine->devices[d].id;
    use[d].budget_bytes = r.budgets[d].budget_bytes;
    use[d].overhead_bytes = r.budgets[d].overhead_bytes;
    use[d].margin_bytes = r.budgets[d].margin_bytes;
    use[d].weights_bytes = static_cast<uint64_t>(loads[d].weights);
    use[d].kv_bytes = static_cast<uint64_t>(loads[d].kv);
    use[d].workspace_bytes = static_cast<uint64_t>(loads[d].workspace);
    use[d].staging_bytes = static_cast<uint64_t>(loads[d].staging);
  }
  return use;
}

double per_second(int64_t count, int64_t ps) {
  return ps > 0 ? static_cast<double>(count) * 1e12 / static_cast<double>(ps) : 0;
}

}  // namespace

std::vector<DeviceUse> device_use(const AssignRequest& r, std::span<const Assignment> assignments) {
  return use_of(r, model_of(r), placement_of(r, assignments));
}

Result<Plan> assign(const AssignRequest& r, std::span<const Assignment> assignments) {
  const CostModel model = model_of(r);
  const Placement placement = placement_of(r, assignments);
  std::vector<DeviceUse> use = use_of(r, model, placement);
  Plan plan;
  plan.strategy = r.strategy;
  plan.shape = r.shape;
  plan.memory_footprint_bytes = r.units->memory_footprint_bytes;
  for (size_t d = 0; d < use.size(); ++d) {
    const bool used = use[d].weights_bytes + use[d].kv_bytes + use[d].workspace_bytes + use[d].staging_bytes > 0;
    if (used && use[d].used() > use[d].budget_bytes) return over_budget(r, assignments, d, use[d]);
  }
  const Cost cost = model.cost(placement);
  const PrefillPlan prefill = plan_prefill(model, *r.units, placement, r.stream, use);
  plan.estimate.decode_tokens_per_s = per_second(r.shape.batch, cost.time_ps);
  plan.estimate.prefill_tokens_per_s = per_second(r.shape.prefill_chunk, prefill.time_ps);
  plan.estimate.cuts = cost.moves;
  for (size_t d = 0; d < use.size(); ++d) {
    const bool used = use[d].weights_bytes + use[d].kv_bytes + use[d].workspace_bytes + use[d].staging_bytes > 0;
    if (used || !r.budgets[d].left_out) plan.devices.push_back(use[d]);
  }
  std::vector<std::pair<int32_t, size_t>> copied;  // shared caches that a device already has a copy of
  for (size_t u = 0; u < assignments.size(); ++u) {
    const sizing::Unit& unit = r.units->units[u];
    const bool is_table = static_cast<int32_t>(u) >= r.units->chain_size;
    // A table stored with a unit is where that is.
    const size_t memory =
        is_table ? static_cast<size_t>(model.table_memory(static_cast<int>(u) - r.units->chain_size, placement))
                 : assignments[u].memory;
    PlacedUnit placed;
    placed.kind = unit.kind;
    placed.layer = unit.layer;
    placed.path = unit.path;
    placed.paths = unit.paths;
    placed.device = use[memory].id;
    placed.computed_on = is_table ? placed.device : use[assignments[u].compute].id;
    placed.access = is_table ? Access::kGather : model.access(placement.units[u]);
    placed.access_prefill = is_table ? Access::kGather : prefill.access[u];
    // On the disk it costs what is not in the checkpoint already; what is kept there, and brought over, is all of it.
    const bool on_disk = r.machine->devices[memory].kind == machine::DeviceKind::kDisk;
    if (!(is_table && unit.stored_with >= 0))
      placed.stored_bytes =
          on_disk ? unit.stored_bytes
                  : static_cast<uint64_t>(model.unit_weights(static_cast<int>(u), static_cast<int>(memory)));
    placed.touched_bytes = unit.touched_bytes;
    placed.kv_bytes = unit.kv_bytes;
    if (!is_table && unit.kv_source >= 0) {
      const auto source = static_cast<size_t>(unit.kv_source);
      const std::pair<int32_t, size_t> copy{unit.kv_source, assignments[u].compute};
      if (assignments[source].compute != assignments[u].compute &&
          std::find(copied.begin(), copied.end(), copy) == copied.end()) {
        copied.push_back(copy);
        placed.kv_bytes += r.units->units[source].kv_bytes;
      }
    }
    placed.reason = assignments[u].reason;
    plan.units.push_back(std::move(placed));
  }
  return plan;
}

}  // namespace berth::plan
