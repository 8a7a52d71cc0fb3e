// plan/plan.h — where every unit lives and computes, and what that costs: the value that planning makes and loading
// carries out. Serializes to the contract's PLAN document (plan_json.h) and back.
//
// Device names here are device-map names: "0" is the first accelerator, then "cpu" and "disk".
// Start reading at: Plan.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "berth/sizing/run_shape.h"
#include "berth/sizing/units.h"

namespace berth::plan {

// How a unit that is stored on `device` is used by `computed_on`.
enum class Access : uint8_t {
  kCompute,  // computed where it is stored
  kGather,   // table: rows are gathered where it is stored, only they travel
  kStream,   // brought over for each use, double-buffered
};

struct PlacedUnit {
  sizing::UnitKind kind = sizing::UnitKind::kMlp;
  int32_t layer = -1;
  std::string path;                // the unit's name: "model.layers.3.self_attn"
  std::vector<std::string> paths;  // module paths it holds
  std::string device;              // stored on
  std::string computed_on;
  Access access = Access::kCompute;
  Access access_prefill = Access::kCompute;
  uint64_t stored_bytes = 0;
  uint64_t touched_bytes = 0;
  uint64_t kv_bytes = 0;
  std::string reason;  // one clause for people
  bool operator==(const PlacedUnit&) const = default;
};

struct DeviceUse {
  std::string id;          // "0"
  std::string machine_id;  // "emu:0"
  uint64_t budget_bytes = 0;
  uint64_t weights_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t staging_bytes = 0;
  uint64_t overhead_bytes = 0;
  uint64_t margin_bytes = 0;
  uint64_t used() const {
    return weights_bytes + kv_bytes + workspace_bytes + staging_bytes + overhead_bytes + margin_bytes;
  }
  uint64_t free_bytes() const { return budget_bytes > used() ? budget_bytes - used() : 0; }
  bool operator==(const DeviceUse&) const = default;
};

struct Estimate {
  double decode_tokens_per_s = 0;
  double prefill_tokens_per_s = 0;
  int32_t cuts = 0;  // moves from one device to another per step
  bool operator==(const Estimate&) const = default;
};

struct Certificate {
  std::string objective = "decode time";
  double value_s = 0, bound_s = 0, gap_s = 0, bound_any_s = 0;
  bool optimal = false;
  std::string family = "runs";
  uint64_t labels = 0;
  bool operator==(const Certificate&) const = default;
};

// Units are in the order of sizing::UnitTable: the chain, then the tables.
struct Plan {
  std::string strategy = "best";
  std::vector<PlacedUnit> units;
  std::vector<DeviceUse> devices;  // in machine order, those left out absent
  sizing::RunShape shape;
  Estimate estimate;
  std::optional<Certificate> certificate;
  uint64_t memory_footprint_bytes = 0;
  std::vector<std::string> warnings;

  const DeviceUse* device(const std::string& id) const;
  bool operator==(const Plan&) const = default;
};

}  // namespace berth::plan
