// plan/strategies/search_space.h — one sub-problem of `best`: table memories fixed, equal devices folded into classes.
//
// Family F (planner.md 3): leaving out visits to the cpu, each accelerator is visited at most once, in any order. A
// walk through the chain is a sequence of *states*: how many devices of each class have been opened, which class the
// open one is of, and whether the walk is at the cpu or on the open accelerator. Equal devices are interchangeable, so
// a state needs no names; the k-th opened device of a class is its k-th member.
//
// Start reading at: SearchSpace.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "berth/plan/cost.h"

namespace berth::plan {

// Whether a plan cannot tell two accelerators apart: budget, rates, links to every other device.
bool interchangeable(const CostModel& model, int a, int b);

// Places are what a walk can be at: classes of accelerators 0..K-1, then the cpu. Memories are places, then the disk.
struct SearchOption {
  int16_t place = 0;   // computes
  int16_t memory = 0;  // stores
  bool stream = false;
  int64_t time_ps = 0;  // step, host ways and gathers that hang on the unit's place
  int64_t weights = 0;  // bytes on `memory`
};

struct SearchUnit {
  std::vector<SearchOption> options;  // sorted by place, compute before stream
  int64_t kv = 0, kv_new_rows = 0, workspace = 0, staging = 0, input = 0;
  int source = -1;  // index into SearchSpace::sources: this unit's cache is read by later ones
  int reads = -1;   // index into sources
};

struct SharedSource {
  int unit = 0, last_reader = 0;
};

struct PlaceClass {
  std::vector<int> members;  // machine devices in machine order; the cpu has one
  int64_t budget = 0;        // less the tables stored there
  int64_t workspace = 0;     // of tables gathered there
  bool limited = true;       // false: could hold everything, bytes need not be counted
};

struct Transition {
  int32_t state = 0;   // after
  int16_t place = 0;   // entered
  int16_t from = -1;   // the place left, where a move is paid; -1: none
  bool opens = false;  // a new accelerator
};

class SearchSpace {
 public:
  // `tables`: memory of every table, -1 for those stored with a unit; `holder_memory`: for each unit the memory it must
  // be stored in, -1 where free (tied heads). `single_device` forms a class of its own. Nothing where some unit has no
  // option left.
  static std::optional<SearchSpace> make(const CostModel& model, const std::vector<int16_t>& tables,
                                         const std::vector<int16_t>& unit_memory, int single_device = -1,
                                         int64_t most_states = kMostStates);
  static constexpr int64_t kMostStates = 6000;  // of the walk; above, machine order

  int unit_count() const { return static_cast<int>(units.size()); }
  int class_count() const { return class_count_; }  // of accelerators
  int place_count() const { return static_cast<int>(places.size()); }
  int cpu_place() const { return cpu_place_; }      // -1: none
  int disk_memory() const { return disk_memory_; }  // -1: none
  int memory_count() const { return place_count() + (disk_memory_ >= 0 ? 1 : 0); }
  int state_count() const { return static_cast<int>(transitions.size()); }
  int64_t move_ps(int from, int to, int64_t bytes) const;  // between different devices of these places
  int64_t memory_budget(int memory) const {
    return memory == disk_memory_ ? disk_budget : places[static_cast<size_t>(memory)].budget;
  }
  int members(int memory) const {
    return memory == disk_memory_ ? 1 : static_cast<int>(places[static_cast<size_t>(memory)].members.size());
  }

  const CostModel* model = nullptr;
  std::vector<int16_t> tables;
  std::vector<SearchUnit> units;
  std::vector<PlaceClass> places;
  int64_t disk_budget = 0;
  bool disk_limited = true;
  std::vector<SharedSource> sources;
  std::vector<std::vector<Transition>> transitions;  // by state; state 0 is the start
  std::vector<std::vector<int16_t>> opened;          // by state: devices opened of each class
  std::vector<int16_t> open_class;                   // by state: class of the open accelerator; -1: none
  bool machine_order = false;                        // too many classes: accelerators are visited in machine order only
  int64_t table_accelerator_bytes = 0;

  // A placement from each unit's option, by replaying the walk.
  Placement placement(const std::vector<int>& options, const std::vector<bool>& opens) const;

 private:
  void drop_useless();
  void make_states();
  int class_count_ = 0, cpu_place_ = -1, disk_memory_ = -1;
};

}  // namespace berth::plan
