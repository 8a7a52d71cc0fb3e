// plan/strategies/random_case.h — tests only: planning cases made from a seed, with numbers small enough for ties,
// exact fits and empty budgets to occur; and larger ones shaped like models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "berth/machine/budget.h"
#include "berth/machine/machine.h"
#include "berth/plan/cost.h"
#include "berth/sizing/units.h"

namespace berth::plan {

// The same sequence everywhere (the standard library's distributions are not).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x1234567u) {}
  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t in(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return in(0, 99) < percent; }

 private:
  uint64_t state_;
};

struct Case {
  sizing::UnitTable units;
  machine::Machine machine;
  std::vector<machine::DeviceBudget> budgets;
  sizing::RunShape shape;
  Rules rules;

  CostModel model() const { return CostModel::make(units, machine, budgets, shape, rules); }
  std::string describe() const;
};

// At most 6 units, 3 accelerators, cpu and disk.
Case random_case(uint64_t seed);

// `layers` layers of attention and MLP, or (with `experts`) attention, router and expert bank; a head and an embedding.
struct ModelShape {
  int layers = 32;
  bool experts = false;
  bool tied = false;
  int64_t layer_bytes = int64_t{400} << 20;  // all of a layer
  int64_t kv_bytes = int64_t{16} << 20;
  int64_t hidden = 4096;
  int64_t vocab_bytes = int64_t{500} << 20;
};
Case model_case(const ModelShape& shape, const std::vector<int64_t>& accelerators, int64_t cpu, int64_t disk);

// 40 units in chain, two unequal accelerators and a cpu, sizes in whole MiB: for the mixed integer program.
Case milp_case(uint64_t seed);

}  // namespace berth::plan
