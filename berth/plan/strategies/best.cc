// plan/strategies/best.cc — see best.h.
#include "berth/plan/strategies/best.h"

#include <algorithm>
#include <memory>

#include "berth/plan/strategies/labels.h"
#include "berth/plan/strategies/lagrange.h"
#include "berth/plan/strategies/probe.h"
#include "berth/plan/strategies/run_search.h"
#include "berth/plan/strategies/scatter.h"
#include "berth/plan/strategies/search_space.h"
#include "berth/plan/strategies/table_combinations.h"
#include "berth/plan/strategies/tidy.h"
#include "berth/plan/wide.h"

namespace berth::plan {
namespace {

constexpr int64_t kPassWork = 20'000'000;     // transitions looked at while improving one bound
constexpr int kQuickPasses = 12;              // while only a first placement is wanted
constexpr size_t kQuickCombinations = 9;      // of tables, likewise
constexpr int64_t kQuickStates = 400;         // above: accelerators in machine order, likewise
constexpr int64_t kTransitionsOfALabel = 16;  // of a bound, that take as long as a label
constexpr int64_t kLabelsOfANode = 50;        // of the search outside F
constexpr int64_t kLabelsOfASpace = 1000;
constexpr int64_t kPointsOfALabel = 4;  // points of the search over runs that take as long as a label
constexpr int kManyStates = 400;        // from here on the search over runs is tried before anything else
constexpr size_t kFirstWidth = 24;      // of the label search
constexpr size_t kLaterWidths[] = {400, SIZE_MAX};
constexpr size_t kSketchWidth = 60;  // of the search over runs
constexpr size_t kFineSketchWidth = 500;

struct SubProblem {
  std::unique_ptr<SearchSpace> space;
  std::unique_ptr<Bound> bound;
  int64_t open_bound = -kNoWalk;  // least bound of what the last search left out
  std::unique_ptr<RunSearch> runs;
  bool solved = false;
};

// More than any placement takes: a bound above it proves that nothing fits.
int64_t most_time(const CostModel& m) {
  Int128 sum = 0;
  for (int i = 0; i < m.unit_count(); ++i) {
    int64_t step = 0, move = 0;
    for (const Choice& c : m.choices(i)) step = std::max(step, c.step_ps);
    int64_t bytes = m.unit(i).input;
    if (i + 1 == m.unit_count()) bytes = std::max(bytes, m.logits_bytes());
    for (int a = 0; a < m.device_count(); ++a)
      for (int b = 0; b < m.device_count(); ++b)
        move = std::max({move, m.way_ps(a, b, bytes), m.host_way_ps(b, bytes)});
    sum += step + 2 * static_cast<Int128>(move);
  }
  for (int j = 0; j < m.table_count(); ++j) {
    int64_t most = 0;
    for (int a = 0; a < m.device_count(); ++a)
      for (int b = 0; b < m.device_count(); ++b)
        if (m.device(b).kind != machine::DeviceKind::kDisk) most = std::max(most, m.gather_ps(j, a, b));
    sum += most;
  }
  return static_cast<int64_t>(std::min<Int128>(sum, kNoWalk - 1));
}

class BestSearch {
 public:
  BestSearch(const CostModel& model, int64_t effort, int64_t scatter_nodes, bool first_will_do)
      : m_(model),
        effort_(std::max<int64_t>(effort, 1)),
        scatter_nodes_(scatter_nodes),
        first_will_do_(first_will_do) {}

  int64_t all_effort() const { return spent_ + other_effort_; }

  BestResult run() {
    if (unit_fits_nowhere() || volume_exceeded()) return std::move(r_);
    most_time_ = most_time(m_);
    bool any_rule = false;
    for (int j = 0; j < m_.table_count(); ++j) any_rule |= m_.prefers_cpu(j);
    for (const bool by_rule : {true, false}) {
      if (by_rule && !any_rule) continue;
      r_.tables_by_rule = by_rule;
      if (first_will_do_ ? probe(by_rule) : search(by_rule)) return std::move(r_);
    }
    return std::move(r_);
  }

