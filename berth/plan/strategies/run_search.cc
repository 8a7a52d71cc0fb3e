// plan/strategies/run_search.cc — see run_search.h.
#include "berth/plan/strategies/run_search.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "berth/plan/wide.h"

namespace berth::plan {
namespace {

constexpr size_t kFullWidth = 20'000;           // fronts that are to be complete
constexpr size_t kTraceWidth = 500;             // of a run that is walked again because fronts were thinned
constexpr int64_t kMostSlackWork = 20'000'000;  // above, stretches are not ruled out

constexpr int64_t kMostTime = (int64_t{1} << 60) / kMovesScale;  // no plan takes as long (RunChain::usable)

int64_t time_of(RunKey key) { return key >= kNever ? kNoWalk : key / kMovesScale; }

}  // namespace

RunSearch::RunSearch(const SearchSpace& space, const Bound* bound) : chain_(space), bound_(bound) {
  if (!applies()) return;
  for (size_t k = 0; k < chain_.classes(); ++k) bounds_.push_back(price_stretches(k));
  look_ahead();
}

bool RunSearch::complete() const {
  const SearchSpace& s = chain_.space;
  if (!s.sources.empty() || (has_cpu() && s.places[static_cast<size_t>(s.cpu_place())].limited)) return false;
  for (const SearchUnit& u : s.units)
    for (const SearchOption& o : u.options)
      if (o.memory == s.disk_memory()) return false;
  return true;
}

int64_t RunSearch::root_ps() const { return time_of(root_); }

RunSearchResult RunSearch::sketch(size_t width, int64_t most_time) {
  return search({RunEffort::Thinning::kPlan, width, INT64_MAX, false}, most_time);
}

RunSearchResult RunSearch::prove(int64_t most_time, int64_t most_points, bool give_up) {
  return search({RunEffort::Thinning::kBound, kFullWidth, most_points, give_up}, most_time);
}

RunSearchResult RunSearch::search(const RunEffort& effort, int64_t most_time) {
  RunSearchResult out;
  out.exact = true;
  if (all_at_once())
    walk_all(effort, most_time, out);
  else
    walk_stretches(effort, most_time, out);
  return out;
}

// Before a unit, from one device to another; nothing where there is no such way. From the cpu to the cpu it is none.
std::optional<RunKey> RunSearch::move(size_t from, size_t to, size_t unit) const {
  if ((from == cpu() || to == cpu()) && !has_cpu()) return std::nullopt;
  if (from == cpu() && to == cpu()) return 0;
  if (from == to && chain_.space.members(static_cast<int>(from)) < 2) return std::nullopt;
  return chain_.move(from, to, chain_.kind(unit));
}

// --- bounds ---

std::vector<int64_t> RunSearch::workspaces(size_t k) const {
  const PlaceClass& here = chain_.space.places[k];
  std::vector<int64_t> all;
  for (size_t t = 0; t < chain_.kind_count(); ++t)
    for (const SearchOption& o : chain_.example(t).options)
      if (o.place == static_cast<int>(k)) all.push_back(std::max(chain_.example(t).workspace, here.workspace));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  while (!all.empty() && all.back() > here.budget) all.pop_back();
  return all;
}

// For each workspace that a run may have: all units that need no more may stay, and what the memory beside it can be
// filled with is credited at its price. Or, which says more where they do not fill it, memory costs nothing.
RunSearch::Stretches RunSearch::price_stretches(size_t k) const {
  const uint64_t y = bound_ == nullptr ? 0 : bound_->y()[k];
  const PlaceClass& place = chain_.space.places[k];
  struct Step {
    int64_t here = kNoWalk, priced = kNoWalk, base = kNoWalk, into = kNoWalk, out = kNoWalk, workspace = 0;
  };
  std::vector<Step> steps(chain_.kind_count());
  for (size_t t = 0; t < steps.size(); ++t) {
    const SearchUnit& u = chain_.example(t);
    for (const SearchOption& o : u.options)
      if (o.place == static_cast<int>(k)) {
        const int64_t size = (o.memory == o.place ? o.weights : 0) + u.kv;
        steps[t].here = std::min(steps[t].here, o.time_ps);
        steps[t].priced = std::min(steps[t].priced, o.time_ps + priced(y, size, kNoWalk));
      }
    steps[t].workspace = std::max(u.workspace, place.workspace);
    steps[t].base = time_of(chain_.base(t));
    if (!has_cpu()) continue;
    steps[t].into = chain_.move(cpu(), k, t) / kMovesScale;
    steps[t].out = chain_.move(k, cpu(), t) / kMovesScale;
  }
  struct At {
    int64_t on = kNoWalk, off = kNoWalk;
    void advance(const At& before, bool begins, int64_t here, const Step& step) {
      on = begins ? here : std::min(kNoWalk, std::min(before.on, before.off + step.into) + here);
      off = begins ? kNoWalk : std::min(kNoWalk, std::min(before.on + step.out, before.off) + step.base);
    }
  };
  const size_t count = chain_.beginnings.size();
  std::vector<int64_t> least(count, kNoWalk);
  std::vector<At> priced_at(count), free_at(count);
  for (const int64_t workspace : workspaces(k)) {
    const int64_t left = place.budget - workspace;
    const int64_t credit = y == 0 ? 0 : priced_up(y, bound_->fillable(static_cast<int>(k), left));
    for (size_t b = 1; b < count; ++b) {
      const RunChain::Beginning& beginning = chain_.beginnings[b];
      const Step& step = steps[beginning.kind];
      const bool begins = beginning.before == 0, may_stay = step.workspace <= workspace;
      priced_at[b].advance(priced_at[beginning.before], begins, may_stay ? step.priced : kNoWalk, step);
      free_at[b].advance(free_at[beginning.before], begins, may_stay ? step.here : kNoWalk, step);
      if (free_at[b].on < kNoWalk) least[b] = std::min(least[b], std::max(free_at[b].on, priced_at[b].on - credit));
    }
  }
  std::vector<Value> ends(count);
  for (size_t b = 0; b < count; ++b)
    if (least[b] < kMostTime) ends[b] = {least[b] * kMovesScale, 0};
  return to_stretches(ends, {});
}

// What precedes each run at least, and what follows, by joining the bounds of stretches from both ends.
void RunSearch::look_ahead() {
  const size_t n = chain_.size(), sets = chain_.set_count();
  Ways ways = no_ways();
  join(bounds_, ways);
  begun_.assign(ways.best.size(), kNever);
  std::vector<Value> from;
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < chain_.classes(); ++k) {
      enter(i, k, ways, from);
      for (size_t set = 0; set < sets; ++set) begun_[index(i, k, set)] = from[set].key;
    }
  root_ = kNever;
  for (size_t q = index(n, 0, 0); q < ways.best.size(); ++q) root_ = std::min(root_, ways.best[q].value.key);
  rest_.assign(ways.best.size(), kNever);
  std::fill(rest_.begin() + static_cast<std::ptrdiff_t>(index(n, 0, 0)), rest_.end(), 0);
  std::vector<RunKey> then(places() * sets);  // by place entered before the unit
  for (size_t i = n; i-- > 0;) {
    std::fill(then.begin(), then.end(), kNever);
    for (size_t set = 0; set < sets; ++set)
      then[cpu() * sets + set] = std::min(kNever, chain_.base(chain_.kind(i)) + rest_[index(i + 1, cpu(), set)]);
    for (size_t k = 0; k < chain_.classes(); ++k)
      for (const Stretch& s : bounds_[k][i])
        for (size_t set = 0; set < sets; ++set)
          if (const int next = chain_.next_set[set][k]; next >= 0) {
            RunKey& least = then[k * sets + set];
            least = std::min(least, s.value.key + rest_[index(s.last, k, static_cast<size_t>(next))]);
          }
    for (size_t p = 0; p < places(); ++p)
      for (size_t q = 0; q < places(); ++q)
        if (const auto key = move(p, q, i))
          for (size_t set = 0; set < sets; ++set) {
            RunKey& least = rest_[index(i, p, set)];
            least = std::min(least, then[q * sets + set] + *key);
          }
  }
}

