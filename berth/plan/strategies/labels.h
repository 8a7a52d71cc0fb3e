// plan/strategies/labels.h — the exact search: labels forward through the chain, with dominance and a lower bound.
//
// A label is a partial plan of units 0..i: its state (search_space.h), objective so far, and what it has taken of the
// open accelerator, the cpu and the disk (accelerators left behind no longer matter). It dies when it breaks a budget,
// when another of the same state has no larger objective and no larger resource, or when its lower bound exceeds the
// best plan.
//
// A pass keeps at most `width` labels per unit, those of least bound. What it drops is remembered by its bound: a pass
// that dropped nothing that could still win has proved its result.
//
// Start reading at: search_labels.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "berth/plan/strategies/lagrange.h"
#include "berth/plan/strategies/search_space.h"

namespace berth::plan {

struct LabelResult {
  bool found = false;  // better than the incumbent that was handed in
  Cost cost;
  std::vector<int> options;
  std::vector<bool> opens;
  int64_t dropped_bound = kNoWalk;  // least bound of labels dropped for width; kNoWalk: none was
  int64_t labels = 0;               // made
  int64_t effort = 0;               // labels, and the labels that comparing them is worth
};

// `incumbent`: only better plans are looked for. `width` and `most_labels` limit the effort.
LabelResult search_labels(const SearchSpace& space, const Bound& bound, const std::optional<Cost>& incumbent,
                          size_t width, int64_t most_labels);

}  // namespace berth::plan
