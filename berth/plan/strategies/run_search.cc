// plan/strategies/run_search.cc — see run_search.h.
#include "berth/plan/strategies/run_search.h"

#include <algorithm>
#include <map>
#include <utility>

#include "berth/plan/strategies/fill.h"
#include "berth/plan/wide.h"

namespace berth::plan {
namespace {

constexpr size_t kMostSums = 3000;         // of one class, told apart
constexpr size_t kRoundedSums = 1500;      // where there are more: bytes are counted in grains, this many
constexpr int64_t kMostWork = 60'000'000;  // steps: above, the search does not apply
constexpr size_t kMostPoints = 2'000'000;  // of join(): 24 bytes each
constexpr size_t kMostNodes = 100'000;
constexpr size_t kMostWorkspaces = 3;  // told apart on one class
constexpr int64_t kMovesScale = 4096;  // a key is time * kMovesScale + moves
constexpr int64_t kNever = int64_t{1} << 61;

// Time and moves as one number.
using Key = int64_t;

struct Value {
  Key key = kNever;
  int64_t bytes = 0;
  bool operator<(const Value& o) const { return key != o.key ? key < o.key : bytes < o.bytes; }
};

class RunSearch {
 public:
  RunSearch(const SearchSpace& space, bool rounded) : s_(space), n_(space.units.size()), rounded_(rounded) {}

  RunSearchResult run() {
    RunSearchResult out;
    if (!representable()) return out;
    make_base();
    make_kinds();
    if (!make_tree()) return out;
    make_sets();
    if ((n_ + 1) * (classes() + 1) * next_set_.size() > kMostPoints) return out;
    for (size_t k = 0; k < classes(); ++k)
      if (!add_work(k, out.work)) return out;
    stretches_.resize(classes());
    for (size_t k = 0; k < classes(); ++k) find_stretches(k);
    out.applies = true;
    join(out);
    return out;
  }

 private:
  struct Way {
    int option = 0;
    Key key = 0;
    int64_t size = 0;
  };
  struct Node {
    int kind = -1;
    int depth = 0;  // units from the beginning, this one included
    std::vector<int> children;
  };
  // A run on one class over units [first, last).
  struct Stretch {
    int32_t last = 0;
    Value value;
  };
  struct Back {  // how the best way to a point of join() was found: the point before
    int32_t set = -1;
    int16_t unit = -1;
    int16_t place = -1;  // classes(): the cpu; -1: the start
  };

  size_t classes() const { return static_cast<size_t>(s_.class_count()); }

  bool representable() const {
    if (s_.class_count() == 0 || n_ == 0 || n_ > 2000) return false;
    Int128 most = 0;
    for (const SearchUnit& u : s_.units) {
      int64_t step = 0;
      for (const SearchOption& o : u.options) step = std::max(step, o.time_ps);
      most += step;
      for (int a = 0; a < s_.place_count(); ++a)
        for (int b = 0; b < s_.place_count(); ++b)
          if (a != b || s_.members(a) > 1) most += s_.move_ps(a, b, u.input);
    }
    return most < static_cast<Int128>((int64_t{1} << 60) / kMovesScale);
  }

  // The cpu's step of each unit; kNever where it has none.
  void make_base() {
    base_.assign(n_, kNever);
    base_option_.assign(n_, -1);
    for (size_t i = 0; i < n_; ++i)
      for (size_t o = 0; o < s_.units[i].options.size(); ++o) {
        const SearchOption& option = s_.units[i].options[o];
        if (option.place == s_.cpu_place() && option.time_ps * kMovesScale < base_[i])
          base_[i] = option.time_ps * kMovesScale, base_option_[i] = static_cast<int>(o);
      }
  }

  // Units that a run cannot tell apart share a kind.
  void make_kinds() {
    using Same = std::pair<std::vector<int64_t>, std::vector<std::pair<int64_t, int64_t>>>;
    std::map<Same, int> ids;
    for (size_t i = 0; i < n_; ++i) {
      const SearchUnit& u = s_.units[i];
      Same same{{base_[i], u.kv, u.workspace, u.input}, {}};
      for (const SearchOption& o : u.options) {
        same.second.emplace_back(o.place, o.memory);
        same.second.emplace_back(o.time_ps, o.weights);
      }
      const auto [it, fresh] = ids.emplace(std::move(same), static_cast<int>(example_.size()));
      if (fresh) example_.push_back(i);
      kind_.push_back(it->second);
    }
  }