RunSearch::Outlook RunSearch::outlook(size_t k) const {
  const uint64_t y = bound_ == nullptr ? 0 : bound_->y()[k];
  const size_t n = chain_.size();
  Outlook o;
  for (size_t set = 0; set < chain_.set_count(); ++set)
    if (chain_.next_set[set][k] >= 0) o.sets.push_back(set);
  const size_t count = o.sets.size();
  o.begun.assign((n + 1) * count, kNoWalk);
  o.end.assign((n + 1) * count, kNoWalk);
  for (size_t i = 0; i <= n; ++i)
    for (size_t q = 0; q < count; ++q) {
      const auto next = static_cast<size_t>(chain_.next_set[o.sets[q]][k]);
      o.begun[o.at(i, q)] = time_of(begun_[index(i, k, o.sets[q])]);
      o.end[o.at(i, q)] = time_of(rest_[index(i, k, next)]);
    }
  o.on = o.end;
  o.off.assign(o.on.size(), kNoWalk);
  for (size_t j = n; j-- > 0;) {
    const size_t kind = chain_.kind(j);
    const SearchUnit& u = chain_.example(kind);
    int64_t here = kNoWalk;
    for (const SearchOption& option : u.options)
      if (option.place == static_cast<int>(k))
        here = std::min(
            here, option.time_ps + priced(y, (option.memory == option.place ? option.weights : 0) + u.kv, kNoWalk));
    const int64_t base = time_of(chain_.base(kind));
    const int64_t into = has_cpu() ? chain_.move(cpu(), k, kind) / kMovesScale : kNoWalk;
    const int64_t out = has_cpu() ? chain_.move(k, cpu(), kind) / kMovesScale : kNoWalk;
    for (size_t q = 0; q < count; ++q) {
      const int64_t stay = std::min(kNoWalk, here + o.on[o.at(j + 1, q)]);
      const int64_t away = std::min(kNoWalk, base + o.off[o.at(j + 1, q)]);
      o.on[o.at(j, q)] = std::min({o.on[o.at(j, q)], stay, std::min(kNoWalk, out + away)});
      o.off[o.at(j, q)] = std::min({kNoWalk, away, into + stay});
    }
  }
  return o;
}

