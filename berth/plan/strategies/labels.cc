// plan/strategies/labels.cc — see labels.h.
#include "berth/plan/strategies/labels.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "berth/base/check.h"
#include "berth/plan/wide.h"

namespace berth::plan {
namespace {

// What a label has taken of one device; the parts of Load::total() but for constants.
struct Taken {
  int64_t bytes = 0, workspace = 0, staging = 0;
  int64_t total() const { return bytes + workspace + staging; }
  bool within(const Taken& other) const {
    return bytes <= other.bytes && workspace <= other.workspace && staging <= other.staging;
  }
};

struct Label {
  Cost cost;
  Taken open, cpu;
  int64_t disk = 0;
  int64_t bound = 0;
  int32_t state = 0;
  int32_t caches = 0;  // interned CacheState
  int32_t parent = 0;
  int16_t option = 0;
  bool opens = false;
};

struct Step {
  int32_t parent = 0;
  int16_t option = 0;
  bool opens = false;
};

// Where shared KV caches are that later units still read.
struct CacheState {
  struct Source {
    int16_t place = -1;  // computed at; -1: not yet, or no longer needed
    bool on_open = false, on_cpu = false;
    auto operator<=>(const Source&) const = default;
  };
  std::vector<Source> sources;
  auto operator<=>(const CacheState&) const = default;
};

class LabelSearch {
 public:
  LabelSearch(const SearchSpace& space, const Bound& bound, const std::optional<Cost>& incumbent, size_t width,
              int64_t most_labels)
      : s_(space), bound_(bound), incumbent_(incumbent), width_(width), most_labels_(most_labels) {}

  LabelResult run() {
    CacheState none;
    none.sources.resize(s_.sources.size());
    Label start;
    start.caches = intern(none);
    if (s_.cpu_place() >= 0) start.cpu.workspace = s_.places[static_cast<size_t>(s_.cpu_place())].workspace;
    std::vector<Label> front{start}, next;
    std::vector<std::vector<Step>> history;
    for (int i = 0; i < s_.unit_count(); ++i) {
      next.clear();
      for (size_t k = 0; k < front.size(); ++k) expand(i, front[k], static_cast<int32_t>(k), next);
      keep_undominated(next);
      keep_width(i, next);
      std::vector<Step> steps;
      steps.reserve(next.size());
      for (const Label& l : next) steps.push_back({l.parent, l.option, l.opens});
      history.push_back(std::move(steps));
      front.swap(next);
      if (front.empty()) return finished();
    }
    size_t best = 0;
    for (size_t k = 1; k < front.size(); ++k)
      if (front[k].cost < front[best].cost) best = k;
    Cost cost = front[best].cost;
    cost.accelerator_bytes += s_.table_accelerator_bytes;
    if (incumbent_ && !(cost < *incumbent_)) return finished();
    result_.found = true;
    result_.cost = cost;
    result_.options.resize(history.size());
    result_.opens.resize(history.size());
    for (size_t i = history.size(), at = best; i-- > 0;) {
      const Step& step = history[i][at];
      result_.options[i] = step.option;
      result_.opens[i] = step.opens;
      at = static_cast<size_t>(step.parent);
    }
    return finished();
  }

 private:
  LabelResult finished() {
    result_.effort = effort();
    return std::move(result_);
  }

  int32_t intern(const CacheState& caches) {
    const auto [it, fresh] = cache_ids_.emplace(caches, static_cast<int32_t>(cache_states_.size()));
    if (fresh) cache_states_.push_back(caches);
    return it->second;
  }

  void expand(int i, const Label& from, int32_t index, std::vector<Label>& out) {
    const SearchUnit& unit = s_.units[static_cast<size_t>(i)];
    for (const Transition& t : s_.transitions[static_cast<size_t>(from.state)]) {
      Label moved = from;
      moved.state = t.state;
      moved.parent = index;
      moved.opens = t.opens;
      if (t.from >= 0 && i > 0) {
        moved.cost.time_ps += s_.move_ps(t.from, t.place, unit.input);
        ++moved.cost.moves;
      }
      if (t.opens) {
        moved.open = Taken{};
        moved.open.workspace = s_.places[static_cast<size_t>(t.place)].workspace;
      }
      const bool at_cpu = t.place == s_.cpu_place();
      if (!s_.sources.empty()) share_caches(i, unit, t, at_cpu, moved);
      Taken& computing = at_cpu ? moved.cpu : moved.open;
      computing.bytes += unit.kv;
      computing.workspace = std::max(computing.workspace, unit.workspace);
      if (!at_cpu) moved.cost.accelerator_bytes += unit.kv;
      for (size_t k = 0; k < unit.options.size(); ++k) {
        const SearchOption& o = unit.options[k];
        if (o.place != t.place) continue;
        Label made = moved;
        made.option = static_cast<int16_t>(k);
        if (use(unit, o, at_cpu, made) && within(t, made) && bounded(i, made)) out.push_back(made);
      }
    }
  }

