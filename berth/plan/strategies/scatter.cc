// plan/strategies/scatter.cc — see scatter.h.
#include "berth/plan/strategies/scatter.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "berth/plan/strategies/search_space.h"

namespace berth::plan {
namespace {

class Scatter {
 public:
  Scatter(const CostModel& model, const std::vector<int16_t>& forced_tables, int64_t most_nodes, bool largest_first)
      : m_(model), most_nodes_(most_nodes) {
    const auto devices = static_cast<size_t>(m_.device_count());
    loads_.resize(devices);
    placement_.units.resize(static_cast<size_t>(m_.unit_count()));
    placement_.tables.assign(static_cast<size_t>(m_.table_count()), -1);
    for (int j = 0; j < m_.table_count(); ++j) {
      if (m_.table(j).stored_with >= 0) continue;
      Item item{j, true, {}, 0};
      for (const int16_t d : m_.table_choices(j))
        if (forced_tables[static_cast<size_t>(j)] < 0 || forced_tables[static_cast<size_t>(j)] == d) {
          item.choices.push_back({{d, d}, Access::kCompute, 0});
          item.least = item.choices.size() == 1 ? m_.table_weights(j, d) : std::min(item.least, m_.table_weights(j, d));
          if (is_disk(d)) item.least = 0;
        }
      items_.push_back(std::move(item));
    }
    const size_t tables = items_.size();
    for (int i = 0; i < m_.unit_count(); ++i) {
      Item item{i, false, m_.choices(i), INT64_MAX};
      std::stable_sort(item.choices.begin(), item.choices.end(),
                       [](const Choice& a, const Choice& b) { return a.step_ps < b.step_ps; });
      for (const Choice& c : item.choices)
        item.least = std::min(item.least, is_disk(c.place.memory) ? 0 : m_.unit_weights(i, c.place.memory));
      item.least = (item.choices.empty() ? 0 : item.least) + m_.unit(i).kv;
      items_.push_back(std::move(item));
    }
    // A reader of a shared cache must come after its owner, so only models without sharing are reordered.
    bool shares = false;
    for (int i = 0; i < m_.unit_count(); ++i) shares |= m_.unit(i).kv_source >= 0;
    if (largest_first && !shares)
      std::stable_sort(items_.begin() + static_cast<std::ptrdiff_t>(tables), items_.end(),
                       [](const Item& a, const Item& b) { return a.least > b.least; });
    rest_.assign(items_.size() + 1, 0);
    for (size_t k = items_.size(); k-- > 0;) rest_[k] = rest_[k + 1] + items_[k].least;
    stored_on_.assign(devices, std::vector<bool>(items_.size(), false));
    for (size_t k = 0; k < items_.size(); ++k)
      for (const Choice& c : items_[k].choices) stored_on_[static_cast<size_t>(c.place.memory)][k] = true;
    twins_.resize(devices);
    for (int d = 0; d < m_.device_count(); ++d)
      for (int e = 0; e < d; ++e)
        if (m_.device(d).usable && m_.device(e).usable && m_.device(d).accelerator && m_.device(e).accelerator &&
            same_choices(d, e) && interchangeable(m_, d, e))
          twins_[static_cast<size_t>(d)].push_back(e);
    last_reader_.assign(static_cast<size_t>(m_.unit_count()), -1);
    for (int i = 0; i < m_.unit_count(); ++i)
      if (m_.unit(i).kv_source >= 0) last_reader_[static_cast<size_t>(m_.unit(i).kv_source)] = i;
  }

  ScatterResult run() {
    ScatterResult result;
    found_ = descend(0);
    result.nodes = nodes_;
    if (found_) result.placement = placement_;
    result.exhausted = !found_ && nodes_ < most_nodes_;
    return result;
  }

 private:
  struct Item {
    int index = 0;
    bool table = false;
    std::vector<Choice> choices;
    int64_t least = 0;
  };
  struct StateHash {
    size_t operator()(const std::vector<int64_t>& state) const {
      uint64_t sum = 0xcbf29ce484222325u;
      for (const int64_t v : state) {
        sum = (sum ^ static_cast<uint64_t>(v)) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
      }
      return static_cast<size_t>(sum);
    }
  };
  struct Load {
    int64_t bytes = 0, workspace = 0, staging = 0;
    int64_t total() const { return bytes + workspace + staging; }
    bool operator==(const Load&) const = default;
  };

  bool is_disk(int d) const { return m_.device(d).kind == machine::DeviceKind::kDisk; }

  bool same_choices(int a, int b) const {
    return stored_on_[static_cast<size_t>(a)] == stored_on_[static_cast<size_t>(b)];
  }

  // An equal device with the same load comes earlier: nothing new here.
  bool is_repeat(int d) const {
    for (const int earlier : twins_[static_cast<size_t>(d)])
      if (loads_[static_cast<size_t>(earlier)] == loads_[static_cast<size_t>(d)] && !holds_cache(earlier) &&
          !holds_cache(d))
        return true;
    return false;
  }
  bool holds_cache(int d) const {
    for (const auto& held : caches_)
      if (held.second == d) return true;
    return false;
  }

