// plan/strategies/lagrange.cc — see lagrange.h.
#include "berth/plan/strategies/lagrange.h"

#include <algorithm>
#include <cmath>

#include "berth/base/check.h"
#include "berth/plan/wide.h"

namespace berth::plan {
namespace {

using Wide = Uint128;

// Solves the square system a x = b (row-major, size n) by elimination with partial pivoting; false where singular.
bool solve(std::vector<double> a, std::vector<double> b, std::vector<double>& x) {
  const size_t n = b.size();
  for (size_t col = 0; col < n; ++col) {
    size_t pivot = col;
    for (size_t r = col + 1; r < n; ++r)
      if (std::fabs(a[r * n + col]) > std::fabs(a[pivot * n + col])) pivot = r;
    if (std::fabs(a[pivot * n + col]) < 1e-13) return false;
    if (pivot != col) {
      for (size_t k = 0; k < n; ++k) std::swap(a[pivot * n + k], a[col * n + k]);
      std::swap(b[pivot], b[col]);
    }
    for (size_t r = col + 1; r < n; ++r) {
      const double f = a[r * n + col] / a[col * n + col];
      if (f == 0) continue;
      for (size_t k = col; k < n; ++k) a[r * n + k] -= f * a[col * n + k];
      b[r] -= f * b[col];
    }
  }
  x.assign(n, 0);
  for (size_t r = n; r-- > 0;) {
    double sum = b[r];
    for (size_t k = r + 1; k < n; ++k) sum -= a[r * n + k] * x[k];
    x[r] = sum / a[r * n + r];
  }
  return true;
}

// min c x, A x = b, x >= 0, given by columns that come one at a time; row 0 is "the walks' shares sum to one".
class MasterProgram {
 public:
  explicit MasterProgram(std::vector<double> b) : b_(std::move(b)) {}

  size_t add(double cost, std::vector<double> column) {
    cost_.push_back(cost);
    columns_.push_back(std::move(column));
    return cost_.size() - 1;
  }
  void set_basis(std::vector<size_t> basis) { basis_ = std::move(basis); }

  bool duals(std::vector<double>& pi) const {
    const size_t n = b_.size();
    std::vector<double> transposed(n * n), c(n);
    for (size_t k = 0; k < n; ++k) {
      c[k] = cost_[basis_[k]];
      for (size_t r = 0; r < n; ++r) transposed[k * n + r] = columns_[basis_[k]][r];
    }
    return solve(std::move(transposed), std::move(c), pi);
  }
  double value() const {
    std::vector<double> x;
    if (!solve(matrix(), b_, x)) return 0;
    double sum = 0;
    for (size_t k = 0; k < x.size(); ++k) sum += cost_[basis_[k]] * x[k];
    return sum;
  }
  // Brings a column into the basis; false where nothing can leave.
  bool enter(size_t column) {
    std::vector<double> x, direction;
    if (!solve(matrix(), b_, x) || !solve(matrix(), columns_[column], direction)) return false;
    size_t leaves = basis_.size();
    double least = 0;
    for (size_t k = 0; k < basis_.size(); ++k) {
      if (direction[k] <= 1e-10) continue;
      const double ratio = std::max(x[k], 0.0) / direction[k];
      if (leaves == basis_.size() || ratio < least - 1e-15 || (ratio <= least + 1e-15 && basis_[k] < basis_[leaves])) {
        leaves = k;
        least = ratio;
      }
    }
    if (leaves == basis_.size()) return false;
    basis_[leaves] = column;
    return true;
  }