  // The caches that unit i reads or makes; may add a copy to the place's bytes and its rows' way to the time.
  void share_caches(int i, const SearchUnit& unit, const Transition& t, bool at_cpu, Label& label) {
    CacheState caches = cache_states_[static_cast<size_t>(label.caches)];
    if (t.opens)
      for (CacheState::Source& source : caches.sources) source.on_open = false;
    if (unit.reads >= 0) {
      CacheState::Source& source = caches.sources[static_cast<size_t>(unit.reads)];
      bool& here = at_cpu ? source.on_cpu : source.on_open;
      if (!here) {
        const SearchUnit& owner = s_.units[static_cast<size_t>(s_.sources[static_cast<size_t>(unit.reads)].unit)];
        (at_cpu ? label.cpu : label.open).bytes += owner.kv;
        if (!at_cpu) label.cost.accelerator_bytes += owner.kv;
        label.cost.time_ps += s_.move_ps(source.place, t.place, owner.kv_new_rows);
        here = true;
      }
    }
    if (unit.source >= 0) caches.sources[static_cast<size_t>(unit.source)] = {t.place, !at_cpu, at_cpu};
    for (size_t k = 0; k < caches.sources.size(); ++k)
      if (s_.sources[k].last_reader <= i) caches.sources[k] = {};
    label.caches = intern(caches);
  }

  // Takes what the option takes. False where the machine lacks it.
  bool use(const SearchUnit& unit, const SearchOption& o, bool at_cpu, Label& label) const {
    if (o.memory == s_.disk_memory()) {
      label.disk += o.weights;
    } else if (o.memory == s_.cpu_place()) {
      label.cpu.bytes += o.weights;
    } else {
      label.open.bytes += o.weights;
      label.cost.accelerator_bytes += o.weights;
    }
    if (o.stream) {
      Taken& computing = at_cpu ? label.cpu : label.open;
      computing.staging = std::max(computing.staging, unit.staging);
      if (o.memory == s_.disk_memory()) label.cpu.staging = std::max(label.cpu.staging, unit.staging);
    }
    label.cost.time_ps += o.time_ps;
    return true;
  }

  bool within(const Transition& t, Label& label) const {
    if (s_.cpu_place() >= 0) {
      const PlaceClass& cpu = s_.places[static_cast<size_t>(s_.cpu_place())];
      if (!cpu.limited)
        label.cpu = Taken{};
      else if (label.cpu.total() > cpu.budget)
        return false;
    }
    if (t.place != s_.cpu_place()) {
      const PlaceClass& open = s_.places[static_cast<size_t>(t.place)];
      if (!open.limited)
        label.open = Taken{};
      else if (label.open.total() > open.budget)
        return false;
    }
    if (!s_.disk_limited)
      label.disk = 0;
    else if (label.disk > s_.disk_budget)
      return false;
    return true;
  }

  // Whether the label may still lead to a better plan; sets its bound.
  bool bounded(int i, Label& label) {
    const int64_t to_go = bound_.to_go(i + 1, label.state);
    if (to_go >= kNoWalk) return false;
    Int128 least = static_cast<Int128>(label.cost.time_ps) + to_go - bound_.unopened(label.state);
    const std::vector<uint64_t>& y = bound_.y();
    if (const int open = open_class(label.state); open >= 0 && y[static_cast<size_t>(open)] > 0) {
      const int64_t left = bound_.fillable(open, s_.places[static_cast<size_t>(open)].budget - label.open.total());
      least -= priced_up(y[static_cast<size_t>(open)], std::max<int64_t>(left, 0));
    }
    if (const int cpu = s_.cpu_place(); cpu >= 0 && y[static_cast<size_t>(cpu)] > 0)
      least -= priced_up(y[static_cast<size_t>(cpu)], s_.places[static_cast<size_t>(cpu)].budget - label.cpu.total());
    if (const int disk = s_.disk_memory(); disk >= 0 && y[static_cast<size_t>(disk)] > 0)
      least -= priced_up(y[static_cast<size_t>(disk)], s_.disk_budget - label.disk);
    // The units placed so far cost what they cost: never less than nothing for the rest.
    label.bound = static_cast<int64_t>(std::max<Int128>(least, label.cost.time_ps));
    if (incumbent_ && label.bound > incumbent_->time_ps) return false;
    ++result_.labels;
    return true;
  }