  // The tree of everything that a stretch may begin with; nodes_[0] is the empty one. path_[i] is the chain from unit
  // i.
  bool make_tree() {
    nodes_.push_back({});
    path_.resize(n_);
    for (size_t i = 0; i < n_; ++i) {
      int at = 0;
      for (size_t j = i; j < n_; ++j) {
        int child = -1;
        for (const int c : nodes_[static_cast<size_t>(at)].children)
          if (nodes_[static_cast<size_t>(c)].kind == kind_[j]) child = c;
        if (child < 0) {
          child = static_cast<int>(nodes_.size());
          nodes_[static_cast<size_t>(at)].children.push_back(child);
          nodes_.push_back({kind_[j], nodes_[static_cast<size_t>(at)].depth + 1, {}});
        }
        path_[i].push_back(at = child);
      }
      if (nodes_.size() > kMostNodes) return false;
    }
    return true;
  }

  // How many of each class are used: numbered, and what follows when one more is.
  void make_sets() {
    if (s_.machine_order) {  // the set is "up to which class"
      for (size_t set = 0; set <= classes(); ++set) {
        next_set_.emplace_back();
        for (size_t k = 0; k < classes(); ++k) next_set_.back().push_back(k >= set ? static_cast<int>(k) + 1 : -1);
      }
      return;
    }
    std::vector<int> place(classes(), 1);
    int all = 1;
    for (size_t k = 0; k < classes(); ++k) place[k] = all, all *= s_.members(static_cast<int>(k)) + 1;
    for (int set = 0; set < all; ++set) {
      next_set_.emplace_back();
      for (size_t k = 0; k < classes(); ++k)
        next_set_.back().push_back(
            set / place[k] % (s_.members(static_cast<int>(k)) + 1) < s_.members(static_cast<int>(k)) ? set + place[k]
                                                                                                     : -1);
    }
  }

  void make_ways(size_t k) {
    ways_.assign(example_.size(), {});
    for (size_t t = 0; t < example_.size(); ++t) {
      const SearchUnit& u = s_.units[example_[t]];
      for (size_t o = 0; o < u.options.size(); ++o) {
        const SearchOption& option = u.options[o];
        if (option.place != static_cast<int>(k)) continue;
        ways_[t].push_back({static_cast<int>(o), option.time_ps * kMovesScale,
                            (option.memory == option.place ? option.weights : 0) + u.kv});
      }
    }
    const int cpu = s_.cpu_place(), place = static_cast<int>(k);
    into_.assign(example_.size(), kNever);
    out_.assign(example_.size(), kNever);
    for (size_t t = 0; t < example_.size() && cpu >= 0; ++t) {
      const int64_t input = s_.units[example_[t]].input;
      into_[t] = s_.move_ps(cpu, place, input) * kMovesScale + 1;
      out_[t] = s_.move_ps(place, cpu, input) * kMovesScale + 1;
    }
  }

  // Sums of sizes up to the capacity, and for each way where the sum leads.
  bool make_sums(int64_t capacity, int64_t most_workspace) {
    std::map<int64_t, int64_t> sizes;
    for (size_t i = 0; i < n_; ++i)
      if (s_.units[i].workspace <= most_workspace)
        for (const Way& way : ways_[static_cast<size_t>(kind_[i])]) ++sizes[way.size];
    grain_ = 1;
    sums_.assign(1, 0);
    for (auto it = sizes.rbegin(); it != sizes.rend(); ++it) {
      if (it->first <= 0) continue;
      sums_ = with_multiples(sums_, it->first, it->second, capacity, kMostSums);
      if (!sums_.empty()) continue;
      if (!rounded_) return false;
      grain_ = capacity / static_cast<int64_t>(kRoundedSums) + 1;
      sums_.clear();
      for (int64_t sum = 0; sum <= capacity / grain_; ++sum) sums_.push_back(sum);
      break;
    }
    steps_.assign(ways_.size(), {});
    for (size_t t = 0; t < ways_.size(); ++t) {
      if (s_.units[example_[t]].workspace > most_workspace) continue;
      for (const Way& way : ways_[t]) {
        std::vector<int32_t> to(sums_.size(), -1);
        size_t at = 0;
        for (size_t c = 0; c < sums_.size(); ++c) {
          const int64_t sum = sums_[c] + way.size / grain_;
          while (at < sums_.size() && sums_[at] < sum) ++at;
          if (at == sums_.size()) break;
          to[c] = static_cast<int32_t>(at);
        }
        steps_[t].push_back(std::move(to));
      }
    }
    return true;
  }