// --- all at once ---

void RunSearch::walk_all(const RunEffort& effort, int64_t most_time, RunSearchResult& out) {
  const size_t n = chain_.size();
  const bool ruled = most_time < kNoWalk;
  struct Class {
    std::unique_ptr<RunFronts> fronts;
    std::vector<RunFronts::State> now, next;  // by set that leaves one
  };
  std::vector<Class> classes(chain_.classes());
  std::vector<Outlook> outlooks;
  for (size_t k = 0; k < classes.size(); ++k) {
    outlooks.push_back(outlook(k));
    classes[k].fronts = std::make_unique<RunFronts>(chain_, k, ruled ? bound_ : nullptr, effort);
    classes[k].now.assign(outlooks[k].sets.size(), classes[k].fronts->state());
    classes[k].next = classes[k].now;
  }
  Ways ways = no_ways();
  std::vector<Value> from;
  for (size_t i = 0; i < n && !out.gave_up; ++i) {
    pass_by_cpu(i, ways, from);
    for (size_t k = 0; k < classes.size(); ++k) {
      Class& c = classes[k];
      const Outlook& o = outlooks[k];
      enter(i, k, ways, from);
      for (size_t q = 0; q < o.sets.size(); ++q) {
        const size_t set = o.sets[q];
        RunSlack slack;
        if (ruled) slack = {most_time - o.on[o.at(i + 1, q)], most_time - o.off[o.at(i + 1, q)]};
        const RunPoint start{0, from[set].key, from[set].bytes, static_cast<int32_t>(i)};
        c.fronts->advance(c.now[q], chain_.kind(i), start.key < kNever ? &start : nullptr, slack, c.next[q]);
        std::swap(c.now[q], c.next[q]);
        const RunPoint end = c.fronts->best_end(c.now[q]);
        if (end.key >= kNever || (ruled && time_of(end.key) + o.end[o.at(i + 1, q)] > most_time)) continue;
        Way& way = ways.best[index(i + 1, k, static_cast<size_t>(chain_.next_set[set][k]))];
        if (const Value value{end.key, end.total}; value < way.value)
          way = {value, static_cast<int32_t>(set), end.first};
      }
      out.gave_up |= c.fronts->gave_up();
    }
  }
  for (const Class& c : classes) {
    out.work += c.fronts->points();
    out.exact &= c.fronts->exact();
  }
  if (!out.gave_up && finish(ways, out)) trace(ways, effort, ruled ? outlooks : std::vector<Outlook>{}, out);
}

