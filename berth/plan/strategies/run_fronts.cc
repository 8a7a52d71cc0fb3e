// plan/strategies/run_fronts.cc — see run_fronts.h.
#include "berth/plan/strategies/run_fronts.h"

#include <algorithm>

#include "berth/base/check.h"

namespace berth::plan {
namespace {

constexpr size_t kMostLevels = 32;
constexpr size_t kNarrow = 500;  // width of fronts once there are too many points

// The front of both, each shifted by a size and a key, as far as `capacity`. Which list a point comes from and whether
// it is worth keeping is hard to foresee, so neither is a branch.
void merge(const RunFront& a, int64_t a_bytes, RunKey a_key, const RunFront& b, int64_t b_bytes, RunKey b_key,
           int64_t capacity, RunFront& out) {
  const RunPoint *x = a.begin(), *x_end = a.end(), *y = b.begin(), *y_end = b.end();
  while (x != x_end && x_end[-1].bytes + a_bytes > capacity) --x_end;
  while (y != y_end && y_end[-1].bytes + b_bytes > capacity) --y_end;
  RunPoint* to = out.room(static_cast<size_t>((x_end - x) + (y_end - y)) + 1);
  size_t size = 0;
  RunKey least_key = INT64_MAX;
  int64_t least_total = INT64_MAX;
  const auto add = [&](const RunPoint& p, int64_t bytes, RunKey key) {
    const RunPoint q{p.bytes + bytes, p.key + key, p.total + bytes, p.first};
    const bool better = (q.key < least_key) | ((q.key == least_key) & (q.total < least_total));
    to[size] = q;
    size += better ? 1 : 0;
    least_key = better ? q.key : least_key;
    least_total = better ? q.total : least_total;
  };
  while (x != x_end && y != y_end) {
    const int64_t p_bytes = x->bytes + a_bytes, q_bytes = y->bytes + b_bytes;
    const RunKey p_key = x->key + a_key, q_key = y->key + b_key;
    const bool q_better = (q_key < p_key) | ((q_key == p_key) & (y->total + b_bytes < x->total + a_bytes));
    const bool second = (q_bytes < p_bytes) | ((q_bytes == p_bytes) & q_better);
    add(second ? *y : *x, second ? b_bytes : a_bytes, second ? b_key : a_key);
    x += second ? 0 : 1;
    y += second ? 1 : 0;
  }
  for (; x != x_end; ++x) add(*x, a_bytes, a_key);
  for (; y != y_end; ++y) add(*y, b_bytes, b_key);
  out.set_size(size);
}

// Drops points for which another has no more bytes and a key less by more than `by`; where `by` is negative, also those
// that are no better.
void drop_beyond(RunFront& front, const RunFront& other, RunKey by) {
  if (other.empty() || front.empty()) return;
  size_t kept = 0, y = 0;
  for (size_t k = 0; k < front.size(); ++k) {
    const RunPoint p = front[k];
    while (y < other.size() && other[y].bytes <= p.bytes) ++y;
    if (y > 0 && (by < 0 ? !p.better(other[y - 1]) : other[y - 1].key + by < p.key)) continue;
    front[kept++] = p;
  }
  front.set_size(kept);
}

void sort_unique(std::vector<int64_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

// Where levels were left out, the next lower one stands for it.
size_t index_of(const std::vector<int64_t>& values, int64_t value) {
  return static_cast<size_t>(std::upper_bound(values.begin(), values.end(), value) - values.begin()) - 1;
}

const RunPoint* find_key(const RunFront& front, RunKey key) {
  const RunPoint* it = std::lower_bound(front.begin(), front.end(), key,
                                        [](const RunPoint& p, RunKey wanted) { return p.key > wanted; });
  return it != front.end() && it->key == key ? it : nullptr;
}

}  // namespace

bool RunFronts::State::empty() const {
  const auto none = [](const RunFront& f) { return f.empty(); };
  return std::all_of(on.begin(), on.end(), none) && std::all_of(off.begin(), off.end(), none);
}

RunFronts::RunFronts(const RunChain& chain, size_t place, const Bound* bound, const RunEffort& effort)
    : bound_(bound), effort_(effort) {
  if (bound_ != nullptr) price_ = bound_->y()[place];
  const SearchSpace& s = chain.space;
  const PlaceClass& here = s.places[place];
  stagings_ = {0};
  workspaces_ = {here.workspace};
  for (size_t t = 0; t < chain.kind_count(); ++t)
    for (const SearchOption& o : chain.example(t).options) {
      if (o.place != static_cast<int>(place)) continue;
      workspaces_.push_back(std::max(chain.example(t).workspace, here.workspace));
      if (o.stream) stagings_.push_back(chain.example(t).staging);
    }
  sort_unique(workspaces_);
  sort_unique(stagings_);
  if (workspaces_.size() * stagings_.size() > kMostLevels) {
    stagings_ = {0};
    while (workspaces_.size() > kMostLevels) workspaces_.erase(workspaces_.begin() + 1);
    exact_ = false;
  }
  for (const int64_t w : workspaces_)
    for (const int64_t g : stagings_) capacity_.push_back(here.budget - w - g);
  entering_.resize(capacity_.size());
  for (size_t t = 0; t < chain.kind_count(); ++t) {
    const SearchUnit& u = chain.example(t);
    Unit unit;
    unit.base = chain.base(t);
    if (s.cpu_place() >= 0) {
      const auto cpu = static_cast<size_t>(s.cpu_place());
      unit.into = chain.move(cpu, place, t);
      unit.out = chain.move(place, cpu, t);
      for (size_t k = 0; k < chain.classes(); ++k) most_into_ = std::max(most_into_, chain.move(cpu, k, t));
    }
    for (size_t o = 0; o < u.options.size(); ++o) {
      const SearchOption& option = u.options[o];
      if (option.place != static_cast<int>(place)) continue;
      Way way;
      way.option = static_cast<int>(o);
      way.key = option.time_ps * kMovesScale;
      way.size = (option.memory == option.place ? option.weights : 0) + u.kv;
      way.level = index_of(workspaces_, std::max(u.workspace, here.workspace)) * stagings_.size() +
                  index_of(stagings_, option.stream ? u.staging : 0);
      unit.ways.push_back(way);
    }
    units_.push_back(std::move(unit));
  }
}

size_t RunFronts::join(size_t a, size_t b) const {
  const size_t g = stagings_.size();
  return std::max(a / g, b / g) * g + std::max(a % g, b % g);
}

void RunFronts::rule_out(size_t level, int64_t slack, RunFront& front) const {
  size_t kept = 0;
  for (size_t k = 0; k < front.size(); ++k) {
    const RunPoint p = front[k];
    if (p.key / kMovesScale - priced_up(price_, capacity_[level] - p.bytes) <= slack) front[kept++] = p;
  }
  front.set_size(kept);
}

void RunFronts::thin(size_t level, RunFront& front) {
  exact_ = false;
  const int64_t grain = capacity_[level] / static_cast<int64_t>(effort_.width) + 1;
  size_t kept = 0;
  int64_t last = -1;
  for (size_t k = 0; k < front.size(); ++k) {
    const RunPoint p = front[k];
    const int64_t in = p.bytes / grain;
    if (in != last) {
      front[kept++] = p;
    } else if (effort_.thinning == RunEffort::Thinning::kPlan) {
      front[kept - 1] = p;
    } else {
      RunPoint& one = front[kept - 1];
      one = {one.bytes, p.key, std::min(one.total, p.total), p.first};
    }
    last = in;
  }
  front.set_size(kept);
}

void RunFronts::finish(size_t level, int64_t slack, RunFront& front) {
  points_ += static_cast<int64_t>(front.size());
  if (bound_ != nullptr && slack < INT64_MAX) rule_out(level, slack, front);
  if (points_ > effort_.most_points) {
    if (effort_.give_up) {
      gave_up_ = true;
      exact_ = false;
      front.set_size(0);
      return;
    }
    effort_.width = std::min(effort_.width, kNarrow);
  }
  if (front.size() > 2 * effort_.width) thin(level, front);
}

// Of runs that stage: what runs of the same workspace that do not stage do as well or better, and what being away does
// better even with the way back.
void RunFronts::drop_useless_staging(State& state) const {
  for (size_t level = 0; level < capacity_.size(); ++level) {
    const size_t lower = level - level % stagings_.size();
    if (lower == level) continue;
    RunFront &on = state.on[level], &off = state.off[level];
    drop_beyond(on, state.on[lower], -1);
    drop_beyond(on, state.off[lower], most_into_);
    drop_beyond(off, state.off[lower], -1);
  }
}

void RunFronts::advance(const State& from, size_t kind, const RunPoint* also, const RunSlack& slack, State& to) {
  const Unit& unit = units_[kind];
  const size_t levels = capacity_.size();
  for (size_t level = 0; level < levels; ++level) {
    to.on[level].set_size(0);
    to.off[level].set_size(0);
  }
  for (size_t level = 0; level < levels; ++level) {
    const RunFront &on = from.on[level], &off = from.off[level];
    const RunPoint* start = level == 0 ? also : nullptr;  // has taken nothing yet
    if (on.empty() && off.empty() && start == nullptr) continue;
    if (unit.base < kNever) {
      merge(on, 0, unit.out + unit.base, off, 0, unit.base, capacity_[level], to.off[level]);
      finish(level, slack.off, to.off[level]);
    }
    RunFront& entering = entering_[level];
    merge(on, 0, 0, off, 0, unit.into, capacity_[level], entering);
    if (start != nullptr) {
      start_.room(1)[0] = *start;
      start_.set_size(1);
      merge(start_, 0, 0, entering, 0, 0, capacity_[level], merged_);
      entering.swap(merged_);
    }
    for (const Way& way : unit.ways) {
      const size_t reached = join(level, way.level);
      merge(to.on[reached], 0, 0, entering, way.size, way.key, capacity_[reached], merged_);
      to.on[reached].swap(merged_);
    }
  }
  for (size_t level = 0; level < levels; ++level)
    if (!to.on[level].empty()) finish(level, slack.on, to.on[level]);
  if (stagings_.size() > 1) drop_useless_staging(to);
}

RunPoint RunFronts::best_end(const State& state) const {
  RunPoint best{0, kNever, 0, 0};
  for (const RunFront& front : state.on)
    if (!front.empty() && front.back().better(best)) best = front.back();
  return best;
}

RunFronts::At RunFronts::end(const State& state) const {
  At at;
  at.point.key = kNever;
  for (size_t level = 0; level < state.on.size(); ++level)
    if (const RunFront& front = state.on[level]; !front.empty() && front.back().better(at.point))
      at = {true, level, front.back()};
  CHECK(at.point.key < kNever);
  return at;
}

int RunFronts::back_to_start(size_t kind, const At& at, const RunPoint& before) const {
  for (const Way& way : units_[kind].ways)
    if (way.level == at.level && way.key + before.key == at.point.key && way.size == at.point.bytes) return way.option;
  CHECK(false);
  return -1;
}

int RunFronts::back(const State& before, size_t kind, At& at) const {
  const Unit& unit = units_[kind];
  int option = -1;
  int64_t nearest = INT64_MAX;  // in bytes: 0 but where fronts were thinned for a bound
  At found;
  const auto look = [&](bool on, size_t level, RunKey key, int64_t bytes, int by) {
    const RunPoint* p = find_key(on ? before.on[level] : before.off[level], key);
    if (p == nullptr) return;
    const int64_t distance = p->bytes > bytes ? p->bytes - bytes : bytes - p->bytes;
    if (distance >= nearest) return;
    nearest = distance;
    option = by;
    found = {on, level, *p};
  };
  for (size_t level = 0; level < capacity_.size(); ++level) {
    if (!at.on) {
      if (level != at.level) continue;
      look(true, level, at.point.key - unit.out - unit.base, at.point.bytes, -1);
      look(false, level, at.point.key - unit.base, at.point.bytes, -1);
      continue;
    }
    for (const Way& way : unit.ways) {
      if (join(level, way.level) != at.level) continue;
      look(true, level, at.point.key - way.key, at.point.bytes - way.size, way.option);
      look(false, level, at.point.key - way.key - unit.into, at.point.bytes - way.size, way.option);
    }
  }
  CHECK(nearest < INT64_MAX);
  at = found;
  return option;
}

}  // namespace berth::plan