 private:
  bool unit_fits_nowhere() {
    for (int i = 0; i < m_.unit_count(); ++i) {
      const CostModel::Unit& u = m_.unit(i);
      bool fits = false;
      for (const Choice& c : m_.choices(i)) {
        const bool streams = c.access == Access::kStream;
        const int64_t shared = u.kv_source >= 0 ? m_.unit(u.kv_source).kv : 0;  // there as its own or as a copy
        const int64_t computing =
            u.kv + shared + u.workspace + (streams ? 2 * u.grain : m_.unit_weights(i, c.place.memory));
        const int64_t storing = streams ? m_.unit_weights(i, c.place.memory) : 0;
        bool ok = true;
        if (streams && m_.device(c.place.memory).kind == machine::DeviceKind::kDisk &&
            m_.device(c.place.compute).accelerator)
          ok = 2 * u.grain <= m_.device(*m_.cpu()).budget;
        fits |= ok && computing <= m_.device(c.place.compute).budget && storing <= m_.device(c.place.memory).budget;
      }
      if (fits) continue;
      r_.proof = Proof::kUnit;
      r_.proof_unit = i;
      return true;
    }
    for (int j = 0; j < m_.table_count(); ++j) {
      if (m_.table(j).stored_with >= 0) continue;
      bool fits = false;
      for (const int16_t d : m_.table_choices(j)) {
        const int g = m_.gatherer(d);
        const int64_t workspace = m_.table(j).workspace;
        fits |= m_.table_weights(j, d) + (g == d ? workspace : 0) <= m_.device(d).budget &&
                (g < 0 || g == d || workspace <= m_.device(g).budget);
      }
      if (fits) continue;
      r_.proof = Proof::kUnit;
      r_.proof_unit = m_.unit_count() + j;
      return true;
    }
    return false;
  }

  bool volume_exceeded() {
    const VolumeCheck volume = check_volume(m_);
    r_.volume_needed = volume.needed;
    r_.volume_available = volume.available;
    if (volume.needed <= volume.available) return false;
    r_.proof = Proof::kVolume;
    return true;
  }

  // Whether any placement is found: each combination of tables is done with before the next is begun, and the bound
  // over all placements, of use only where there is none, comes last.
  bool probe(bool by_rule) {
    const TableCombinations combinations = table_combinations(m_, by_rule, false);
    std::vector<SubProblem> problems;
    for (const auto& c : combinations.all) {
      if (problems.size() == kQuickCombinations) break;
      auto space = SearchSpace::make(m_, c.tables, c.units, -1, kQuickStates);
      other_effort_ += kLabelsOfASpace;
      if (!space) continue;
      SubProblem p;
      p.space = std::make_unique<SearchSpace>(std::move(*space));
      improve_bound(p, combinations.all.size());
      advance(p, kFirstWidth);
      if (r_.placement) return true;
      problems.push_back(std::move(p));
    }
    r_.bound_any_ps = kNoWalk;
    for (const SubProblem& p : problems) {
      Bound all(*p.space, false, false);
      all.ascend(kQuickPasses, most_time_ + 1);
      const int64_t places = p.space->place_count();
      other_effort_ += all.passes() * places * places * p.space->unit_count() / kTransitionsOfALabel;
      if (all.value() <= most_time_) r_.bound_any_ps = std::min(r_.bound_any_ps, all.value());
      if (r_.bound_any_ps < kNoWalk) break;  // one without a proof is enough
    }
    return scatter(by_rule, combinations.complete && problems.size() < kQuickCombinations);
  }

