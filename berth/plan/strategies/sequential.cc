// plan/strategies/sequential.cc — see sequential.h.
//
// What has one place only (pins) is placed first, then tables: those that prefer the cpu there, the others on the first
// accelerator that takes them. Then the chain, each unit on the first device from the current one on that takes it.
#include "berth/plan/strategies/sequential.h"

#include <algorithm>
#include <vector>

namespace berth::plan {
namespace {

class Filler {
 public:
  explicit Filler(const CostModel& model) : m_(model) {
    placement_.units.assign(static_cast<size_t>(m_.unit_count()), Place{-1, -1});
    placement_.tables.assign(static_cast<size_t>(m_.table_count()), -1);
  }

  std::optional<Placement> fill() {
    std::vector<Place> order;  // accelerators, the cpu, the disk used from the cpu, the disk used from accelerators
    for (int d = 0; d < m_.device_count(); ++d)
      if (m_.device(d).usable && m_.device(d).accelerator) order.push_back(same(d));
    if (m_.cpu()) order.push_back(same(*m_.cpu()));
    const size_t here = order.size();
    for (const std::optional<int> memory : {m_.cpu(), m_.disk()})
      for (size_t k = here; memory && k-- > 0;)
        if (order[k].compute != *memory) order.push_back({order[k].compute, static_cast<int16_t>(*memory)});
    for (int i = 0; i < m_.unit_count(); ++i)
      if (only_memory(i) && !put_first(i, order, 0)) return std::nullopt;
    for (int j = 0; j < m_.table_count(); ++j)
      if (m_.table(j).stored_with < 0 && !put_table(j)) return std::nullopt;
    size_t at = 0;
    for (int i = 0; i < m_.unit_count(); ++i) {
      if (placement_.units[static_cast<size_t>(i)].compute >= 0) continue;
      const auto k = put_first(i, order, at);
      if (!k) return std::nullopt;
      at = *k;
    }
    if (!m_.fits(placement_)) return std::nullopt;
    return placement_;
  }

 private:
  static Place same(int d) { return {static_cast<int16_t>(d), static_cast<int16_t>(d)}; }

  bool only_memory(int i) const {
    const std::vector<Choice>& choices = m_.choices(i);
    return !choices.empty() && std::all_of(choices.begin(), choices.end(), [&](const Choice& c) {
      return c.place.memory == choices.front().place.memory;
    });
  }

  bool allowed(int i, Place place) const {
    const std::vector<Choice>& choices = m_.choices(i);
    return std::any_of(choices.begin(), choices.end(), [&](const Choice& c) { return c.place == place; });
  }

  std::optional<size_t> put_first(int i, const std::vector<Place>& order, size_t from) {
    for (size_t k = from; k < order.size(); ++k) {
      if (!allowed(i, order[k])) continue;
      placement_.units[static_cast<size_t>(i)] = order[k];
      if (fits()) return k;
      placement_.units[static_cast<size_t>(i)] = Place{-1, -1};
    }
    return std::nullopt;
  }

  bool put_table(int j) {
    std::vector<int16_t> order = m_.table_choices(j);
    if (m_.prefers_cpu(j)) order.insert(order.begin(), static_cast<int16_t>(*m_.cpu()));
    for (const int16_t d : order) {
      placement_.tables[static_cast<size_t>(j)] = d;
      if (fits()) return true;
    }
    placement_.tables[static_cast<size_t>(j)] = -1;
    return false;
  }

  // What is placed so far.
  bool fits() const {
    std::vector<DeviceLoad> loads(static_cast<size_t>(m_.device_count()));
    const auto at = [&](int d) -> DeviceLoad& { return loads[static_cast<size_t>(d)]; };
    std::vector<std::pair<int, int>> copied;
    for (int i = 0; i < m_.unit_count(); ++i) {
      const Place place = placement_.units[static_cast<size_t>(i)];
      if (place.compute < 0) continue;
      const CostModel::Unit& u = m_.unit(i);
      at(place.memory).weights += m_.unit_weights(i, place.memory);
      at(place.compute).kv += u.kv;
      at(place.compute).workspace = std::max(at(place.compute).workspace, u.workspace);
      if (place.memory != place.compute) {
        at(place.compute).staging = std::max(at(place.compute).staging, 2 * u.grain);
        if (m_.device(place.memory).kind == machine::DeviceKind::kDisk && m_.cpu())
          at(*m_.cpu()).staging = std::max(at(*m_.cpu()).staging, 2 * u.grain);
      }
      const std::pair<int, int> copy{u.kv_source, place.compute};
      if (u.kv_source < 0 || placement_.units[static_cast<size_t>(u.kv_source)].compute == place.compute) continue;
      if (std::find(copied.begin(), copied.end(), copy) != copied.end()) continue;
      copied.push_back(copy);
      at(place.compute).kv += m_.unit(u.kv_source).kv;
    }
    for (int j = 0; j < m_.table_count(); ++j) {
      const int holder = m_.table(j).stored_with;
      const int memory = holder >= 0 ? placement_.units[static_cast<size_t>(holder)].memory
                                     : placement_.tables[static_cast<size_t>(j)];
      if (memory < 0) continue;
      if (holder < 0) at(memory).weights += m_.table_weights(j, memory);
      if (const int g = m_.gatherer(memory); g >= 0) at(g).workspace = std::max(at(g).workspace, m_.table(j).workspace);
    }
    for (int d = 0; d < m_.device_count(); ++d)
      if (at(d).total() > m_.device(d).budget) return false;
    return true;
  }

  const CostModel& m_;
  Placement placement_;
};

}  // namespace

std::optional<Placement> place_sequential(const CostModel& model) { return Filler(model).fill(); }

}  // namespace berth::plan
