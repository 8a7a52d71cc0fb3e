// plan/strategies/lagrange.h — lower bounds: what any plan costs at least, by pricing memory.
//
// A multiplier y(m) >= 0 prices each byte of weights and KV cache in memory m. With workspace, staging and copies of
// shared caches left out, units then interact only through moves, and
//
//   L(y) = min over walks of [ T + sum y(m) bytes(m) ] - sum y(m) B(m)   <=   T of every plan that fits
//
// for every y. The minimum is one pass backwards over (unit, state); y is found by column generation: the walks met so
// far are the columns of a small linear program whose duals are the next y (planner.md 4, cutting planes).
//
// y are integers (2^-32 ps per byte), walks are priced downwards and budgets upwards, so the bound holds exactly.
// Start reading at: Bound.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/plan/strategies/fill.h"
#include "berth/plan/strategies/search_space.h"

namespace berth::plan {

inline constexpr int64_t kNoWalk = int64_t{1} << 61;  // from here on: no walk exists

// floor(y * bytes * 2^-32), at most `most`.
int64_t priced(uint64_t y, int64_t bytes, int64_t most);
// ceil(y * bytes * 2^-32), at most 2^61.
int64_t priced_up(uint64_t y, int64_t bytes);

struct Walk {
  bool exists = false;
  int64_t time_ps = 0;         // unpriced
  std::vector<int64_t> bytes;  // by memory, over all members of a class
  std::vector<int> options;    // by unit
  std::vector<bool> opens;
};

class Bound {
 public:
  // Visits in F, or (visit_once = false) anything: the bound over all placements.
  // `by_sums`: budgets count up to the largest sum of sizes that they hold; without, a weaker bound, sooner.
  // `same`: another bound of this space, whose sums are taken.
  Bound(const SearchSpace& space, bool visit_once, bool by_sums = true, const Bound* same = nullptr);

  // Improves y by column generation, with at most `passes` backward passes. Stops early once the bound is `enough`.
  void ascend(int passes, int64_t enough);

  int64_t value() const { return best_value_; }  // kNoWalk or more: nothing fits
  const std::vector<uint64_t>& y() const { return best_y_; }
  int64_t to_go(int unit, int state) const {  // priced, from units[unit] on; kNoWalk or more: none
    return to_go_[static_cast<size_t>(unit) * states_ + static_cast<size_t>(state)];
  }
  // y-price of memory that devices not opened yet offer in this state.
  int64_t unopened(int state) const { return unopened_[static_cast<size_t>(state)]; }
  int64_t usable(int memory) const { return usable_[static_cast<size_t>(memory)]; }
  // What may still be put on an accelerator of this class that has `left` bytes left, at most.
  int64_t fillable(int place, int64_t left) const { return fills_[static_cast<size_t>(place)].floor(left); }
  const Walk& first_walk() const { return first_walk_; }
  int passes() const { return passes_; }

 private:
  void price(const std::vector<uint64_t>& y);
  int64_t pass(const std::vector<uint64_t>& y, Walk& walk);  // L(y); fills to_go_
  const std::vector<Transition>& transitions(size_t state) const;

  const SearchSpace& space_;
  size_t states_;
  std::vector<std::vector<Transition>> any_transitions_;  // of the bound over all placements
  std::vector<int64_t> usable_, unopened_;
  std::vector<Fill> fills_;  // by place
  std::vector<int64_t> to_go_;
  std::vector<int64_t> unit_price_;  // [unit][place]
  std::vector<int> unit_option_;
  std::vector<uint64_t> best_y_, table_y_;
  int64_t best_value_ = -kNoWalk;
  Walk first_walk_;
  int passes_ = 0;
  int64_t most_price_ = 0;
};

}  // namespace berth::plan
