// base/thread_pool_bench.cc — what a fork costs, and what a token's worth of forks costs on shared cores.
//
// To see the latter, run it beside a process that keeps one core busy:
//   taskset -c 1 sh -c 'while :; do :; done' & berth_base_bench --benchmark_filter=Token
#include <benchmark/benchmark.h>

#include "berth/base/thread_pool.h"

namespace berth {
namespace {

// Fork and join with nothing to do: aim < 2 us with free cores.
void BM_ForkJoin(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.run([](int share, int) { benchmark::DoNotOptimize(share); });
}
BENCHMARK(BM_ForkJoin)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

// A dependent chain of `steps` fused multiply-adds: pure computing, no memory.
void compute(int64_t steps) {
  float x = 1.0f;
  for (int64_t i = 0; i < steps; ++i) x = __builtin_fmaf(x, 0.9999f, 0.1f);
  benchmark::DoNotOptimize(x);
}

// 200 forks of equal work in `pieces` pieces each, with a short serial stretch between: one token of a small model.
void BM_Token(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const int64_t pieces = state.range(1);
  constexpr int64_t kStepsPerFork = 100'000;
  for (auto _ : state)
    for (int fork = 0; fork < 200; ++fork) {
      pool.parallel_for(pieces, 1, [&](int64_t, int64_t, int) { compute(kStepsPerFork / pieces); });
      compute(500);
    }
}
BENCHMARK(BM_Token)
    ->ArgNames({"threads", "pieces"})
    ->ArgsProduct({{1, 2}, {2, 8, 32}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(3);

}  // namespace
}  // namespace berth