 private:
  std::vector<double> matrix() const {
    const size_t n = b_.size();
    std::vector<double> m(n * n);
    for (size_t k = 0; k < n; ++k)
      for (size_t r = 0; r < n; ++r) m[r * n + k] = columns_[basis_[k]][r];
    return m;
  }
  std::vector<double> b_, cost_;
  std::vector<std::vector<double>> columns_;
  std::vector<size_t> basis_;
};

// What units and copies of caches put on an accelerator, with how often each size occurs.
std::map<int64_t, int64_t> sizes_on(const SearchSpace& space, int place) {
  std::map<int64_t, int64_t> sizes;
  for (const SearchUnit& u : space.units) {
    bool kept = false, streamed = false;
    for (const SearchOption& o : u.options) {
      if (o.place != place) continue;
      (o.memory == place ? kept : streamed) = true;
    }
    if (kept)
      for (const SearchOption& o : u.options)
        if (o.place == place && o.memory == place) {
          ++sizes[o.weights + u.kv];
          break;
        }
    if (streamed) ++sizes[u.kv];
  }
  for (const SharedSource& s : space.sources) ++sizes[space.units[static_cast<size_t>(s.unit)].kv];
  return sizes;
}

}  // namespace

int64_t priced(uint64_t y, int64_t bytes, int64_t most) {
  const Wide p = (static_cast<Wide>(y) * static_cast<Wide>(bytes)) >> 32;
  return p > static_cast<Wide>(most) ? most : static_cast<int64_t>(p);
}

int64_t priced_up(uint64_t y, int64_t bytes) {
  const Wide p = (static_cast<Wide>(y) * static_cast<Wide>(bytes) + 0xffffffffu) >> 32;
  return p > static_cast<Wide>(kNoWalk) ? kNoWalk : static_cast<int64_t>(p);
}

Bound::Bound(const SearchSpace& space, bool visit_once, bool by_sums, const Bound* same) : space_(space) {
  if (!visit_once) {
    // States are places; from each any other may be entered, devices of one class being one.
    const auto places = static_cast<int16_t>(space.place_count());
    for (int16_t at = -1; at < places; ++at) {
      std::vector<Transition> out;
      for (int16_t p = 0; p < places; ++p) out.push_back({p + 1, p, static_cast<int16_t>(at == p ? -1 : at), false});
      any_transitions_.push_back(std::move(out));
    }
  }
  states_ = visit_once ? static_cast<size_t>(space.state_count()) : any_transitions_.size();
  const auto memories = static_cast<size_t>(space.memory_count());
  usable_.assign(memories, 0);
  fills_.assign(static_cast<size_t>(space.place_count()), Fill{});
  for (size_t m = 0; m < memories; ++m) {
    if (static_cast<int>(m) == space.disk_memory()) {
      usable_[m] = space.disk_budget;
      continue;
    }
    // An accelerator that is used computes at least one unit.
    int64_t workspace = space.places[m].workspace;
    if (static_cast<int>(m) != space.cpu_place()) {
      int64_t least = INT64_MAX;
      for (const SearchUnit& u : space.units)
        for (const SearchOption& o : u.options)
          if (o.place == static_cast<int16_t>(m)) least = std::min(least, u.workspace);
      workspace = std::max(workspace, least == INT64_MAX ? 0 : least);
    }
    usable_[m] = std::max<int64_t>(space.places[m].budget - workspace, 0);
    if (!by_sums || !space.places[m].limited || static_cast<int>(m) == space.cpu_place()) continue;
    fills_[m] = same != nullptr ? same->fills_[m] : Fill::make(sizes_on(space, static_cast<int>(m)), usable_[m]);
    usable_[m] = fills_[m].floor(usable_[m]);
  }
  most_price_ = (int64_t{1} << 58) / (2 * static_cast<int64_t>(space.units.size()) + 2);
  to_go_.assign((space.units.size() + 1) * states_, 0);
  unit_price_.assign(space.units.size() * static_cast<size_t>(space.place_count()), 0);
  unit_option_.assign(unit_price_.size(), -1);
  unopened_.assign(static_cast<size_t>(space.state_count()), 0);
  best_y_.assign(memories, 0);
}

const std::vector<Transition>& Bound::transitions(size_t state) const {
  return any_transitions_.empty() ? space_.transitions[state] : any_transitions_[state];
}

void Bound::price(const std::vector<uint64_t>& y) {
  const auto places = static_cast<size_t>(space_.place_count());
  for (size_t i = 0; i < space_.units.size(); ++i) {
    const SearchUnit& u = space_.units[i];
    for (size_t p = 0; p < places; ++p) unit_price_[i * places + p] = kNoWalk, unit_option_[i * places + p] = -1;
    for (size_t k = 0; k < u.options.size(); ++k) {
      const SearchOption& o = u.options[k];
      const auto place = static_cast<size_t>(o.place);
      const int64_t price = o.time_ps + priced(y[static_cast<size_t>(o.memory)], o.weights, most_price_) +
                            priced(y[place], u.kv, most_price_);
      if (price < unit_price_[i * places + place])
        unit_price_[i * places + place] = price, unit_option_[i * places + place] = static_cast<int>(k);
    }
  }
}

int64_t Bound::pass(const std::vector<uint64_t>& y, Walk& walk) {
  ++passes_;
  price(y);
  table_y_ = y;
  const auto places = static_cast<size_t>(space_.place_count());
  const size_t n = space_.units.size();
  std::vector<int64_t> move(places * places, 0);
  int64_t move_for = -1;
  for (size_t i = n; i-- > 0;) {
    if (space_.units[i].input != move_for && i > 0) {
      move_for = space_.units[i].input;
      for (size_t a = 0; a < places; ++a)
        for (size_t b = 0; b < places; ++b)
          if (a != b || space_.places[a].members.size() > 1)
            move[a * places + b] = space_.move_ps(static_cast<int>(a), static_cast<int>(b), move_for);
    }
    const int64_t* next = &to_go_[(i + 1) * states_];
    const int64_t* unit = &unit_price_[i * places];
    for (size_t s = 0; s < states_; ++s) {
      int64_t least = kNoWalk;
      for (const Transition& t : transitions(s)) {
        const auto p = static_cast<size_t>(t.place);
        int64_t cost = unit[p] + next[t.state];
        if (t.from >= 0 && i > 0) cost += move[static_cast<size_t>(t.from) * places + p];
        least = std::min(least, cost);
      }
      to_go_[i * states_ + s] = least;
    }
  }
  walk = Walk{};
  if (to_go_[0] >= kNoWalk) return kNoWalk;
  walk.exists = true;
  walk.bytes.assign(static_cast<size_t>(space_.memory_count()), 0);
  size_t state = 0;
  for (size_t i = 0; i < n; ++i) {
    for (const Transition& t : transitions(state)) {
      const auto p = static_cast<size_t>(t.place);
      const int64_t move_cost = t.from >= 0 && i > 0 ? space_.move_ps(t.from, t.place, space_.units[i].input) : 0;
      const int64_t cost =
          unit_price_[i * places + p] + to_go_[(i + 1) * states_ + static_cast<size_t>(t.state)] + move_cost;
      if (cost != to_go_[i * states_ + state]) continue;
      const int k = unit_option_[i * places + p];
      const SearchOption& o = space_.units[i].options[static_cast<size_t>(k)];
      walk.time_ps += o.time_ps + move_cost;
      walk.bytes[static_cast<size_t>(o.memory)] += o.weights;
      walk.bytes[p] += space_.units[i].kv;
      walk.options.push_back(k);
      walk.opens.push_back(t.opens);
      state = static_cast<size_t>(t.state);
      break;
    }
  }
  CHECK(walk.options.size() == n);
  Int128 value = to_go_[0];
  for (size_t m = 0; m < y.size(); ++m) {
    const Int128 price = static_cast<Int128>(priced_up(y[m], usable_[m])) * space_.members(static_cast<int>(m));
    value -= price;
  }
  return static_cast<int64_t>(std::max<Int128>(value, -static_cast<Int128>(kNoWalk)));
}

void Bound::ascend(int passes, int64_t enough) {
  const auto memories = static_cast<size_t>(space_.memory_count());
  std::vector<uint64_t> y(memories, 0);
  Walk walk;
  best_value_ = pass(y, walk);
  best_y_ = y;
  first_walk_ = walk;
  std::vector<size_t> rows;  // memories that limit anything
  for (size_t m = 0; m < memories; ++m) {
    const bool limited = static_cast<int>(m) == space_.disk_memory() ? space_.disk_limited : space_.places[m].limited;
    if (limited) rows.push_back(m);
  }
  if (walk.exists && !rows.empty()) {
    const double time_scale = std::max<double>(1, static_cast<double>(walk.time_ps));
    double byte_scale = 1;
    for (const size_t m : rows) byte_scale = std::max(byte_scale, static_cast<double>(usable_[m]));
    constexpr double kPenalty = 1e6;  // of a budget exceeded, in scaled units
    std::vector<double> b{1};
    for (const size_t m : rows)
      b.push_back(static_cast<double>(usable_[m]) * space_.members(static_cast<int>(m)) / byte_scale);
    MasterProgram master(b);
    const auto column = [&](const Walk& w) {
      std::vector<double> c{1};
      for (const size_t m : rows) c.push_back(static_cast<double>(w.bytes[m]) / byte_scale);
      return c;
    };
    std::vector<size_t> basis{master.add(static_cast<double>(walk.time_ps) / time_scale, column(walk))};
    std::vector<size_t> slack, excess;
    for (size_t r = 0; r < rows.size(); ++r) {
      std::vector<double> unit(rows.size() + 1, 0);
      unit[r + 1] = 1;
      slack.push_back(master.add(0, unit));
      unit[r + 1] = -1;
      excess.push_back(master.add(kPenalty, unit));
      const bool over = column(walk)[r + 1] > b[r + 1];
      basis.push_back(over ? excess.back() : slack.back());
    }
    master.set_basis(basis);
    for (int steps = 0; passes_ < passes && steps < 4 * passes && best_value_ < enough; ++steps) {
      std::vector<double> pi;
      if (!master.duals(pi)) break;
      // Slack columns first: they need no pass.
      size_t enters = SIZE_MAX;
      for (size_t r = 0; r < rows.size() && enters == SIZE_MAX; ++r) {
        if (pi[r + 1] > 1e-9)
          enters = slack[r];
        else if (-pi[r + 1] > kPenalty * (1 + 1e-9))
          enters = excess[r];
      }
      if (enters == SIZE_MAX) {
        for (size_t r = 0; r < rows.size(); ++r) {
          const double per_byte = std::max(-pi[r + 1], 0.0) * time_scale / byte_scale;
          y[rows[r]] = static_cast<uint64_t>(std::min(per_byte * 4294967296.0, 4.0e18));
        }
        const int64_t value = pass(y, walk);
        if (value > best_value_) best_value_ = value, best_y_ = y;
        double price = static_cast<double>(walk.time_ps) / time_scale;
        const std::vector<double> c = column(walk);
        for (size_t r = 0; r < rows.size(); ++r) price -= pi[r + 1] * c[r + 1];
        if (price - pi[0] > -1e-9) break;  // no better walk: y is optimal
        enters = master.add(static_cast<double>(walk.time_ps) / time_scale, c);
      }
      if (!master.enter(enters)) break;
    }
  }
  if (table_y_ != best_y_) {
    pass(best_y_, walk);
    --passes_;
  }
  if (any_transitions_.empty())
    for (size_t s = 0; s < states_; ++s) {
      Int128 price = 0;
      for (int k = 0; k < space_.class_count(); ++k)
        price += static_cast<Int128>(priced_up(best_y_[static_cast<size_t>(k)], usable_[static_cast<size_t>(k)])) *
                 (space_.members(k) - space_.opened[s][static_cast<size_t>(k)]);
      unopened_[s] = static_cast<int64_t>(std::min<Int128>(price, kNoWalk));
    }
}

}  // namespace berth::plan
