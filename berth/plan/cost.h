// plan/cost.h — what a placement costs: time, moves and bytes, in integers. The one cost function of the search, of
// brute force, of assign() and of explanations.
//
// Every chain unit has a computing device c (accelerator or cpu) and a memory m. One decode step takes
//
//   compute  m = c                      max((t + v) / read(c), f / flops(c))
//   stream   m = cpu, c accelerator     the same + t / link(c)
//   stream   m = disk                   the same + t / min(read(disk), link(c)); c = cpu: t / read(disk)
//
// plus, for each c(i) != c(i+1), the way of the activations; the host's way to the first unit and of the logits back;
// one gather per table that is not in its consumer's memory; and the new rows of a shared KV cache for each device that
// reads a copy. Nothing overlaps: T is the sum. Times are picoseconds, rounded up, so sums have no order.
//
// Devices are indices into machine.devices. Non-goals: which placement is best (strategies/).
// Start reading at: CostModel.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/machine/budget.h"
#include "berth/machine/machine.h"
#include "berth/plan/plan.h"
#include "berth/sizing/units.h"

namespace berth::plan {

// What may be chosen, apart from memory limits.
enum class TablePlacement { kAuto, kAccelerator };
enum class Target { kBerth, kTransformers, kLlamaCpp };
struct Rules {
  std::vector<std::optional<size_t>> pins;  // per unit: the machine device it must be stored on; empty: no pins
  TablePlacement tables = TablePlacement::kAuto;
  Target target = Target::kBerth;
  bool offload = true;  // false: nothing may leave the accelerators
  bool stream = true;   // whether units may be brought over for each use
  // Units with a KV cache compute on accelerators, where there are any: what is away then has none, and can be brought
  // over for a prompt.
  bool kv_on_accelerators = false;
};

// Where one chain unit lives.
struct Place {
  int16_t compute = 0;
  int16_t memory = 0;
  bool operator==(const Place&) const = default;
};

// Where everything lives. A table stored with a unit (tied head) is where that unit is; its entry is not read.
struct Placement {
  std::vector<Place> units;     // the chain
  std::vector<int16_t> tables;  // memory of each table
  bool operator==(const Placement&) const = default;
};

// The objective of `best`: lexicographically least.
struct Cost {
  int64_t time_ps = 0;
  int32_t moves = 0;
  int64_t accelerator_bytes = 0;  // weights and KV cache on accelerators
  auto operator<=>(const Cost&) const = default;
};

struct DeviceLoad {
  int64_t weights = 0, kv = 0, workspace = 0, staging = 0;
  int64_t total() const { return weights + kv + workspace + staging; }
};

// One way to use a chain unit.
struct Choice {
  Place place;
  Access access = Access::kCompute;
  int64_t step_ps = 0;
};

class CostModel {
 public:
  struct Device {
    machine::DeviceKind kind = machine::DeviceKind::kCpu;
    bool accelerator = false;
    bool usable = false;  // neither left out nor without memory
    int64_t budget = 0;   // B(d)
    int64_t read = 1, flops = 1;
    int64_t link = 0, latency_ps = 0;  // to the host; accelerators only
  };
  struct Unit {
    int64_t touched = 0, kv = 0, kv_new_rows = 0, flops = 0, input = 0, workspace = 0, grain = 0;
    int32_t kv_source = -1;
  };
  struct Table {
    int64_t rows_bytes = 0;  // of one step
    int64_t row_count = 0;   // batch
    int64_t workspace = 0;
    int32_t consumer = 0;
    int32_t stored_with = -1;
  };

  // The arguments must outlive nothing: all numbers are copied. `budgets` has one entry per machine device.
  static CostModel make(const sizing::UnitTable& units, const machine::Machine& machine,
                        std::span<const machine::DeviceBudget> budgets, const sizing::RunShape& shape,
                        const Rules& rules);

  int unit_count() const { return static_cast<int>(units_.size()); }
  int table_count() const { return static_cast<int>(tables_.size()); }
  int device_count() const { return static_cast<int>(devices_.size()); }
  const Device& device(int d) const { return devices_[static_cast<size_t>(d)]; }
  const Unit& unit(int i) const { return units_[static_cast<size_t>(i)]; }
  const Table& table(int j) const { return tables_[static_cast<size_t>(j)]; }
  std::optional<int> cpu() const { return cpu_; }  // where it may be used
  std::optional<int> disk() const { return disk_; }
  bool has_accelerator() const;

  // Bytes of a chain unit or table stored on a device.
  int64_t unit_weights(int i, int device) const { return weights_[static_cast<size_t>(i * device_count() + device)]; }
  int64_t table_weights(int j, int device) const { return unit_weights(unit_count() + j, device); }

  // What pins, target and options leave open: by computing device in machine order, compute before stream.
  const std::vector<Choice>& choices(int i) const { return choices_[static_cast<size_t>(i)]; }
  // Memories open to a table, in machine order; empty for one stored with a unit.
  const std::vector<int16_t>& table_choices(int j) const { return table_choices_[static_cast<size_t>(j)]; }
  // The table belongs on the cpu if a plan with it there exists (planner.md 2, the 1 % rule).
  bool prefers_cpu(int j) const { return prefers_cpu_[static_cast<size_t>(j)]; }

  // Time of one step of unit i, wherever it is; moves not included.
  int64_t step_ps(int i, Place place) const;
  Access access(Place place) const { return place.compute == place.memory ? Access::kCompute : Access::kStream; }
  // One way, for `bytes`; 0 where from == to.
  int64_t way_ps(int from, int to, int64_t bytes) const;
  // Between the host and a device; 0 for the cpu.
  int64_t host_way_ps(int device, int64_t bytes) const;
  int64_t gather_ps(int j, int memory, int consumer_on) const;
  int64_t logits_bytes() const { return logits_bytes_; }
  // The device on which a table's rows are gathered, whose workspace that needs: its memory, for the disk the cpu; -1:
  // none.
  int gatherer(int memory) const;

  // Whole placements.
  Cost cost(const Placement& placement) const;
  std::vector<DeviceLoad> loads(const Placement& placement) const;
  bool fits(const Placement& placement) const;
  int table_memory(int j, const Placement& placement) const;
  // ceil(amount / rate) in picoseconds, clamped so that no sum over units overflows.
  int64_t ps(uint64_t amount, int64_t rate) const;

 private:
  void add_choices(const Rules& rules);
  void add_table_rule(const Rules& rules);

  std::vector<Device> devices_;
  std::vector<Unit> units_;
  std::vector<Table> tables_;
  std::vector<int64_t> weights_;  // [unit or table][device]
  struct Link {
    int64_t rate = 0, latency_ps = 0;
  };
  std::vector<Link> direct_;  // [from][to]: the machine's own entry; rate 0: none
  std::vector<std::vector<Choice>> choices_;
  std::vector<std::vector<int16_t>> table_choices_;
  std::vector<bool> prefers_cpu_;
  std::optional<int> cpu_, disk_;
  int64_t logits_bytes_ = 0;
  int64_t most_ps_ = 0;               // of one term, so that sums cannot overflow
  bool whole_table_travels_ = false;  // --target transformers: what is off the cards is brought there whole
};

}  // namespace berth::plan
