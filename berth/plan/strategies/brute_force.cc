// plan/strategies/brute_force.cc — see brute_force.h.
#include "berth/plan/strategies/brute_force.h"

#include <algorithm>

namespace berth::plan {
namespace {

class Enumerator {
 public:
  Enumerator(const CostModel& model, bool by_rule) : m_(model), by_rule_(by_rule) {
    placement_.units.resize(static_cast<size_t>(m_.unit_count()));
    placement_.tables.assign(static_cast<size_t>(m_.table_count()), -1);
    weights_.assign(static_cast<size_t>(m_.device_count()), 0);
  }
  BruteForceResult run() {
    table(0);
    return result_;
  }

 private:
  void table(int j) {
    if (j == m_.table_count()) return unit(0);
    if (m_.table(j).stored_with >= 0) return table(j + 1);
    for (const int16_t d : m_.table_choices(j)) {
      if (by_rule_ && m_.prefers_cpu(j) && d != *m_.cpu()) continue;
      placement_.tables[static_cast<size_t>(j)] = d;
      weights_[static_cast<size_t>(d)] += m_.table_weights(j, d);
      if (weights_[static_cast<size_t>(d)] <= m_.device(d).budget) table(j + 1);
      weights_[static_cast<size_t>(d)] -= m_.table_weights(j, d);
    }
  }
  void unit(int i) {
    if (i == m_.unit_count()) return leaf();
    for (const Choice& c : m_.choices(i)) {
      placement_.units[static_cast<size_t>(i)] = c.place;
      int64_t& w = weights_[static_cast<size_t>(c.place.memory)];
      w += m_.unit_weights(i, c.place.memory);
      if (w <= m_.device(c.place.memory).budget) unit(i + 1);
      w -= m_.unit_weights(i, c.place.memory);
    }
  }
  void leaf() {
    ++result_.tried;
    if (!m_.fits(placement_)) return;
    const Cost cost = m_.cost(placement_);
    if (!result_.any || cost < *result_.any) result_.any = cost;
    if (one_run_per_accelerator(m_, placement_) && (!result_.runs || cost < *result_.runs)) result_.runs = cost;
  }

  const CostModel& m_;
  bool by_rule_;
  Placement placement_;
  std::vector<int64_t> weights_;
  BruteForceResult result_;
};

}  // namespace

bool one_run_per_accelerator(const CostModel& model, const Placement& placement) {
  std::vector<int> visited;
  for (const Place& p : placement.units) {
    if (!model.device(p.compute).accelerator || (!visited.empty() && visited.back() == p.compute)) continue;
    if (std::find(visited.begin(), visited.end(), p.compute) != visited.end()) return false;
    visited.push_back(p.compute);
  }
  return true;
}

BruteForceResult brute_force(const CostModel& model) {
  BruteForceResult by_rule = Enumerator(model, true).run();
  by_rule.by_rule = true;
  if (by_rule.any) return by_rule;
  return Enumerator(model, false).run();
}

}  // namespace berth::plan
