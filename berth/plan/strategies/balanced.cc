// plan/strategies/balanced.cc — see balanced.h.
#include "berth/plan/strategies/balanced.h"

#include <algorithm>
#include <map>
#include <vector>

#include "berth/plan/strategies/search_space.h"
#include "berth/plan/strategies/table_combinations.h"
#include "berth/plan/wide.h"

namespace berth::plan {
namespace {

// used/budget, compared exactly.
struct Ratio {
  int64_t used = 0, budget = 1;
  bool operator<(const Ratio& other) const {
    return static_cast<Int128>(used) * other.budget < static_cast<Int128>(other.used) * budget;
  }
};

struct Run {
  int place = 0, begin = 0, end = 0;
};

// One combination of table memories.
class Reach {
 public:
  Reach(const CostModel& model, const SearchSpace& space) : m_(model), s_(space) {
    for (int k = 0; k < s_.class_count(); ++k) {
      full_.push_back(m_.device(s_.places[static_cast<size_t>(k)].members.front()).budget);
      taken_.push_back(full_.back() - s_.places[static_cast<size_t>(k)].budget);
    }
    // The option by which each unit computes where it is stored; -1: it may not be there.
    for (const SearchUnit& u : s_.units) {
      std::vector<int> own(static_cast<size_t>(s_.place_count()), -1);
      for (size_t o = 0; o < u.options.size(); ++o)
        if (u.options[o].place == u.options[o].memory)
          own[static_cast<size_t>(u.options[o].place)] = static_cast<int>(o);
      bool anywhere = false;
      for (int k = 0; k < s_.class_count(); ++k) anywhere |= own[static_cast<size_t>(k)] >= 0;
      on_cpu_.push_back(!anywhere);
      options_.push_back(std::move(own));
    }
  }

  int64_t full(int k) const { return full_[static_cast<size_t>(k)]; }

  // Runs that cover the chain with no device of class k above caps[k] bytes in all; empty where there are none.
  std::vector<Run> runs(const std::vector<int64_t>& caps) const {
    for (int k = 0; k < s_.class_count(); ++k)
      if (tables_only(k) > caps[static_cast<size_t>(k)]) return {};
    struct Entry {
      int reach = -1;
      std::vector<int16_t> from;
      int place = -1;
    };
    std::map<std::vector<int16_t>, Entry> reached;  // by devices opened; in order: fewer come first
    std::vector<int16_t> none(static_cast<size_t>(s_.class_count()), 0);
    reached[none] = {skip_cpu(0), {}, -1};
    std::vector<std::vector<int16_t>> layer{none};
    while (!layer.empty()) {
      std::vector<std::vector<int16_t>> next;
      for (const auto& at : layer) {
        const int begin = reached[at].reach;
        if (begin == s_.unit_count()) return walk_back(reached, at);
        for (int k = 0; k < s_.class_count(); ++k) {
          if (at[static_cast<size_t>(k)] >= static_cast<int16_t>(s_.places[static_cast<size_t>(k)].members.size()))
            continue;
          bool later = false;  // machine order: a later device was opened already
          for (int l = k; s_.machine_order && l < s_.class_count(); ++l) later |= at[static_cast<size_t>(l)] > 0;
          if (later) continue;
          const int end = furthest(begin, k, caps[static_cast<size_t>(k)]);
          if (end == begin) continue;
          auto to = at;
          ++to[static_cast<size_t>(k)];
          Entry& entry = reached[to];
          if (entry.reach < 0) next.push_back(to);
          if (end > entry.reach) entry = {end, at, k};
        }
      }
      layer.swap(next);
    }
    return {};
  }

  // Bytes of a device of class k that runs nothing.
  int64_t tables_only(int k) const {
    return taken_[static_cast<size_t>(k)] + s_.places[static_cast<size_t>(k)].workspace;
  }

  // Bytes of a run's device, tables included.
  int64_t used(const Run& run) const {
    Taken t = start(run.place);
    for (int i = run.begin; i < run.end; ++i) take(i, run.begin, run.place, t);
    return taken_[static_cast<size_t>(run.place)] + t.bytes + t.workspace;
  }

