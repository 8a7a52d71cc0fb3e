// plan/strategies/run_chain.cc — see run_chain.h.
#include "berth/plan/strategies/run_chain.h"

#include <algorithm>
#include <map>
#include <utility>

#include "berth/plan/wide.h"

namespace berth::plan {
namespace {

constexpr size_t kMostUnits = 2000;
constexpr size_t kMostBeginnings = 100'000;
constexpr size_t kMostPoints = 2'000'000;  // (unit, place, set)

}  // namespace

RunChain::RunChain(const SearchSpace& s) : space(s) {
  if (!is_small()) return;
  make_kinds();
  if (!make_beginnings()) return;
  make_sets();
  usable_ = (size() + 1) * (classes() + 1) * set_count() <= kMostPoints;
}

// Whether keys of whole plans are far from kNever.
bool RunChain::is_small() const {
  if (space.class_count() == 0 || space.units.empty() || space.units.size() > kMostUnits) return false;
  Int128 most = 0;
  for (const SearchUnit& u : space.units) {
    int64_t step = 0;
    for (const SearchOption& o : u.options) step = std::max(step, o.time_ps);
    most += step;
    for (int a = 0; a < space.place_count(); ++a)
      for (int b = 0; b < space.place_count(); ++b)
        if (a != b || space.members(a) > 1) most += space.move_ps(a, b, u.input);
  }
  return most < static_cast<Int128>((int64_t{1} << 60) / kMovesScale);
}

void RunChain::make_kinds() {
  using Same = std::pair<std::vector<int64_t>, std::vector<std::pair<int64_t, int64_t>>>;
  std::map<Same, size_t> ids;
  for (size_t i = 0; i < space.units.size(); ++i) {
    const SearchUnit& u = space.units[i];
    Same same{{u.kv, u.workspace, u.staging, u.input}, {}};
    RunKey base = kNever;
    int base_option = -1;
    for (size_t o = 0; o < u.options.size(); ++o) {
      const SearchOption& option = u.options[o];
      same.second.emplace_back(option.place, option.memory);
      same.second.emplace_back(option.time_ps, option.weights);
      if (option.place == space.cpu_place() && option.time_ps * kMovesScale < base)
        base = option.time_ps * kMovesScale, base_option = static_cast<int>(o);
    }
    const auto [it, fresh] = ids.emplace(std::move(same), examples_.size());
    if (fresh) {
      examples_.push_back(i);
      bases_.push_back(base);
      base_options_.push_back(base_option);
    }
    kinds_.push_back(it->second);
  }
}

bool RunChain::make_beginnings() {
  beginnings.push_back({});
  paths_.resize(size());
  for (size_t i = 0; i < size(); ++i) {
    size_t at = 0;
    for (size_t j = i; j < size(); ++j) {
      size_t longer = 0;
      for (const size_t l : beginnings[at].longer)
        if (beginnings[l].kind == kinds_[j]) longer = l;
      if (longer == 0) {
        longer = beginnings.size();
        beginnings[at].longer.push_back(longer);
        beginnings.push_back({kinds_[j], at, beginnings[at].length + 1, {}});
      }
      paths_[i].push_back(at = longer);
    }
    if (beginnings.size() > kMostBeginnings) return false;
  }
  return true;
}

void RunChain::make_sets() {
  if (space.machine_order) {  // the set is "up to which class"
    for (size_t set = 0; set <= classes(); ++set) {
      next_set.emplace_back();
      for (size_t k = 0; k < classes(); ++k) next_set.back().push_back(k >= set ? static_cast<int>(k) + 1 : -1);
    }
    return;
  }
  std::vector<int> place(classes(), 1);
  int all = 1;
  for (size_t k = 0; k < classes(); ++k) place[k] = all, all *= space.members(static_cast<int>(k)) + 1;
  for (int set = 0; set < all; ++set) {
    next_set.emplace_back();
    for (size_t k = 0; k < classes(); ++k) {
      const int members = space.members(static_cast<int>(k)), used = set / place[k] % (members + 1);
      next_set.back().push_back(used < members ? set + place[k] : -1);
    }
  }
}

size_t RunChain::pair_count() const {
  size_t count = 0;
  for (const std::vector<int>& next : next_set)
    count += static_cast<size_t>(std::count_if(next.begin(), next.end(), [](int set) { return set >= 0; }));
  return count;
}

}  // namespace berth::plan