// --- by stretches ---

void RunSearch::walk_stretches(const RunEffort& effort, int64_t most_time, RunSearchResult& out) {
  std::vector<Stretches> found;
  for (size_t k = 0; k < chain_.classes() && !out.gave_up; ++k)
    found.push_back(find_stretches(k, slacks(k, most_time), effort, out));
  if (out.gave_up) return;
  Ways ways = no_ways();
  join(found, ways);
  if (!finish(ways, out)) return;
  std::vector<Outlook> outlooks;
  for (size_t k = 0; k < chain_.classes() && most_time < kNoWalk; ++k) outlooks.push_back(outlook(k));
  trace(ways, effort, outlooks, out);
}

RunSearch::Slacks RunSearch::slacks(size_t k, int64_t most_time) const {
  const size_t n = chain_.size();
  Slacks slacks;
  slacks.of_beginning.assign(chain_.beginnings.size(), RunSlack{});
  if (most_time >= kNoWalk) return slacks;
  const Outlook o = outlook(k);
  const size_t count = o.sets.size();
  if (static_cast<int64_t>(n * n / 2 * count) > kMostSlackWork) return slacks;
  slacks.of_beginning.assign(chain_.beginnings.size(), RunSlack{-kNoWalk, -kNoWalk});
  slacks.of_stretch.resize(n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j <= n; ++j) {
      int64_t on = kNoWalk, off = kNoWalk, end = kNoWalk;
      for (size_t q = 0; q < count; ++q) {
        const int64_t begun = o.begun[o.at(i, q)];
        on = std::min(on, begun + o.on[o.at(j, q)]);
        off = std::min(off, begun + o.off[o.at(j, q)]);
        end = std::min(end, begun + o.end[o.at(j, q)]);
      }
      RunSlack& slack = slacks.of_beginning[chain_.beginning(i, j)];
      slack.on = std::max(slack.on, most_time - on);
      slack.off = std::max(slack.off, most_time - off);
      slacks.of_stretch[i].push_back(most_time - end);
    }
  return slacks;
}

RunSearch::Stretches RunSearch::find_stretches(size_t k, const Slacks& slacks, const RunEffort& effort,
                                               RunSearchResult& out) const {
  RunFronts run(chain_, k, slacks.of_stretch.empty() ? nullptr : bound_, effort);
  std::vector<Value> ends(chain_.beginnings.size());
  std::vector<RunFronts::State> fronts{run.state()};  // by length
  // Depth first: a beginning's fronts are there until the last longer one is done.
  const RunPoint start;
  const auto& first = chain_.beginnings.front().longer;
  std::vector<size_t> todo(first.rbegin(), first.rend());
  while (!todo.empty()) {
    const size_t b = todo.back();
    todo.pop_back();
    const RunChain::Beginning& beginning = chain_.beginnings[b];
    const size_t length = beginning.length;
    while (fronts.size() <= length) fronts.push_back(run.state());
    run.advance(fronts[length - 1], beginning.kind, length == 1 ? &start : nullptr, slacks.of_beginning[b],
                fronts[length]);
    if (fronts[length].empty()) continue;
    const RunPoint end = run.best_end(fronts[length]);
    ends[b] = {end.key, end.bytes};
    todo.insert(todo.end(), beginning.longer.rbegin(), beginning.longer.rend());
  }
  out.work += run.points();
  out.exact &= run.exact();
  out.gave_up |= run.gave_up();
  return to_stretches(ends, slacks);
}