  Placement placement(const std::vector<Run>& runs) const {
    std::vector<int> options;
    std::vector<bool> opens;
    for (const Run& run : runs)
      for (int i = run.begin; i < run.end; ++i) {
        const bool cpu = on_cpu_[static_cast<size_t>(i)];
        const int place = cpu ? s_.cpu_place() : run.place;
        options.push_back(cpu ? cpu_option(i) : options_[static_cast<size_t>(i)][static_cast<size_t>(place)]);
        opens.push_back(false);
        if (!cpu && std::none_of(opens.end() - (i - run.begin) - 1, opens.end(), [](bool b) { return b; }))
          opens.back() = true;
      }
    // Units before the first run, if all of them are on the cpu.
    return s_.placement(options, opens);
  }

  int cpu_option(int i) const {
    const SearchUnit& u = s_.units[static_cast<size_t>(i)];
    for (size_t o = 0; o < u.options.size(); ++o)
      if (u.options[o].place == s_.cpu_place()) return static_cast<int>(o);
    return -1;
  }

 private:
  struct Taken {
    int64_t bytes = 0, workspace = 0;
    std::vector<int> copies;
  };

  Taken start(int place) const { return {0, s_.places[static_cast<size_t>(place)].workspace, {}}; }

  void take(int i, int begin, int place, Taken& t) const {
    if (on_cpu_[static_cast<size_t>(i)]) return;
    const SearchUnit& u = s_.units[static_cast<size_t>(i)];
    const int o = options_[static_cast<size_t>(i)][static_cast<size_t>(place)];
    t.bytes += u.options[static_cast<size_t>(o)].weights + u.kv;
    t.workspace = std::max(t.workspace, u.workspace);
    if (u.reads < 0) return;
    const int source = s_.sources[static_cast<size_t>(u.reads)].unit;
    if ((source >= begin && !on_cpu_[static_cast<size_t>(source)]) ||
        std::find(t.copies.begin(), t.copies.end(), source) != t.copies.end())
      return;
    t.copies.push_back(source);
    t.bytes += s_.units[static_cast<size_t>(source)].kv;
  }

  int skip_cpu(int i) const {
    int end = i;
    while (end < s_.unit_count() && on_cpu_[static_cast<size_t>(end)]) ++end;
    return end == s_.unit_count() ? end : i;
  }

  int furthest(int begin, int place, int64_t cap) const {
    Taken t = start(place);
    const int64_t most = cap - taken_[static_cast<size_t>(place)];
    int end = begin;
    bool any = false;
    for (int i = begin; i < s_.unit_count(); ++i) {
      if (on_cpu_[static_cast<size_t>(i)]) {
        if (cpu_option(i) < 0) return begin;
        end = i + 1;
        continue;
      }
      if (options_[static_cast<size_t>(i)][static_cast<size_t>(place)] < 0) break;
      take(i, begin, place, t);
      if (t.bytes + t.workspace > most) break;
      any = true;
      end = i + 1;
    }
    return any ? end : begin;
  }

