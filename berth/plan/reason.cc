// plan/reason.cc — see reason.h.
#include "berth/plan/reason.h"

#include <fmt/format.h>

#include "berth/base/bytes.h"

namespace berth::plan {
namespace {

class Reasons {
 public:
  Reasons(const AssignRequest& r, const CostModel& model, const Rules& rules, const Placement& placement)
      : r_(r), m_(model), rules_(rules), p_(placement) {}

  std::string of_unit(int i) const {
    const Place place = p_.units[static_cast<size_t>(i)];
    const sizing::Unit& u = r_.units->units[static_cast<size_t>(i)];
    const std::string stored = name(place.memory), computing = name(place.compute);
    if (pinned(i)) return fmt::format("pinned to {}", stored);
    if (place.memory != place.compute)
      return fmt::format("no room on an accelerator: kept on {} and brought to {} for each use, {} a step", stored,
                         computing, format_bytes(u.touched_bytes));
    if (!m_.device(place.compute).accelerator) {
      if (!m_.has_accelerator()) return "there is no accelerator";
      if (u.touched_bytes < u.stored_bytes)
        return fmt::format("leaves the accelerators first: one step reads {} of its {}", format_bytes(u.touched_bytes),
                           format_bytes(u.stored_bytes));
      if (!any_accelerator_holds(i))
        return "no accelerator has room for it with its workspace and KV cache, even when empty";
      return "the accelerators are full, and with it here a step takes least";
    }
    const int before = i > 0 ? p_.units[static_cast<size_t>(i - 1)].compute : -1;
    if (before == place.compute) return fmt::format("follows the unit before it on {}", computing);
    if (before < 0) return fmt::format("the chain begins on {}", computing);
    for (int k = i - 1; k >= 0; --k)
      if (p_.units[static_cast<size_t>(k)].compute == place.compute)
        return fmt::format("back on {} after the cpu", computing);
    return fmt::format("the run on {} begins here", computing);
  }

  std::string of_table(int j) const {
    const sizing::Unit& u = r_.units->units[static_cast<size_t>(m_.unit_count() + j)];
    const int memory = m_.table_memory(j, p_);
    if (u.stored_with >= 0)
      return fmt::format("the same tensor as {}: its rows are gathered there",
                         r_.units->units[static_cast<size_t>(u.stored_with)].path);
    if (pinned(m_.unit_count() + j)) return fmt::format("pinned to {}", name(memory));
    if (!m_.device(memory).accelerator && m_.has_accelerator())
      return fmt::format("one step reads {} of its {}: the room on an accelerator is worth more",
                         format_bytes(u.touched_bytes), format_bytes(u.stored_bytes));
    return "where the unit is that its rows enter, or the cheapest way from it";
  }

 private:
  bool pinned(int u) const {
    return static_cast<size_t>(u) < rules_.pins.size() && rules_.pins[static_cast<size_t>(u)].has_value();
  }
  bool any_accelerator_holds(int i) const {
    const CostModel::Unit& u = m_.unit(i);
    for (int d = 0; d < m_.device_count(); ++d)
      if (m_.device(d).usable && m_.device(d).accelerator &&
          m_.unit_weights(i, d) + u.kv + u.workspace <= m_.device(d).budget)
        return true;
    return false;
  }
  std::string name(int d) const {
    const std::string& n = r_.budgets[static_cast<size_t>(d)].map_name;
    return m_.device(d).accelerator ? "device " + n : "the " + n;
  }

  const AssignRequest& r_;
  const CostModel& m_;
  const Rules& rules_;
  const Placement& p_;
};

}  // namespace

std::vector<Assignment> with_reasons(const AssignRequest& r, const CostModel& model, const Rules& rules,
                                     const Placement& p) {
  const Reasons reasons(r, model, rules, p);
  std::vector<Assignment> out;
  for (int i = 0; i < model.unit_count(); ++i) {
    const Place place = p.units[static_cast<size_t>(i)];
    out.push_back({static_cast<size_t>(place.memory), static_cast<size_t>(place.compute), model.access(place),
                   reasons.of_unit(i)});
  }
  for (int j = 0; j < model.table_count(); ++j) {
    const auto memory = static_cast<size_t>(model.table_memory(j, p));
    out.push_back({memory, memory, Access::kGather, reasons.of_table(j)});
  }
  return out;
}

}  // namespace berth::plan
