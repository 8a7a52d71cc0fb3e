// plan/strategies/tidy.cc — see tidy.h.
#include "berth/plan/strategies/tidy.h"

#include <algorithm>
#include <map>
#include <vector>

namespace berth::plan {
namespace {

// Everything that tells two units of a run apart.
std::vector<int64_t> numbers_of(const CostModel& model, const Placement& p, int i) {
  const CostModel::Unit& u = model.unit(i);
  std::vector<int64_t> key{p.units[static_cast<size_t>(i - 1)].compute,
                           u.touched,
                           u.kv,
                           u.kv_new_rows,
                           u.flops,
                           u.input,
                           u.workspace,
                           u.grain,
                           i + 1 < model.unit_count() ? model.unit(i + 1).input : 0};
  for (int d = 0; d < model.device_count(); ++d) key.push_back(model.unit_weights(i, d));
  for (const Choice& c : model.choices(i)) key.insert(key.end(), {c.place.compute, c.place.memory});
  return key;
}

}  // namespace

Placement tidied(const CostModel& model, const Placement& placement) {
  std::vector<bool> special(static_cast<size_t>(model.unit_count()), false);  // tables or caches hang on it
  for (int i = 0; i < model.unit_count(); ++i)
    if (model.unit(i).kv_source >= 0)
      special[static_cast<size_t>(i)] = special[static_cast<size_t>(model.unit(i).kv_source)] = true;
  for (int j = 0; j < model.table_count(); ++j) {
    special[static_cast<size_t>(model.table(j).consumer)] = true;
    if (model.table(j).stored_with >= 0) special[static_cast<size_t>(model.table(j).stored_with)] = true;
  }
  std::map<std::vector<int64_t>, std::vector<int>> alike;
  for (int i = 1; i + 1 < model.unit_count(); ++i) {
    const int before = placement.units[static_cast<size_t>(i - 1)].compute,
              after = placement.units[static_cast<size_t>(i + 1)].compute;
    if (special[static_cast<size_t>(i)] || before != after || !model.device(before).accelerator) continue;
    alike[numbers_of(model, placement, i)].push_back(i);
  }
  Placement tidy = placement;
  for (const auto& [key, units] : alike) {
    std::vector<Place> places;
    for (const int i : units) places.push_back(placement.units[static_cast<size_t>(i)]);
    const auto home = static_cast<int16_t>(key.front());
    std::stable_partition(places.begin(), places.end(),
                          [home](const Place& p) { return p.compute != home || p.memory != home; });
    for (size_t k = 0; k < units.size(); ++k) tidy.units[static_cast<size_t>(units[k])] = places[k];
  }
  return model.fits(tidy) && model.cost(tidy) == model.cost(placement) ? tidy : placement;
}

}  // namespace berth::plan