  // Everything a run may have taken, before a unit: at the accelerator, or away from it.
  struct Front {
    std::vector<Key> on, off;
    size_t end = 0;  // sums from here on are not reached
    Front() = default;
    explicit Front(size_t sums) : on(sums, kNever), off(sums, kNever) {}
    void clear() {
      std::fill_n(on.begin(), end, kNever);
      std::fill_n(off.begin(), end, kNever);
      end = 0;
    }
  };

  // One unit further.
  void advance(const Front& from, int kind, Front& to) const {
    const auto t = static_cast<size_t>(kind);
    const Key base = base_[example_[t]], out = out_[t], into = into_[t];
    to.clear();
    to.end = from.end;
    // Without branches: what is above kNever stays so (the sum of all times is below 2^60), and is cut back to it.
    if (base < kNever)
      for (size_t c = 0; c < from.end; ++c)
        to.off[c] = std::min(kNever, std::min(from.on[c] + out, from.off[c]) + base);
    for (size_t w = 0; w < steps_[t].size(); ++w) {
      const std::vector<int32_t>& step = steps_[t][w];
      const Key key = ways_[t][w].key;
      size_t reached = from.end;  // sums from which this step leads anywhere
      while (reached > 0 && step[reached - 1] < 0) --reached;
      if (reached == 0) continue;
      for (size_t c = 0; c < reached; ++c) {
        Key& into_sum = to.on[static_cast<size_t>(step[c])];
        into_sum = std::min(into_sum, std::min(from.on[c], from.off[c] + into) + key);
      }
      to.end = std::max(to.end, static_cast<size_t>(step[reached - 1]) + 1);
    }
  }

  // A run's first unit is kept.
  void begin(int kind, Front& front) const {
    const auto t = static_cast<size_t>(kind);
    front.clear();
    for (size_t w = 0; w < steps_[t].size(); ++w)
      if (const int32_t c = steps_[t][w].front(); c >= 0) {
        front.on[static_cast<size_t>(c)] = std::min(front.on[static_cast<size_t>(c)], ways_[t][w].key);
        front.end = std::max(front.end, static_cast<size_t>(c) + 1);
      }
  }

  Value best_end(const Front& front) const {
    Value best;
    for (size_t c = 0; c < front.end; ++c) best = std::min(best, Value{front.on[c], sums_[c] * grain_});
    return best;
  }

  std::vector<int64_t> workspaces(size_t k) const {
    std::vector<int64_t> all;
    for (size_t i = 0; i < n_; ++i)
      if (!ways_[static_cast<size_t>(kind_[i])].empty())
        all.push_back(std::max(s_.units[i].workspace, s_.places[k].workspace));
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    while (all.size() > kMostWorkspaces) all.erase(all.begin() + 1);
    return all;
  }

  // Budget and units of the w-th workspace; a lower one stands for those between it and the next.
  bool set_workspace(size_t k, const std::vector<int64_t>& needs, size_t w) {
    const int64_t capacity = s_.places[k].budget - needs[w];
    return make_sums(capacity, w + 1 == needs.size() ? INT64_MAX : needs[w + 1] - 1);
  }

  // What find_stretches(k) will take; false where it is too much.
  bool add_work(size_t k, int64_t& work) {
    make_ways(k);
    const std::vector<int64_t> needs = workspaces(k);
    for (size_t w = 0; w < needs.size(); ++w) {
      if (s_.places[k].budget < needs[w]) break;
      if (!set_workspace(k, needs, w)) return false;
      work += static_cast<int64_t>(nodes_.size() * sums_.size());
      if (work > kMostWork) return false;
    }
    return true;
  }

