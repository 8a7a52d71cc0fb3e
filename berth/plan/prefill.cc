// plan/prefill.cc — see prefill.h.
#include "berth/plan/prefill.h"

#include <algorithm>

namespace berth::plan {
namespace {

// One chunk of a unit: it reads all it stores and the cache.
int64_t chunk_ps(const CostModel& model, const sizing::Unit& unit, int device, int64_t weights) {
  const CostModel::Device& d = model.device(device);
  return std::max(model.ps(static_cast<uint64_t>(weights) + unit.kv_bytes, d.read),
                  model.ps(unit.prefill_flops, d.flops));
}

}  // namespace

PrefillPlan plan_prefill(const CostModel& model, const sizing::UnitTable& units, const Placement& placement,
                         bool stream, std::vector<DeviceUse>& use) {
  PrefillPlan out;
  int before = -1;
  int visited = -1;  // the accelerator that ran last; before any did, the first one
  for (const Place& place : placement.units)
    if (visited < 0 && model.device(place.compute).accelerator) visited = place.compute;
  for (int i = 0; i < model.unit_count(); ++i) {
    const sizing::Unit& unit = units.units[static_cast<size_t>(i)];
    const Place place = placement.units[static_cast<size_t>(i)];
    const int64_t weights = model.unit_weights(i, place.compute);
    const auto input = static_cast<int64_t>(unit.prefill_input_bytes);
    const auto way = [&](int to) {
      return before < 0 ? model.host_way_ps(to, input) : model.way_ps(before, to, input);
    };
    int on = place.compute;
    Access access = model.access(place);
    int64_t time = chunk_ps(model, unit, on, weights) + way(on);
    const auto brought = [&](int d) {
      const CostModel::Device& memory = model.device(place.memory);
      const int64_t link = model.device(d).accelerator ? model.device(d).link : memory.read;
      return model.ps(static_cast<uint64_t>(weights),
                      memory.kind == machine::DeviceKind::kDisk ? std::min(link, memory.read) : link);
    };
    if (access == Access::kStream) time += brought(on);
    const bool away = !model.device(place.compute).accelerator && place.memory == place.compute && unit.kv_bytes == 0 &&
                      unit.kv_source < 0;
    if (stream && away && visited >= 0) {
      DeviceUse& there = use[static_cast<size_t>(visited)];
      const uint64_t staging = std::max(there.staging_bytes, 2 * unit.grain_bytes);
      const uint64_t workspace = std::max(there.workspace_bytes, unit.workspace_bytes);
      const uint64_t more = staging - there.staging_bytes + workspace - there.workspace_bytes;
      // The activations come back to the cpu's next unit by its own way, counted there.
      const int64_t there_ps = chunk_ps(model, unit, visited, weights) + brought(visited) + way(visited);
      if (there_ps < time && more <= there.free_bytes()) {
        there.staging_bytes = staging;
        there.workspace_bytes = workspace;
        on = visited;
        access = Access::kStream;
        time = there_ps;
      }
    }
    out.time_ps += time;
    out.access.push_back(access);
    out.computed_on.push_back(on);
    before = on;
    if (model.device(on).accelerator) visited = on;
  }
  if (before >= 0) out.time_ps += model.host_way_ps(before, model.logits_bytes());
  return out;
}

}  // namespace berth::plan