  template <typename Reached>
  std::vector<Run> walk_back(Reached& reached, std::vector<int16_t> at) const {
    std::vector<Run> out;
    while (reached[at].place >= 0) {
      const auto& entry = reached[at];
      out.push_back({entry.place, reached[entry.from].reach, entry.reach});
      at = entry.from;
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  const CostModel& m_;
  const SearchSpace& s_;
  std::vector<int64_t> full_, taken_;
  std::vector<std::vector<int>> options_;
  std::vector<bool> on_cpu_;
};

class Balancer {
 public:
  Balancer(const Reach& reach, const SearchSpace& space, int low_place) : reach_(reach), s_(space), low_(low_place) {}

  struct Outcome {
    std::vector<Run> runs;
    int64_t low_bytes = 0;
    Ratio ratio;
  };

  std::optional<Outcome> balance() {
    caps_.clear();
    for (int k = 0; k < s_.class_count(); ++k) caps_.push_back(reach_.full(k));
    if (reach_.runs(caps_).empty()) return std::nullopt;
    if (low_ >= 0) least_on_low();
    // Halve the ratio until it is narrow, then go below what was reached until nothing is left.
    int64_t low = 0, high = kSteps;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (reach_.runs(capped({middle, kSteps}, false)).empty() ? low : high) = middle;
    }
    Outcome out = outcome(reach_.runs(capped({high, kSteps}, false)));
    for (int k = 0; k < 64; ++k) {
      auto better = reach_.runs(capped(out.ratio, true));
      if (better.empty()) break;
      out = outcome(std::move(better));
    }
    return out;
  }

 private:
  static constexpr int64_t kSteps = int64_t{1} << 24;

  void least_on_low() {
    int64_t& cap = caps_[static_cast<size_t>(low_)];
    int64_t least = reach_.tables_only(low_), most = cap;
    while (least < most) {
      cap = least + (most - least) / 2;
      if (reach_.runs(caps_).empty())
        least = cap + 1;
      else
        most = cap;
    }
    cap = most;
  }

  // Most bytes whose share of the budget is at most (`below`: below) the ratio.
  std::vector<int64_t> capped(Ratio ratio, bool below) const {
    std::vector<int64_t> caps = caps_;
    for (int k = 0; k < s_.class_count(); ++k) {
      if (k == low_) continue;
      const Int128 exact = static_cast<Int128>(ratio.used) * reach_.full(k);
      Int128 cap = exact / ratio.budget;
      if (below && cap * ratio.budget == exact) --cap;
      caps[static_cast<size_t>(k)] = static_cast<int64_t>(std::min<Int128>(cap, caps_[static_cast<size_t>(k)]));
    }
    return caps;
  }

  Outcome outcome(std::vector<Run> runs) const {
    Outcome out;
    out.runs = std::move(runs);
    if (low_ >= 0) out.low_bytes = reach_.tables_only(low_);
    for (int k = 0; k < s_.class_count(); ++k)
      if (const Ratio ratio{reach_.tables_only(k), std::max<int64_t>(reach_.full(k), 1)};
          k != low_ && out.ratio < ratio)
        out.ratio = ratio;
    for (const Run& run : out.runs) {
      const int64_t used = reach_.used(run);
      if (run.place == low_) {
        out.low_bytes = used;
        continue;
      }
      const Ratio ratio{used, std::max<int64_t>(reach_.full(run.place), 1)};
      if (out.ratio < ratio) out.ratio = ratio;
    }
    return out;
  }

  const Reach& reach_;
  const SearchSpace& s_;
  int low_;
  std::vector<int64_t> caps_;
};

}  // namespace

BalancedResult place_balanced(const CostModel& model, bool low_first) {
  BalancedResult best;
  int64_t best_low = 0;
  int first = -1;
  for (int d = model.device_count(); d-- > 0;)
    if (model.device(d).usable && model.device(d).accelerator) first = d;
  if (first < 0) return best;
  for (const bool by_rule : {true, false}) {
    for (const auto& c : table_combinations(model, by_rule, true, low_first ? first : -1).all) {
      const auto space = SearchSpace::make(model, c.tables, c.units, low_first ? first : -1);
      if (!space) continue;
      int low_place = -1;
      for (int k = 0; low_first && k < space->class_count(); ++k)
        if (space->places[static_cast<size_t>(k)].members.front() == first) low_place = k;
      const Reach reach(model, *space);
      const auto found = Balancer(reach, *space, low_place).balance();
      if (!found) continue;
      const Ratio ratio = found->ratio;
      const bool better = !best.placement || found->low_bytes < best_low ||
                          (found->low_bytes == best_low && ratio < Ratio{best.used, best.budget});
      if (!better) continue;
      const Placement placement = reach.placement(found->runs);
      if (!model.fits(placement)) continue;  // what is pinned to the cpu does not fit there
      best.placement = placement;
      best.used = ratio.used;
      best.budget = ratio.budget;
      best_low = found->low_bytes;
    }
    if (best.placement) return best;
  }
  return best;
}

}  // namespace berth::plan