RunSearch::Stretches RunSearch::to_stretches(const std::vector<Value>& ends, const Slacks& slacks) const {
  const size_t n = chain_.size();
  const RunKey detour = most_detour();
  Stretches out(n);
  for (size_t i = 0; i < n; ++i) {
    RunKey base = 0, best = kNever;  // best: against the base
    for (size_t j = i; j < n; ++j) {
      const Value& value = ends[chain_.beginning(i, j + 1)];
      base = std::min(kNever, base + chain_.base(chain_.kind(j)));
      if (value.key >= kNever) continue;
      if (!slacks.of_stretch.empty() && time_of(value.key) > slacks.of_stretch[i][j - i]) continue;
      // A shorter run with the cpu after it is better, whatever follows, where this one gains less by more than a way
      // out and in again.
      if (base < kNever) {
        const RunKey gain = value.key - base;
        if (best < kNever && gain > best + detour) continue;
        best = std::min(best, gain);
      }
      out[i].push_back({j + 1, value});
    }
  }
  return out;
}

// At least the way from any accelerator to the cpu and on to another.
RunKey RunSearch::most_detour() const {
  RunKey most = 0;
  if (!has_cpu()) return most;
  for (size_t t = 0; t < chain_.kind_count(); ++t)
    for (size_t k = 0; k < chain_.classes(); ++k)
      for (size_t l = 0; l < chain_.classes(); ++l)
        most = std::max(most, chain_.move(k, cpu(), t) + chain_.move(cpu(), l, t));
  return most;
}

// --- joining ---

RunSearch::Ways RunSearch::no_ways() const {
  Ways ways;
  ways.best.resize((chain_.size() + 1) * places() * chain_.set_count());
  ways.entered.assign(ways.best.size(), -1);
  return ways;
}

// Into `place` before a unit, by set, from wherever is best.
void RunSearch::enter(size_t unit, size_t place, Ways& ways, std::vector<Value>& from) const {
  const size_t sets = chain_.set_count();
  from.assign(sets, Value{});
  if (unit == 0) {
    from[0] = {0, 0};
    return;
  }
  int16_t* entered = &ways.entered[index(unit, place, 0)];
  for (size_t p = 0; p < places(); ++p) {
    const auto key = move(p, place, unit);
    if (!key) continue;
    const Way* before = &ways.best[index(unit, p, 0)];
    for (size_t set = 0; set < sets; ++set) {
      if (before[set].value.key >= kNever) continue;
      const Value value{before[set].value.key + *key, before[set].value.bytes};
      if (value < from[set]) from[set] = value, entered[set] = static_cast<int16_t>(p);
    }
  }
}

void RunSearch::pass_by_cpu(size_t unit, Ways& ways, std::vector<Value>& from) const {
  const RunKey base = chain_.base(chain_.kind(unit));
  if (base >= kNever) return;
  enter(unit, cpu(), ways, from);
  for (size_t set = 0; set < from.size(); ++set)
    if (from[set].key < kNever)
      ways.best[index(unit + 1, cpu(), set)] = {
          {from[set].key + base, from[set].bytes}, static_cast<int32_t>(set), static_cast<int32_t>(unit)};
}

void RunSearch::join(const std::vector<Stretches>& stretches, Ways& ways) const {
  std::vector<std::vector<int32_t>> may_open(chain_.classes());  // sets that leave one of the class
  for (size_t k = 0; k < chain_.classes(); ++k)
    for (size_t set = 0; set < chain_.set_count(); ++set)
      if (chain_.next_set[set][k] >= 0) may_open[k].push_back(static_cast<int32_t>(set));
  std::vector<Value> from;
  for (size_t i = 0; i < chain_.size(); ++i) {
    pass_by_cpu(i, ways, from);
    for (size_t k = 0; k < chain_.classes(); ++k) {
      if (stretches[k][i].empty()) continue;
      enter(i, k, ways, from);
      for (const Stretch& s : stretches[k][i]) {
        Way* to = &ways.best[index(s.last, k, 0)];
        for (const int32_t set : may_open[k]) {
          const Value& before = from[static_cast<size_t>(set)];
          if (before.key >= kNever) continue;
          const Value value{before.key + s.value.key, before.bytes + s.value.bytes};
          Way& way = to[chain_.next_set[static_cast<size_t>(set)][k]];
          if (value < way.value) way = {value, set, static_cast<int32_t>(i)};
        }
      }
    }
  }
}