  void find_stretches(size_t k) {
    make_ways(k);
    std::vector<Value> ends(nodes_.size());
    const std::vector<int64_t> needs = workspaces(k);
    for (size_t w = 0; w < needs.size(); ++w) {
      if (s_.places[k].budget < needs[w]) break;
      set_workspace(k, needs, w);
      std::vector<Front> fronts;  // by depth
      const auto front_at = [&](size_t depth) -> Front& {
        while (fronts.size() <= depth) fronts.emplace_back(sums_.size());
        return fronts[depth];
      };
      // Depth first; a node's front is there until its last child is done.
      std::vector<int> todo(nodes_[0].children.rbegin(), nodes_[0].children.rend());
      while (!todo.empty()) {
        const int id = todo.back();
        todo.pop_back();
        const Node& node = nodes_[static_cast<size_t>(id)];
        const auto depth = static_cast<size_t>(node.depth);
        front_at(depth);
        Front& front = fronts[depth];
        if (depth == 1)
          begin(node.kind, front);
        else
          advance(fronts[depth - 1], node.kind, front);
        if (front.end == 0) continue;  // cannot begin like this
        Value& end = ends[static_cast<size_t>(id)];
        end = std::min(end, best_end(front));
        for (auto c = node.children.rbegin(); c != node.children.rend(); ++c) todo.push_back(*c);
      }
    }
    stretches_[k].assign(n_, {});
    const Key slack = most_way();
    for (size_t i = 0; i < n_; ++i) {
      Key base = 0, best = kNever;  // best: against the base
      for (size_t j = i; j < n_; ++j) {
        const Value& value = ends[static_cast<size_t>(path_[i][j - i])];
        base = std::min(kNever, base + base_[j]);
        if (value.key >= kNever) continue;
        // A shorter run with the cpu after it is better, whatever follows, where this one gains less by more than a way
        // out and in again.
        if (base < kNever) {
          const Key gain = value.key - base;
          if (best < kNever && gain > best + slack) continue;
          best = std::min(best, gain);
        }
        stretches_[k][i].push_back({static_cast<int32_t>(j + 1), value});
      }
    }
  }

  // At least the way from any accelerator to the cpu and on to another.
  Key most_way() const {
    Key most = 0;
    if (s_.cpu_place() < 0) return most;
    for (const size_t unit : example_)
      for (int k = 0; k < s_.class_count(); ++k)
        for (int l = 0; l < s_.class_count(); ++l)
          most = std::max(most, (s_.move_ps(k, s_.cpu_place(), s_.units[unit].input) +
                                 s_.move_ps(s_.cpu_place(), l, s_.units[unit].input)) *
                                        kMovesScale +
                                    2);
    return most;
  }

  // The best sequence of stretches. A point is (unit, place the walk is at, set): before the unit, sets side by side.
  void join(RunSearchResult& out) {
    const size_t sets = next_set_.size(), places = classes() + 1, cpu = classes();
    const auto index = [&](size_t unit, size_t place, size_t set) { return (unit * places + place) * sets + set; };
    std::vector<Value> best((n_ + 1) * places * sets);
    std::vector<Back> back(best.size());
    std::vector<std::vector<int32_t>> may_open(classes());  // sets that leave one of the class
    for (size_t k = 0; k < classes(); ++k)
      for (size_t set = 0; set < sets; ++set)
        if (next_set_[set][k] >= 0) may_open[k].push_back(static_cast<int32_t>(set));
    std::vector<Value> from(sets);
    std::vector<int16_t> via(sets);
    for (size_t i = 0; i < n_; ++i) {
      // Into `place` before unit i, by set: from wherever is best.
      const auto enter = [&](size_t place) {
        std::fill(from.begin(), from.end(), Value{});
        std::fill(via.begin(), via.end(), int16_t{-1});
        if (i == 0) {
          from[0] = {0, 0};
          return;
        }
        for (size_t p = 0; p < places; ++p) {
          if (p == cpu && s_.cpu_place() < 0) continue;
          Key move = 0;
          if (p != cpu || place != cpu) {
            if (p == place && s_.members(static_cast<int>(p)) < 2) continue;
            move = s_.move_ps(static_cast<int>(p), static_cast<int>(place), s_.units[i].input) * kMovesScale + 1;
          }
          const Value* before = &best[index(i, p, 0)];
          for (size_t set = 0; set < sets; ++set) {
            const Value value{before[set].key + move, before[set].bytes};
            if (before[set].key < kNever && value < from[set]) from[set] = value, via[set] = static_cast<int16_t>(p);
          }
        }
      };
      const auto unit = static_cast<int16_t>(i);
      if (base_[i] < kNever) {
        enter(cpu);
        for (size_t set = 0; set < sets; ++set)
          if (from[set].key < kNever) {
            best[index(i + 1, cpu, set)] = {from[set].key + base_[i], from[set].bytes};
            back[index(i + 1, cpu, set)] = {static_cast<int32_t>(set), unit, via[set]};
          }
      }
      for (size_t k = 0; k < classes(); ++k) {
        if (stretches_[k][i].empty()) continue;
        enter(k);
        for (const Stretch& s : stretches_[k][i]) {
          Value* to = &best[index(static_cast<size_t>(s.last), k, 0)];
          Back* how = &back[index(static_cast<size_t>(s.last), k, 0)];
          for (const int32_t set : may_open[k]) {
            const Value& before = from[static_cast<size_t>(set)];
            if (before.key >= kNever) continue;
            const Value value{before.key + s.value.key, before.bytes + s.value.bytes};
            const auto next = static_cast<size_t>(next_set_[static_cast<size_t>(set)][k]);
            if (value < to[next]) to[next] = value, how[next] = {set, unit, via[static_cast<size_t>(set)]};
          }
        }
      }
    }
    size_t at = SIZE_MAX;
    Value least;
    for (size_t place = 0; place < places; ++place)
      for (size_t set = 0; set < sets; ++set)
        if (const Value& value = best[index(n_, place, set)]; value < least) least = value, at = index(n_, place, set);
    if (at == SIZE_MAX) return;
    out.exists = true;
    out.bound.time_ps = least.key / kMovesScale;
    out.bound.moves = static_cast<int32_t>(least.key % kMovesScale);
    out.bound.accelerator_bytes = least.bytes + s_.table_accelerator_bytes;
    out.options.assign(n_, -1);
    out.opens.assign(n_, false);
    for (size_t unit = n_; unit > 0;) {
      const size_t place = at / sets % places;
      const Back how = back[at];
      const auto first = static_cast<size_t>(how.unit);
      if (place == cpu)
        out.options[first] = base_option_[first];
      else
        trace(place, first, unit, out);
      unit = first;
      if (unit > 0) at = index(unit, static_cast<size_t>(how.place), static_cast<size_t>(how.set));
    }
  }