  bool search(bool by_rule) {
    const TableCombinations combinations = table_combinations(m_, by_rule, false);
    std::vector<SubProblem> problems;
    int64_t any = kNoWalk;
    bool machine_order = false;
    for (const auto& c : combinations.all) {
      auto space = SearchSpace::make(m_, c.tables, c.units, -1, SearchSpace::kMostStates);
      if (!space) continue;
      SubProblem p;
      p.space = std::make_unique<SearchSpace>(std::move(*space));
      const bool runs_first = combinations.all.size() == 1 && p.space->state_count() > kManyStates;
      if (!runs_first) improve_bound(p, combinations.all.size());
      Bound all(*p.space, false, true, p.bound.get());
      all.ascend(40, most_time_ + 1);
      any = std::min(any, all.value() > most_time_ ? kNoWalk : all.value());
      machine_order |= p.space->machine_order;
      problems.push_back(std::move(p));
    }
    std::stable_sort(problems.begin(), problems.end(),
                     [](const SubProblem& a, const SubProblem& b) { return a.open_bound < b.open_bound; });
    r_.bound_any_ps = any;
    for (SubProblem& p : problems)
      if (!p.bound && !p.solved) {
        sketch_runs(p, kSketchWidth);
        prove_runs(p, false);
        p.runs.reset();
        if (!p.solved) improve_bound(p, 1);
      }
    r_.family = machine_order ? "runs in machine order" : "runs";
    r_.root_bound_ps = problems.empty() ? kNoWalk : problems.front().open_bound;
    for (SubProblem& p : problems) advance(p, kFirstWidth);
    for (SubProblem& p : problems) sketch_runs(p, kSketchWidth);
    for (SubProblem& p : problems) prove_runs(p, true);
    for (SubProblem& p : problems) {
      sketch_runs(p, kFineSketchWidth);
      prove_runs(p, false);
    }
    for (const size_t width : kLaterWidths)
      for (SubProblem& p : problems)
        if (!p.runs || !p.runs->applies() || !p.runs->complete()) advance(p, width);
    r_.bound_ps = kNoWalk;
    bool all_solved = combinations.complete;
    for (const SubProblem& p : problems) {
      all_solved &= p.solved;
      if (!p.solved) r_.bound_ps = std::min(r_.bound_ps, p.open_bound);
    }
    if (r_.placement) {
      r_.proof = Proof::kNone;
      r_.placement = tidied(m_, *r_.placement);
      r_.bound_ps = std::min(r_.bound_ps, r_.cost.time_ps);
      r_.optimal = all_solved;
      r_.bound_any_ps = std::min(r_.bound_any_ps, r_.bound_ps);
      return true;
    }
    return scatter(by_rule, combinations.complete);
  }

  void improve_bound(SubProblem& p, size_t problems) {
    int64_t work = 1;
    for (const auto& t : p.space->transitions) work += static_cast<int64_t>(t.size());
    work *= p.space->unit_count();
    const int passes = static_cast<int>(
        std::clamp<int64_t>(kPassWork / work / static_cast<int64_t>(problems), 3, first_will_do_ ? kQuickPasses : 40));
    p.bound = std::make_unique<Bound>(*p.space, true, !first_will_do_);
    p.bound->ascend(passes, most_time_ + 1);
    other_effort_ += work * p.bound->passes() / kTransitionsOfALabel;
    p.open_bound = std::max(p.open_bound, p.bound->value());
    if (p.bound->value() > most_time_) p.open_bound = kNoWalk, p.solved = true;
  }

  // Whether nothing is left to do, which a better incumbent may have brought about.
  bool is_solved(SubProblem& p) const {
    p.solved |= r_.placement && p.open_bound > r_.cost.time_ps;
    return p.solved;
  }

  void advance(SubProblem& p, size_t width) {
    if (is_solved(p)) return;
    std::optional<Cost> incumbent;
    if (r_.placement) incumbent = r_.cost;
    if (spent_ >= effort_ && width != kFirstWidth) return;
    LabelResult found = search_labels(*p.space, *p.bound, incumbent, width, std::max<int64_t>(effort_ - spent_, 1000));
    r_.labels += found.labels;
    spent_ += found.effort;
    if (found.found) {
      r_.cost = found.cost;
      r_.placement = p.space->placement(found.options, found.opens);
    }
    // What was dropped, and the bound from before, whichever says more.
    p.open_bound = std::max(p.open_bound, std::min(found.dropped_bound, r_.placement ? r_.cost.time_ps : kNoWalk));
    p.solved = found.dropped_bound == kNoWalk || (r_.placement && found.dropped_bound > r_.cost.time_ps);
  }

  // The search over runs: a good plan.
  void sketch_runs(SubProblem& p, size_t width) {
    if (!may_search_runs(p)) return;
    const RunSearchResult found = p.runs->sketch(width, most_wanted());
    take(p, found, found.exact);
  }

  // The search over runs: the best plan, or a bound where what it leaves out matters.
  void prove_runs(SubProblem& p, bool give_up) {
    if (!may_search_runs(p)) return;
    const int64_t points = kPointsOfALabel * (effort_ - spent_);
    take(p, p.runs->prove(most_wanted(), give_up ? points / 3 : points, give_up), true);
  }

  bool may_search_runs(SubProblem& p) {
    if (is_solved(p) || spent_ >= effort_) return false;
    if (!p.runs) p.runs = std::make_unique<RunSearch>(*p.space, p.bound.get());
    if (!p.runs->applies()) return false;
    p.open_bound = std::max(p.open_bound, p.runs->root_ps());
    return !is_solved(p);
  }