// What the best way through the whole chain costs; false where there is none.
bool RunSearch::finish(const Ways& ways, RunSearchResult& out) const {
  Value least;
  for (size_t q = index(chain_.size(), 0, 0); q < ways.best.size(); ++q) least = std::min(least, ways.best[q].value);
  if (least.key >= kNever) return false;
  out.exists = true;
  out.bound.time_ps = least.key / kMovesScale;
  out.bound.moves = static_cast<int32_t>(least.key % kMovesScale);
  out.bound.accelerator_bytes = least.bytes + chain_.space.table_accelerator_bytes;
  return true;
}

// The options of the best way. Its runs are walked again, with what `outlooks` (by class; empty: nothing) leaves open.
void RunSearch::trace(const Ways& ways, const RunEffort& effort, const std::vector<Outlook>& outlooks,
                      RunSearchResult& out) const {
  RunEffort again{RunEffort::Thinning::kPlan, kFullWidth, INT64_MAX, false};
  if (!out.exact) again.width = std::min(2 * effort.width, kTraceWidth);
  out.options.assign(chain_.size(), -1);
  out.opens.assign(chain_.size(), false);
  const auto at_end = std::min_element(ways.best.begin() + static_cast<std::ptrdiff_t>(index(chain_.size(), 0, 0)),
                                       ways.best.end(), [](const Way& a, const Way& b) { return a.value < b.value; });
  auto at = static_cast<size_t>(at_end - ways.best.begin());
  for (size_t unit = chain_.size(); unit > 0;) {
    const size_t place = at / chain_.set_count() % places();
    const Way& way = ways.best[at];
    const auto first = static_cast<size_t>(way.first), set = static_cast<size_t>(way.set);
    const auto from = static_cast<size_t>(std::max<int16_t>(0, ways.entered[index(first, place, set)]));
    if (place == cpu()) {
      out.options[first] = chain_.base_option(chain_.kind(first));
    } else {
      RunPoint before{0, 0, 0, way.first};
      if (first > 0) {
        const Value& value = ways.best[index(first, from, set)].value;
        before.key = value.key + move(from, place, first).value_or(kNever);
        before.total = value.bytes;
      }
      std::vector<RunSlack> slack;
      if (!outlooks.empty()) {
        const Outlook& o = outlooks[place];
        const auto q = static_cast<size_t>(std::find(o.sets.begin(), o.sets.end(), set) - o.sets.begin());
        for (size_t j = first + 1; j <= unit; ++j)
          slack.push_back({out.bound.time_ps - o.on[o.at(j, q)], out.bound.time_ps - o.off[o.at(j, q)]});
      }
      if (!trace_run(place, first, unit, before, slack, again, out)) {
        out.options.clear();
        out.opens.clear();
        return;
      }
    }
    unit = first;
    if (unit > 0) at = index(unit, from, set);
  }
}

// The options of one run, after what has cost `before`. `slack`: after each of its units; empty: nothing is ruled out.
// False where fronts are thinned and none is found.
bool RunSearch::trace_run(size_t k, size_t first, size_t last, const RunPoint& before,
                          const std::vector<RunSlack>& slack, const RunEffort& effort, RunSearchResult& out) const {
  RunFronts run(chain_, k, slack.empty() ? nullptr : bound_, effort);
  std::vector<RunFronts::State> fronts(last - first + 1, run.state());
  for (size_t j = first; j < last; ++j)
    run.advance(fronts[j - first], chain_.kind(j), j == first ? &before : nullptr,
                slack.empty() ? RunSlack{} : slack[j - first], fronts[j - first + 1]);
  out.work += run.points();
  if (run.best_end(fronts.back()).key >= kNever) return false;
  RunFronts::At at = run.end(fronts.back());
  for (size_t j = last; j-- > first;) {
    const int option =
        j == first ? run.back_to_start(chain_.kind(j), at, before) : run.back(fronts[j - first], chain_.kind(j), at);
    out.options[j] = option >= 0 ? option : chain_.base_option(chain_.kind(j));
  }
  out.opens[first] = true;
  return true;
}

}  // namespace berth::plan