  // The options of one run, by walking it again.
  void trace(size_t k, size_t first, size_t last, RunSearchResult& out) {
    make_ways(k);
    const std::vector<int64_t> needs = workspaces(k);
    Value best;
    size_t best_w = 0;
    for (int round = 0; round < 2; ++round)
      for (size_t w = 0; w < needs.size(); ++w) {
        if ((round == 1 && w != best_w) || s_.places[k].budget < needs[w] || !set_workspace(k, needs, w)) continue;
        std::vector<Front> fronts(last - first, Front(sums_.size()));
        begin(kind_[first], fronts[0]);
        for (size_t j = first + 1; j < last; ++j) advance(fronts[j - first - 1], kind_[j], fronts[j - first]);
        const Value end = best_end(fronts.back());
        if (round == 0) {
          if (end < best) best = end, best_w = w;
          continue;
        }
        size_t c = 0;
        while (fronts.back().on[c] != end.key || sums_[c] * grain_ != end.bytes) ++c;
        bool on = true;
        for (size_t j = last; j-- > first;) {
          const auto t = static_cast<size_t>(kind_[j]);
          if (j == first) {
            for (size_t way = 0; way < steps_[t].size(); ++way)
              if (steps_[t][way].front() == static_cast<int32_t>(c) && ways_[t][way].key == fronts[0].on[c])
                out.options[j] = ways_[t][way].option;
            out.opens[j] = true;
            break;
          }
          const Front& before = fronts[j - first - 1];
          const Front& here = fronts[j - first];
          if (!on) {
            out.options[j] = base_option_[j];
            on = before.on[c] < kNever && before.on[c] + out_[t] + base_[j] == here.off[c];
            continue;
          }
          bool found = false;
          for (size_t way = 0; way < steps_[t].size() && !found; ++way)
            for (size_t from = 0; from <= c && !found; ++from) {
              if (steps_[t][way][from] != static_cast<int32_t>(c)) continue;
              const Key key = ways_[t][way].key;
              const bool stayed = before.on[from] < kNever && before.on[from] + key == here.on[c];
              const bool came = before.off[from] < kNever && before.off[from] + into_[t] + key == here.on[c];
              if (!stayed && !came) continue;
              found = true;
              out.options[j] = ways_[t][way].option;
              on = stayed;
              c = from;
            }
        }
      }
  }

  const SearchSpace& s_;
  size_t n_;
  bool rounded_;
  std::vector<Key> base_;
  std::vector<int> base_option_, kind_;
  std::vector<size_t> example_;  // by kind: a unit of it
  std::vector<Node> nodes_;
  std::vector<std::vector<int>> path_;
  std::vector<std::vector<int>> next_set_;
  std::vector<std::vector<std::vector<Stretch>>> stretches_;  // [class][first]
  // of the class at hand
  std::vector<std::vector<Way>> ways_;
  std::vector<Key> into_, out_;  // by kind of the unit before which the move is
  std::vector<int64_t> sums_;
  int64_t grain_ = 1;                                     // of sums
  std::vector<std::vector<std::vector<int32_t>>> steps_;  // [kind][way][sum]
};

}  // namespace

RunSearchResult search_runs(const SearchSpace& space, bool rounded) { return RunSearch(space, rounded).run(); }

}  // namespace berth::plan
