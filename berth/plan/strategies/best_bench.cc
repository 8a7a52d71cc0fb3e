// plan/strategies/best_bench.cc — BM_Best/<model>/<machine>: time to plan synthetic unit tables of real shapes, from
// sizes to a proven placement. Counters: labels made, gap in percent (0: proven), units.
#include <benchmark/benchmark.h>

#include "berth/plan/strategies/best.h"
#include "berth/plan/strategies/random_case.h"

namespace berth::plan {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

struct BenchModel {
  const char* name;
  ModelShape shape;
};
struct BenchMachine {
  const char* name;
  std::vector<int64_t> accelerators;
  int64_t cpu, disk;
};

ModelShape shape_of(int layers, bool experts, int64_t layer_bytes, int64_t hidden, int64_t vocab_bytes,
                    bool tied = false) {
  ModelShape s;
  s.layers = layers;
  s.experts = experts;
  s.layer_bytes = layer_bytes;
  s.hidden = hidden;
  s.vocab_bytes = vocab_bytes;
  s.tied = tied;
  return s;
}

void run(benchmark::State& state, const BenchModel& model, const BenchMachine& machine) {
  Case c = model_case(model.shape, machine.accelerators, machine.cpu, machine.disk);
  c.rules.stream = machine.disk > 0;
  BestResult result;
  int units = 0;
  for (auto _ : state) {
    const CostModel costs = c.model();
    units = costs.unit_count();
    result = find_best(costs, 1'000'000);
    benchmark::DoNotOptimize(result.cost.time_ps);
  }
  if (result.placement && !c.model().fits(*result.placement)) state.SkipWithError("the plan does not fit");
  state.counters["labels"] = static_cast<double>(result.labels);
  state.counters["units"] = units;
  state.counters["gap_percent"] = result.placement
                                      ? 100.0 * static_cast<double>(result.cost.time_ps - result.bound_ps) /
                                            static_cast<double>(result.cost.time_ps)
                                      : -1;
}

const bool kRegistered = [] {
  const std::vector<BenchModel> models = {
      {"dense8b", shape_of(32, false, 420 << 20, 4096, 1 << 30)},
      {"tied8b", shape_of(32, false, 420 << 20, 4096, 1 << 30, true)},
      {"dense70b", shape_of(80, false, 1'700'000'000, 8192, 2'100'000'000)},
      {"moe30b", shape_of(48, true, 1'200'000'000, 2048, 600'000'000)},
      {"moe400b", shape_of(60, true, 6'000'000'000, 6144, 2'400'000'000)},
  };
  const std::vector<BenchMachine> machines = {
      {"1x24", {24 * kGiB}, 512 * kGiB, 0},
      {"2x16", {16 * kGiB, 16 * kGiB}, 512 * kGiB, 0},
      {"18+10", {18 * kGiB, 10 * kGiB}, 512 * kGiB, 0},
      {"4x24", std::vector<int64_t>(4, 24 * kGiB), 512 * kGiB, 0},
      {"24+16+12+8", {24 * kGiB, 16 * kGiB, 12 * kGiB, 8 * kGiB}, 512 * kGiB, 0},
      {"8x80", std::vector<int64_t>(8, 80 * kGiB), 512 * kGiB, 0},
      {"16x40", std::vector<int64_t>(16, 40 * kGiB), 512 * kGiB, 0},
      {"18+10_cpu48_disk", {18 * kGiB, 10 * kGiB}, 48 * kGiB, 2000 * kGiB},
  };
  for (const BenchModel& model : models)
    for (const BenchMachine& machine : machines)
      benchmark::RegisterBenchmark((std::string("BM_Best/") + model.name + "/" + machine.name).c_str(),
                                   [model, machine](benchmark::State& state) { run(state, model, machine); })
          ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace berth::plan
