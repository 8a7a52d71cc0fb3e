// plan/strategies/table_combinations.cc — see table_combinations.h.
#include "berth/plan/strategies/table_combinations.h"

#include <algorithm>

#include "berth/plan/strategies/search_space.h"

namespace berth::plan {
namespace {

constexpr size_t kMostCombinations = 512;

// Memories of tables and of units that tables are stored with, one combination after the other.
class Combiner {
 public:
  Combiner(const CostModel& model, bool by_rule, bool on_accelerators, int single_device)
      : m_(model), by_rule_(by_rule), on_accelerators_(on_accelerators) {
    tables_.assign(static_cast<size_t>(m_.table_count()), -1);
    units_.assign(static_cast<size_t>(m_.unit_count()), -1);
    touched_.assign(static_cast<size_t>(m_.device_count()), false);
    if (single_device >= 0) touched_[static_cast<size_t>(single_device)] = true;
    // Devices that a pin singles out are nobody's twins.
    for (int i = 0; i < m_.unit_count(); ++i) single_out(stored_by(i));
    for (int j = 0; j < m_.table_count(); ++j) {
      std::vector<int16_t> open(m_.table_choices(j).begin(), m_.table_choices(j).end());
      single_out(open);
    }
    add(0);
  }

  TableCombinations out;

 private:
  std::vector<int16_t> stored_by(int i) const {
    std::vector<int16_t> memories;
    for (const Choice& c : m_.choices(i))
      if (std::find(memories.begin(), memories.end(), c.place.memory) == memories.end())
        memories.push_back(c.place.memory);
    std::sort(memories.begin(), memories.end());
    return memories;
  }

  void single_out(const std::vector<int16_t>& open) {
    std::vector<int> accelerators;
    for (int d = 0; d < m_.device_count(); ++d)
      if (m_.device(d).usable && m_.device(d).accelerator) accelerators.push_back(d);
    const auto has = [&](int d) { return std::find(open.begin(), open.end(), static_cast<int16_t>(d)) != open.end(); };
    const auto some = std::count_if(accelerators.begin(), accelerators.end(), has);
    if (some == 0 || some == static_cast<std::ptrdiff_t>(accelerators.size())) return;
    for (const int d : accelerators)
      if (has(d)) touched_[static_cast<size_t>(d)] = true;
  }

  void prefer_accelerators(std::vector<int16_t>& open) const {
    std::vector<int16_t> kept;
    for (const int16_t d : open)
      if (m_.device(d).accelerator) kept.push_back(d);
    if (!kept.empty()) open = kept;
  }

  bool repeats(int d) const {
    if (touched_[static_cast<size_t>(d)] || !m_.device(d).accelerator) return false;
    for (int e = 0; e < d; ++e)
      if (m_.device(e).usable && m_.device(e).accelerator && !touched_[static_cast<size_t>(e)] &&
          interchangeable(m_, e, d))
        return true;
    return false;
  }

  void add(int j) {
    if (out.all.size() >= kMostCombinations) {
      out.complete = false;
      return;
    }
    if (j == m_.table_count()) {
      out.all.push_back({tables_, units_});
      return;
    }
    const int holder = m_.table(j).stored_with;
    if (holder >= 0 && units_[static_cast<size_t>(holder)] >= 0) return add(j + 1);
    std::vector<int16_t> open = holder >= 0 ? stored_by(holder) : m_.table_choices(j);
    if (holder < 0 && by_rule_ && m_.prefers_cpu(j))
      open = {static_cast<int16_t>(*m_.cpu())};
    else if (on_accelerators_)
      prefer_accelerators(open);
    int16_t& slot = holder >= 0 ? units_[static_cast<size_t>(holder)] : tables_[static_cast<size_t>(j)];
    for (const int16_t d : open) {
      if (repeats(d)) continue;
      const bool was = touched_[static_cast<size_t>(d)];
      touched_[static_cast<size_t>(d)] = true;
      slot = d;
      add(j + 1);
      slot = -1;
      touched_[static_cast<size_t>(d)] = was;
    }
  }

  const CostModel& m_;
  bool by_rule_, on_accelerators_;
  std::vector<int16_t> tables_, units_;
  std::vector<bool> touched_;
};

}  // namespace

TableCombinations table_combinations(const CostModel& model, bool by_rule, bool on_accelerators, int single_device) {
  return Combiner(model, by_rule, on_accelerators, single_device).out;
}

}  // namespace berth::plan