  int64_t most_wanted() const { return r_.placement ? r_.cost.time_ps : kNoWalk; }

  // `says_all`: there is nothing better than what was found.
  void take(SubProblem& p, const RunSearchResult& found, bool says_all) {
    spent_ += found.work / kPointsOfALabel;
    r_.labels += found.work / kPointsOfALabel;
    if (found.gave_up) return;
    if (!found.options.empty()) {
      Placement placement = p.space->placement(found.options, found.opens);
      const Cost cost = m_.cost(placement);
      if ((!r_.placement || cost < r_.cost) && m_.fits(placement)) {
        r_.cost = cost;
        r_.placement = std::move(placement);
      }
    }
    if (!says_all) return;
    p.open_bound = std::max(p.open_bound, found.exists ? found.bound.time_ps : kNoWalk);
    p.solved = !found.exists || (r_.placement && found.bound >= r_.cost);
  }

  bool scatter(bool by_rule, bool complete) {
    if (r_.bound_any_ps >= kNoWalk && complete) {  // priced, all placements need more than there is
      r_.proof = Proof::kRuns;
      return false;
    }
    std::vector<int16_t> forced(static_cast<size_t>(m_.table_count()), -1);
    for (int j = 0; j < m_.table_count(); ++j)
      if (by_rule && m_.prefers_cpu(j)) forced[static_cast<size_t>(j)] = static_cast<int16_t>(*m_.cpu());
    const ScatterResult found = search_scatter(m_, forced, scatter_nodes_);
    other_effort_ += found.nodes * kLabelsOfANode;
    if (found.placement) {
      r_.placement = found.placement;
      r_.cost = m_.cost(*found.placement);
      r_.family = "scatter";
      r_.bound_any_ps = std::min(r_.bound_any_ps, r_.cost.time_ps);
      r_.bound_ps = r_.bound_any_ps;
      r_.optimal = false;
      r_.proof = Proof::kNone;
      return true;
    }
    r_.proof = found.exhausted ? Proof::kRuns : Proof::kNoneFound;
    return false;
  }

  const CostModel& m_;
  int64_t effort_, scatter_nodes_;
  bool first_will_do_;
  int64_t most_time_ = 0, spent_ = 0, other_effort_ = 0;  // other: bounds, spaces, outside F
  BestResult r_;
};

}  // namespace

std::string_view proof_name(Proof proof) {
  switch (proof) {
    case Proof::kNone:
      return "none";
    case Proof::kUnit:
      return "unit";
    case Proof::kVolume:
      return "volume";
    case Proof::kRuns:
      return "runs";
    case Proof::kNoneFound:
      return "none_found";
  }
  return "none";
}

VolumeCheck check_volume(const CostModel& m) {
  VolumeCheck out;
  const auto add = [&](int index, const auto& memories, int64_t kv) {
    int64_t least = INT64_MAX;
    for (const int d : memories)
      least = std::min(least, m.device(d).kind == machine::DeviceKind::kDisk ? 0 : m.unit_weights(index, d));
    out.needed += kv + (least == INT64_MAX ? 0 : least);
  };
  for (int i = 0; i < m.unit_count(); ++i) {
    std::vector<int> memories;
    for (const Choice& c : m.choices(i)) memories.push_back(c.place.memory);
    add(i, memories, m.unit(i).kv);
  }
  for (int j = 0; j < m.table_count(); ++j)
    if (m.table(j).stored_with < 0) add(m.unit_count() + j, m.table_choices(j), 0);
  for (int d = 0; d < m.device_count(); ++d)
    if (m.device(d).usable && m.device(d).kind != machine::DeviceKind::kDisk) out.available += m.device(d).budget;
  return out;
}

BestResult find_best(const CostModel& model, int64_t effort, int64_t scatter_nodes) {
  return BestSearch(model, effort, scatter_nodes, false).run();
}

bool finds_placement(const CostModel& model, int64_t effort, int64_t scatter_nodes) {
  return probe_placement(model, effort, scatter_nodes).found;
}

Probe probe_placement(const CostModel& model, int64_t effort, int64_t scatter_nodes) {
  BestSearch search(model, effort, scatter_nodes, true);
  const bool found = search.run().placement.has_value();
  return {found, search.all_effort()};
}

}  // namespace berth::plan
