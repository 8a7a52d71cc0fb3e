// plan/strategies/search_space.cc — see search_space.h.
#include "berth/plan/strategies/search_space.h"

#include <algorithm>
#include <map>

#include "berth/base/check.h"

namespace berth::plan {
namespace {

constexpr int kMostClasses = 8;  // distinct accelerators whose order is searched; above, machine order

}  // namespace

bool interchangeable(const CostModel& model, int a, int b) {
  const CostModel::Device &x = model.device(a), &y = model.device(b);
  if (x.kind != y.kind || x.budget != y.budget || x.read != y.read || x.flops != y.flops || x.link != y.link ||
      x.latency_ps != y.latency_ps)
    return false;
  // Ways are sums of a latency and bytes over a rate: equal for two sizes means equal for all that matter here.
  for (const int64_t bytes : {int64_t{0}, int64_t{1} << 40})
    for (int d = 0; d < model.device_count(); ++d) {
      if (d == a || d == b || !model.device(d).usable) continue;
      if (model.way_ps(a, d, bytes) != model.way_ps(b, d, bytes) ||
          model.way_ps(d, a, bytes) != model.way_ps(d, b, bytes))
        return false;
    }
  return true;
}

std::optional<SearchSpace> SearchSpace::make(const CostModel& model, const std::vector<int16_t>& tables,
                                             const std::vector<int16_t>& unit_memory, int single_device,
                                             int64_t most_states) {
  SearchSpace s;
  s.model = &model;
  s.tables = tables;
  const int devices = model.device_count();
  // What tables take, and devices that something singles out.
  std::vector<int64_t> taken(static_cast<size_t>(devices), 0), workspace(static_cast<size_t>(devices), 0);
  std::vector<bool> single(static_cast<size_t>(devices), false);
  if (single_device >= 0) single[static_cast<size_t>(single_device)] = true;
  for (int j = 0; j < model.table_count(); ++j) {
    const int holder = model.table(j).stored_with;
    const int memory = holder >= 0 ? unit_memory[static_cast<size_t>(holder)] : tables[static_cast<size_t>(j)];
    CHECK(memory >= 0);
    single[static_cast<size_t>(memory)] = true;
    if (holder < 0) {
      taken[static_cast<size_t>(memory)] += model.table_weights(j, memory);
      if (model.device(memory).accelerator) s.table_accelerator_bytes += model.table_weights(j, memory);
    }
    if (const int g = model.gatherer(memory); g >= 0)
      workspace[static_cast<size_t>(g)] = std::max(workspace[static_cast<size_t>(g)], model.table(j).workspace);
  }
  std::vector<std::vector<Choice>> choices(static_cast<size_t>(model.unit_count()));
  for (int i = 0; i < model.unit_count(); ++i) {
    std::vector<bool> stored(static_cast<size_t>(devices), false);
    for (const Choice& c : model.choices(i)) {
      const int must = unit_memory[static_cast<size_t>(i)];
      if (must >= 0 && c.place.memory != must) continue;
      choices[static_cast<size_t>(i)].push_back(c);
      stored[static_cast<size_t>(c.place.memory)] = true;
    }
    if (choices[static_cast<size_t>(i)].empty()) return std::nullopt;
    // A pin: some usable accelerator may store the unit and another may not.
    bool some = false, all = true;
    for (int d = 0; d < devices; ++d)
      if (model.device(d).usable && model.device(d).accelerator)
        some |= stored[static_cast<size_t>(d)], all &= stored[static_cast<size_t>(d)];
    if (some && !all)
      for (int d = 0; d < devices; ++d)
        if (stored[static_cast<size_t>(d)]) single[static_cast<size_t>(d)] = true;
  }
  // Places.
  std::vector<int> place_of(static_cast<size_t>(devices), -1);
  for (int d = 0; d < devices; ++d) {
    if (!model.device(d).usable || !model.device(d).accelerator) continue;
    for (size_t k = 0; k < s.places.size() && !single[static_cast<size_t>(d)]; ++k) {
      const int first = s.places[k].members.front();
      if (!single[static_cast<size_t>(first)] && interchangeable(model, first, d)) {
        s.places[k].members.push_back(d);
        place_of[static_cast<size_t>(d)] = static_cast<int>(k);
        break;
      }
    }
    if (place_of[static_cast<size_t>(d)] >= 0) continue;
    place_of[static_cast<size_t>(d)] = static_cast<int>(s.places.size());
    s.places.push_back({{d}, model.device(d).budget, 0, true});
  }
  s.class_count_ = static_cast<int>(s.places.size());
  int64_t states = s.class_count_ + 1;
  for (const PlaceClass& k : s.places)
    states = std::min<int64_t>(states * static_cast<int64_t>(k.members.size() + 1), most_states + 1);
  if (s.class_count_ > kMostClasses || states > most_states) {
    // Machine order: every device a class of its own.
    s.machine_order = true;
    s.places.clear();
    for (int d = 0; d < devices; ++d) {
      if (place_of[static_cast<size_t>(d)] < 0) continue;
      place_of[static_cast<size_t>(d)] = static_cast<int>(s.places.size());
      s.places.push_back({{d}, model.device(d).budget, 0, true});
    }
    s.class_count_ = static_cast<int>(s.places.size());
  }
  if (model.cpu()) {
    s.cpu_place_ = static_cast<int>(s.places.size());
    place_of[static_cast<size_t>(*model.cpu())] = s.cpu_place_;
    s.places.push_back({{*model.cpu()}, model.device(*model.cpu()).budget, 0, true});
  }
  if (model.disk()) {
    s.disk_memory_ = static_cast<int>(s.places.size());
    place_of[static_cast<size_t>(*model.disk())] = s.disk_memory_;
    s.disk_budget = model.device(*model.disk()).budget;
  }
  for (int d = 0; d < devices; ++d) {
    const int p = place_of[static_cast<size_t>(d)];
    if (p < 0) continue;
    int64_t& budget = p == s.disk_memory_ ? s.disk_budget : s.places[static_cast<size_t>(p)].budget;
    budget -= taken[static_cast<size_t>(d)];
    if (budget < 0) return std::nullopt;
    if (p != s.disk_memory_) {
      s.places[static_cast<size_t>(p)].workspace = workspace[static_cast<size_t>(d)];
      if (workspace[static_cast<size_t>(d)] > budget) return std::nullopt;
    }
  }
  // Units.
  std::vector<int64_t> most(static_cast<size_t>(s.memory_count()), 0);
  int64_t all_kv = 0, most_workspace = 0, most_staging = 0;
  for (int i = 0; i < model.unit_count(); ++i) {
    const CostModel::Unit& from = model.unit(i);
    SearchUnit unit;
    unit.kv = from.kv;
    unit.kv_new_rows = from.kv_new_rows;
    unit.workspace = from.workspace;
    unit.staging = 2 * from.grain;
    unit.input = from.input;
    int64_t heaviest = 0;
    for (const Choice& c : choices[static_cast<size_t>(i)]) {
      const int place = place_of[static_cast<size_t>(c.place.compute)],
                memory = place_of[static_cast<size_t>(c.place.memory)];
      // One member stands for its class.
      if (c.place.compute != s.places[static_cast<size_t>(place)].members.front()) continue;
      SearchOption o;
      o.place = static_cast<int16_t>(place);
      o.memory = static_cast<int16_t>(memory);
      o.stream = c.access == Access::kStream;
      o.time_ps = c.step_ps;
      o.weights = model.unit_weights(i, c.place.memory);
      if (i == 0) o.time_ps += model.host_way_ps(c.place.compute, from.input);
      if (i + 1 == model.unit_count()) o.time_ps += model.host_way_ps(c.place.compute, model.logits_bytes());
      for (int j = 0; j < model.table_count(); ++j) {
        if (model.table(j).consumer != i) continue;
        const int holder = model.table(j).stored_with;
        const int table_in = holder >= 0 ? unit_memory[static_cast<size_t>(holder)] : tables[static_cast<size_t>(j)];
        o.time_ps += model.gather_ps(j, table_in, c.place.compute);
      }
      heaviest = std::max(heaviest, o.weights);
      unit.options.push_back(o);
    }
    std::stable_sort(unit.options.begin(), unit.options.end(),
                     [](const SearchOption& a, const SearchOption& b) { return a.place < b.place; });
    if (unit.options.empty()) return std::nullopt;
    for (int64_t& m : most) m += heaviest;
    all_kv += unit.kv;
    most_workspace = std::max(most_workspace, unit.workspace);
    most_staging = std::max(most_staging, unit.staging);
    s.units.push_back(std::move(unit));
  }
  for (int i = 0; i < model.unit_count(); ++i) {
    const int source = model.unit(i).kv_source;
    if (source < 0) continue;
    SearchUnit& holds = s.units[static_cast<size_t>(source)];
    if (holds.source < 0) {
      holds.source = static_cast<int>(s.sources.size());
      s.sources.push_back({source, i});
    }
    s.units[static_cast<size_t>(i)].reads = holds.source;
    s.sources[static_cast<size_t>(holds.source)].last_reader = i;
  }
  for (size_t p = 0; p < s.places.size(); ++p)
    s.places[p].limited =
        most[p] + 2 * all_kv + std::max(most_workspace, s.places[p].workspace) + most_staging > s.places[p].budget;
  if (s.disk_memory_ >= 0) s.disk_limited = most.back() > s.disk_budget;
  s.drop_useless();
  s.make_states();
  return s;
}

// Where the cpu can hold everything, a unit need not be brought over where the cpu is done with it sooner, the ways
// there and back included; nor from the disk where the cpu's memory does as well. No best plan has such an option.
void SearchSpace::drop_useless() {
  if (cpu_place_ < 0 || places[static_cast<size_t>(cpu_place_)].limited) return;
  const auto most_way = [&](size_t i, bool to_cpu) {
    int64_t most = 0;
    if (i == 0 || i == units.size()) return most;  // the host's ways are in the options' times
    for (int p = 0; p < class_count_; ++p)
      most = std::max(most, to_cpu ? move_ps(p, cpu_place_, units[i].input) : move_ps(cpu_place_, p, units[i].input));
    return most;
  };
  for (size_t i = 0; i < units.size(); ++i) {
    SearchUnit& u = units[i];
    int64_t at_cpu = INT64_MAX;
    for (const SearchOption& o : u.options)
      if (o.place == cpu_place_ && o.memory == cpu_place_) at_cpu = o.time_ps;
    const bool shared = u.source >= 0 || u.reads >= 0;  // where such a unit is computed matters to others
    if (at_cpu < INT64_MAX && !shared) at_cpu += most_way(i, true) + most_way(i + 1, false);
    std::vector<SearchOption> kept;
    for (const SearchOption& o : u.options) {
      bool useless = o.stream && o.place != cpu_place_ && !shared && at_cpu < o.time_ps;
      for (const SearchOption& other : u.options)
        useless |= o.memory == disk_memory_ && o.place == other.place && other.memory == cpu_place_ &&
                   other.time_ps < o.time_ps;
      if (!useless) kept.push_back(o);
    }
    u.options = std::move(kept);
  }
}

void SearchSpace::make_states() {
  // A state: (opened of each class, open class or -1, at the cpu). Found from the start by breadth first search.
  struct Key {
    std::vector<int16_t> opened;
    int16_t open = -1;
    bool at_cpu = false;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, int32_t> ids;
  std::vector<Key> keys;
  const auto id_of = [&](const Key& key) {
    const auto [it, fresh] = ids.emplace(key, static_cast<int32_t>(keys.size()));
    if (fresh) keys.push_back(key);
    return it->second;
  };
  id_of(Key{std::vector<int16_t>(static_cast<size_t>(class_count_), 0), -1, false});
  for (size_t at = 0; at < keys.size(); ++at) {
    const Key key = keys[at];
    const bool start = at == 0;
    std::vector<Transition> out;
    const auto from = static_cast<int16_t>(start ? -1 : key.at_cpu ? cpu_place_ : key.open);
    if (key.open >= 0) {  // stay on, or return to, the open accelerator
      Key next = key;
      next.at_cpu = false;
      out.push_back({id_of(next), key.open, static_cast<int16_t>(key.at_cpu ? from : -1), false});
    }
    for (int k = 0; k < class_count_; ++k) {
      if (machine_order ? k <= key.open
                        : key.opened[static_cast<size_t>(k)] >=
                              static_cast<int16_t>(places[static_cast<size_t>(k)].members.size()))
        continue;
      Key next = key;
      if (!machine_order) ++next.opened[static_cast<size_t>(k)];
      next.open = static_cast<int16_t>(k);
      next.at_cpu = false;
      out.push_back({id_of(next), static_cast<int16_t>(k), from, true});
    }
    if (cpu_place_ >= 0) {
      Key next = key;
      next.at_cpu = true;
      out.push_back(
          {id_of(next), static_cast<int16_t>(cpu_place_), static_cast<int16_t>(key.at_cpu ? -1 : from), false});
    }
    transitions.push_back(std::move(out));
  }
  for (const Key& key : keys) {
    opened.push_back(key.opened);
    open_class.push_back(key.open);
    if (machine_order)
      for (int k = 0; k <= key.open; ++k) opened.back()[static_cast<size_t>(k)] = 1;  // passed over: never opened later
  }
}

int64_t SearchSpace::move_ps(int from, int to, int64_t bytes) const {
  const int a = places[static_cast<size_t>(from)].members.front();
  const int b =
      from == to ? places[static_cast<size_t>(to)].members[1] : places[static_cast<size_t>(to)].members.front();
  return model->way_ps(a, b, bytes);
}

Placement SearchSpace::placement(const std::vector<int>& options, const std::vector<bool>& opens) const {
  Placement p;
  p.tables = tables;
  std::vector<int> count(static_cast<size_t>(class_count_), 0);
  int open_device = -1;
  for (int i = 0; i < unit_count(); ++i) {
    const SearchOption& o = units[static_cast<size_t>(i)].options[static_cast<size_t>(options[static_cast<size_t>(i)])];
    if (opens[static_cast<size_t>(i)])
      open_device =
          places[static_cast<size_t>(o.place)].members[static_cast<size_t>(count[static_cast<size_t>(o.place)]++)];
    Place place;
    place.compute = static_cast<int16_t>(o.place == cpu_place_ ? *model->cpu() : open_device);
    place.memory = static_cast<int16_t>(o.memory == disk_memory_ ? *model->disk()
                                        : o.memory == cpu_place_ ? *model->cpu()
                                                                 : open_device);
    p.units.push_back(place);
  }
  return p;
}

}  // namespace berth::plan
