// plan/explain/diff.h — what moved from one plan to another, and what that changes on each device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "berth/base/json.h"
#include "berth/plan/explain/text.h"
#include "berth/plan/plan.h"

namespace berth::plan {

struct PlanDifference {
  struct Moved {
    std::string path, from, to;  // devices that store it; empty: the plan lacks the unit
    std::string computed_from, computed_to;
    uint64_t bytes = 0;
  };
  struct DeviceChange {
    std::string id;
    uint64_t used_from = 0, used_to = 0;
    int64_t weights_bytes = 0, kv_bytes = 0, workspace_bytes = 0, staging_bytes = 0, free_bytes = 0;
    bool any() const {
      return weights_bytes != 0 || kv_bytes != 0 || workspace_bytes != 0 || staging_bytes != 0 || free_bytes != 0;
    }
  };
  std::vector<Moved> moved;           // in the order of the first plan, then what only the second has
  std::vector<DeviceChange> devices;  // those that change
  double decode_tokens_per_s_from = 0, decode_tokens_per_s_to = 0;
};

PlanDifference diff(const Plan& from, const Plan& to);

std::string diff_text(const PlanDifference& difference, const PictureStyle& style);
// One array: {"path", "from", "to", "bytes"} for what moved, then entries with "path": null and "device" for each
// device that changed (from and to: bytes used).
void write_diff(const PlanDifference& difference, JsonWriter& out);

}  // namespace berth::plan
