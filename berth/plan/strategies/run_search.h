// plan/strategies/run_search.h — the exact search over runs: what each accelerator does between any two units, then
// which accelerator takes which stretch of the chain.
//
// Between entering an accelerator before unit i and leaving it for good before unit j, what happens there depends on
// nothing outside: which of the units i..j-1 it keeps and which it leaves to the cpu on the way. So the least cost
// G(class, i, j) is found once, over the sums of bytes that units reach, and a plan in F is a sequence of stretches: a
// second pass over (unit, accelerators used so far) finds the best one. Stretches of alike units cost alike; they are
// walked as a tree of beginnings (models repeat their layers, so the tree is hardly larger than the chain).
//
// Left out are the cpu's and the disk's budgets, staging, and copies of shared caches. The result is therefore a bound
// of every plan in F, and where its plan turns out to cost just that and to fit, the best plan.
//
// Start reading at: search_runs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "berth/plan/strategies/search_space.h"

namespace berth::plan {

struct RunSearchResult {
  bool applies = false;      // else: too large for this search, nothing is said
  bool exists = false;       // false: no plan in F at all
  Cost bound;                // of every plan in F
  std::vector<int> options;  // the plan of that cost, by unit; it may break what was left out
  std::vector<bool> opens;
  int64_t work = 0;  // steps taken
};

// `rounded`: where sums are too many, sizes are rounded down to a grain (one more thing left out); else the search does
// not apply there.
RunSearchResult search_runs(const SearchSpace& space, bool rounded);

}  // namespace berth::plan
