// plan/strategies/table_combinations.h — which memories tables (and matrices that serve as tables) may be in, all of
// them.
//
// Each combination is one sub-problem of a strategy; of equal devices only the first stands for all.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/plan/cost.h"

namespace berth::plan {

struct TableCombinations {
  struct Combination {
    std::vector<int16_t> tables;  // by table; -1: stored with a unit
    std::vector<int16_t> units;   // by unit: the memory it must be stored in; -1: free
  };
  std::vector<Combination> all;
  bool complete = true;  // false: there are more than are worth trying
};

// `by_rule`: tables that prefer the cpu are there (planner.md 2). `on_accelerators`: the others are on accelerators
// where they may be. `single_device`: an accelerator that is no other's twin.
TableCombinations table_combinations(const CostModel& model, bool by_rule, bool on_accelerators,
                                     int single_device = -1);

}  // namespace berth::plan