  bool descend(size_t at) {
    if (at == items_.size()) return true;
    if (++nodes_ >= most_nodes_) return false;
    int64_t free = 0;
    for (int d = 0; d < m_.device_count(); ++d)
      if (m_.device(d).usable && !is_disk(d)) free += m_.device(d).budget - loads_[static_cast<size_t>(d)].total();
    if (rest_[at] > free) return false;
    if (!failed_.empty() && failed_.contains(state(at))) return false;
    const Item& item = items_[at];
    // Staying where the unit before is keeps moves few.
    const int before =
        !item.table && item.index > 0 ? placement_.units[static_cast<size_t>(item.index - 1)].compute : -1;
    for (const bool staying : {true, false})
      for (const Choice& c : item.choices) {
        if ((c.place.compute == before) != staying) continue;
        if (!item.table && c.place.compute != before && is_repeat(c.place.compute)) continue;
        // All that put() changes: memory, computing device and host (which gathers and reads the disk).
        const size_t touched[] = {static_cast<size_t>(c.place.memory), static_cast<size_t>(c.place.compute),
                                  static_cast<size_t>(m_.cpu().value_or(c.place.memory))};
        const Load before_put[] = {loads_[touched[0]], loads_[touched[1]], loads_[touched[2]]};
        const auto caches = caches_;
        if (put(item, c) && descend(at + 1)) return true;
        for (size_t k = 0; k < 3; ++k) loads_[touched[k]] = before_put[k];
        caches_ = caches;
        if (nodes_ >= most_nodes_) return false;
      }
    failed_.insert(state(at));
    return false;
  }

  bool put(const Item& item, const Choice& c) {
    if (item.table) {
      placement_.tables[static_cast<size_t>(item.index)] = c.place.memory;
      Load& in = loads_[static_cast<size_t>(c.place.memory)];
      in.bytes += m_.table_weights(item.index, c.place.memory);
      return gather_from(item.index, c.place.memory) && fits(c.place.memory);
    }
    const CostModel::Unit& u = m_.unit(item.index);
    placement_.units[static_cast<size_t>(item.index)] = c.place;
    loads_[static_cast<size_t>(c.place.memory)].bytes += m_.unit_weights(item.index, c.place.memory);
    Load& computing = loads_[static_cast<size_t>(c.place.compute)];
    computing.bytes += u.kv;
    computing.workspace = std::max(computing.workspace, u.workspace);
    if (c.access == Access::kStream) {
      computing.staging = std::max(computing.staging, 2 * u.grain);
      if (is_disk(c.place.memory) && m_.cpu()) {
        Load& host = loads_[static_cast<size_t>(*m_.cpu())];
        host.staging = std::max(host.staging, 2 * u.grain);
      }
    }
    if (u.kv_source >= 0) {
      const std::pair<int, int> copy{u.kv_source, c.place.compute};
      if (std::find(caches_.begin(), caches_.end(), copy) == caches_.end()) {
        caches_.push_back(copy);
        computing.bytes += m_.unit(u.kv_source).kv;
      }
    }
    if (last_reader_[static_cast<size_t>(item.index)] >= 0) caches_.emplace_back(item.index, c.place.compute);
    std::erase_if(caches_,
                  [&](const auto& held) { return last_reader_[static_cast<size_t>(held.first)] <= item.index; });
    for (int j = 0; j < m_.table_count(); ++j)
      if (m_.table(j).stored_with == item.index && !gather_from(j, c.place.memory)) return false;
    return fits(c.place.memory) && fits(c.place.compute) && (!m_.cpu() || fits(*m_.cpu()));
  }

  bool gather_from(int table, int memory) {
    const int g = m_.gatherer(memory);
    if (g < 0) return true;
    Load& in = loads_[static_cast<size_t>(g)];
    in.workspace = std::max(in.workspace, m_.table(table).workspace);
    return fits(g);
  }

  bool fits(int d) const { return loads_[static_cast<size_t>(d)].total() <= m_.device(d).budget; }

  std::vector<int64_t> state(size_t at) const {
    std::vector<int64_t> key;
    key.reserve(1 + 3 * loads_.size() + 2 * caches_.size());
    key.push_back(static_cast<int64_t>(at));
    for (const Load& l : loads_) {
      key.push_back(l.bytes);
      key.push_back(l.workspace);
      key.push_back(l.staging);
    }
    auto caches = caches_;
    std::sort(caches.begin(), caches.end());
    for (const auto& [source, device] : caches) {
      key.push_back(source);
      key.push_back(device);
    }
    return key;
  }

  const CostModel& m_;
  int64_t most_nodes_, nodes_ = 0;
  bool found_ = false;
  std::vector<Item> items_;
  std::vector<int64_t> rest_;
  std::vector<std::vector<int>> twins_;       // by device: equal ones before it
  std::vector<std::vector<bool>> stored_on_;  // by device: items that may be
  std::vector<int> last_reader_;
  std::vector<Load> loads_;
  std::vector<std::pair<int, int>> caches_;  // source unit, device that holds its cache
  Placement placement_;
  std::unordered_set<std::vector<int64_t>, StateHash> failed_;
};

}  // namespace

ScatterResult search_scatter(const CostModel& model, const std::vector<int16_t>& forced_tables, int64_t most_nodes) {
  ScatterResult first = Scatter(model, forced_tables, most_nodes / 2, true).run();
  if (first.placement || first.exhausted) return first;
  ScatterResult second = Scatter(model, forced_tables, most_nodes - most_nodes / 2, false).run();
  second.nodes += first.nodes;
  return second;
}

}  // namespace berth::plan