  // Labels made; comparing many takes as long as making some.
  int64_t effort() const { return result_.labels + compared_ / 128; }

  int open_class(int32_t state) const { return s_.open_class[static_cast<size_t>(state)]; }

  void keep_undominated(std::vector<Label>& labels) {
    // What decides most comparisons lies side by side; the rest is looked up where that ties.
    std::vector<Rank>& order = ranks_;
    order.clear();
    for (const Label& l : labels)
      order.push_back(
          {(static_cast<int64_t>(l.state) << 32) + l.caches, l.cost.time_ps, static_cast<int32_t>(order.size())});
    std::sort(order.begin(), order.end(), [&](const Rank& x, const Rank& y) {
      if (x.group != y.group) return x.group < y.group;
      if (x.time_ps != y.time_ps) return x.time_ps < y.time_ps;
      const Label &a = labels[static_cast<size_t>(x.label)], &b = labels[static_cast<size_t>(y.label)];
      if (const auto c = a.cost <=> b.cost; c != 0) return c < 0;
      return std::tuple(a.open.total(), a.cpu.total(), a.disk, x.label) <
             std::tuple(b.open.total(), b.cpu.total(), b.disk, y.label);
    });
    std::vector<Label>& kept = kept_;
    kept.clear();
    size_t group = 0;
    int64_t least_open = 0, least_cpu = 0;
    for (const Rank& rank : order) {
      const Label& label = labels[static_cast<size_t>(rank.label)];
      if (kept.empty() || kept[group].state != label.state || kept[group].caches != label.caches) {
        group = kept.size();
        least_open = label.open.bytes;
        least_cpu = label.cpu.bytes;
        kept.push_back(label);
        continue;
      }
      bool dominated = false;
      if (label.open.bytes >= least_open && label.cpu.bytes >= least_cpu)
        for (size_t g = kept.size(); g-- > group && !dominated;) {
          ++compared_;
          const Label& other = kept[g];
          dominated = other.open.within(label.open) && other.cpu.within(label.cpu) && other.disk <= label.disk;
        }
      if (dominated) continue;
      least_open = std::min(least_open, label.open.bytes);
      least_cpu = std::min(least_cpu, label.cpu.bytes);
      kept.push_back(label);
    }
    labels.swap(kept);
  }

  void keep_width(int i, std::vector<Label>& labels) {
    size_t width = width_;
    // What is left of the effort, shared among the units to come.
    const int64_t left = std::max<int64_t>(most_labels_ - effort(), 0);
    const int64_t share = left / std::max(1, s_.unit_count() - i) / 2;
    width = std::min<size_t>(width, static_cast<size_t>(std::max<int64_t>(share, 16)));
    if (labels.size() <= width) return;
    std::vector<int32_t> order(labels.size());
    for (size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int32_t>(k);
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(width), order.end(),
                     [&](int32_t x, int32_t y) {
                       const Label &a = labels[static_cast<size_t>(x)], &b = labels[static_cast<size_t>(y)];
                       if (a.bound != b.bound) return a.bound < b.bound;
                       if (const auto c = a.cost <=> b.cost; c != 0) return c < 0;
                       return x < y;
                     });
    for (size_t k = width; k < order.size(); ++k)
      result_.dropped_bound = std::min(result_.dropped_bound, labels[static_cast<size_t>(order[k])].bound);
    order.resize(width);
    std::sort(order.begin(), order.end());
    std::vector<Label>& kept = kept_;
    kept.clear();
    for (const int32_t k : order) kept.push_back(labels[static_cast<size_t>(k)]);
    labels.swap(kept);
  }

  const SearchSpace& s_;
  const Bound& bound_;
  std::optional<Cost> incumbent_;
  size_t width_;
  int64_t most_labels_;
  LabelResult result_;
  int64_t compared_ = 0;
  // Room that is used again for every unit.
  struct Rank {
    int64_t group, time_ps;
    int32_t label;
  };
  std::vector<Rank> ranks_;
  std::vector<Label> kept_;
  std::map<CacheState, int32_t> cache_ids_;
  std::vector<CacheState> cache_states_;
};

}  // namespace

LabelResult search_labels(const SearchSpace& space, const Bound& bound, const std::optional<Cost>& incumbent,
                          size_t width, int64_t most_labels) {
  return LabelSearch(space, bound, incumbent, width, most_labels).run();
}

}  // namespace berth::plan
