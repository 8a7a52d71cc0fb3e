// plan/strategies/best.h — the placement of least decode time, with a certificate; or why there is none.
//
// One sub-problem for each combination of table memories (search_space.h); each gets a bound (lagrange.h) and, in order
// of bounds, a narrow pass of the label search (labels.h) for a first plan and the search over runs (run_search.h) for
// the best one. Where that leaves something out, the label search goes on, as wide as the effort allows.
//
// Start reading at: find_best.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/plan/cost.h"

namespace berth::plan {

enum class Proof { kNone, kUnit, kVolume, kRuns, kNoneFound };
std::string_view proof_name(Proof proof);  // "unit", "volume", "runs", "none_found"

struct BestResult {
  std::optional<Placement> placement;
  Cost cost;
  int64_t root_bound_ps = 0;                        // before any label was made
  int64_t bound_ps = 0;                             // of every plan in F; equals cost.time_ps where optimal
  int64_t bound_any_ps = 0;                         // of every placement
  bool optimal = false;                             // proven in F, the order of moves and bytes included
  bool tables_by_rule = false;                      // the 1 % rule was followed
  std::string family = "runs";                      // "runs", "runs in machine order", "scatter"
  int64_t labels = 0;                               // made; points of the search over runs count as what they take
  Proof proof = Proof::kNone;                       // where there is no placement
  int proof_unit = -1;                              // kUnit: which; chain, then tables
  int64_t volume_needed = 0, volume_available = 0;  // kVolume
};

// Weights and KV cache against all budgets; what may be on the disk needs nothing. Needed > available: nothing fits.
struct VolumeCheck {
  int64_t needed = 0, available = 0;
};
VolumeCheck check_volume(const CostModel& model);

// `effort`: labels made at most (and some, to end with a plan); `scatter_nodes`: of the search outside F.
BestResult find_best(const CostModel& model, int64_t effort, int64_t scatter_nodes = 1'000'000);

// Whether a placement is found with this effort: bounds and narrow passes of the same search, which ends with its first
// one. Quick rather than thorough: "no" is no proof.
bool finds_placement(const CostModel& model, int64_t effort, int64_t scatter_nodes);

}  // namespace berth::plan
