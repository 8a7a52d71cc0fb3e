// plan/strategies/run_chain.h — the chain as the search over runs sees it: units that a run cannot tell apart, the tree
// of everything a run may begin with, and sets of accelerators used.
//
// A run on one accelerator begins before some unit and ends before another. What it costs depends on the kinds of the
// units between alone, and models repeat their layers: a tree over kinds (one path for each unit that a run may begin
// with) is little larger than the chain.
//
// Start reading at: RunChain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "berth/plan/strategies/search_space.h"

namespace berth::plan {

// Time and moves as one number: time * kMovesScale + moves. kNever or more: there is no such way.
using RunKey = int64_t;
inline constexpr int64_t kMovesScale = 4096;
inline constexpr RunKey kNever = int64_t{1} << 61;

class RunChain {
 public:
  explicit RunChain(const SearchSpace& space);

  // False where there is no accelerator, or more than the search over runs is made for.
  bool usable() const { return usable_; }
  size_t size() const { return kinds_.size(); }  // units
  size_t classes() const { return static_cast<size_t>(space.class_count()); }

  size_t kind(size_t unit) const { return kinds_[unit]; }
  size_t kind_count() const { return examples_.size(); }
  const SearchUnit& example(size_t kind) const { return space.units[examples_[kind]]; }
  // The cpu's step of a unit of this kind, and the option.
  RunKey base(size_t kind) const { return bases_[kind]; }
  int base_option(size_t kind) const { return base_options_[kind]; }
  // Before a unit of this kind; places are classes, then the cpu.
  RunKey move(size_t from, size_t to, size_t kind) const {
    return space.move_ps(static_cast<int>(from), static_cast<int>(to), example(kind).input) * kMovesScale + 1;
  }

  // Beginnings; 0 is the empty one, and each comes after the one it goes on from.
  struct Beginning {
    size_t kind = 0;    // of its last unit
    size_t before = 0;  // without that
    size_t length = 0;
    std::vector<size_t> longer;  // by one unit
  };
  std::vector<Beginning> beginnings;
  // Of units [first, last).
  size_t beginning(size_t first, size_t last) const { return paths_[first][last - first - 1]; }

  // How many of each class are used: numbered, 0 is none. What follows when one more of a class is; -1: none is left.
  std::vector<std::vector<int>> next_set;
  size_t set_count() const { return next_set.size(); }
  size_t pair_count() const;  // of a set and a class of which it leaves one

  const SearchSpace& space;

 private:
  bool is_small() const;
  void make_kinds();
  bool make_beginnings();
  void make_sets();

  bool usable_ = false;
  std::vector<size_t> kinds_, examples_;
  std::vector<RunKey> bases_;
  std::vector<int> base_options_;
  std::vector<std::vector<size_t>> paths_;
};

}  // namespace berth::plan
