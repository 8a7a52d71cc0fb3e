// kernel/attention_bench.cc — attention: one position over a long context (bytes of KV read per second, to be compared
// with BM_Read, the same threads reading as much memory) and prefill (FLOP/s).
//
// Results are compared with the reference before anything is timed. Names: BM_AttentionDecode/ISA/dtype/heads:kv:dim/
// context/threads. The caches of all layers are cycled through, so that they come from memory; BM_AttentionAgain has
// one layer and a shorter context, which stay in the second-level cache: what the instructions alone take.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "berth/base/check.h"
#include "berth/kernel/attention.h"
#include "berth/kernel/parity.h"
#include "berth/quant/scratch.h"

namespace berth::kernel {
namespace {

struct Model {
  const char* name;
  int32_t heads, kv_heads, head_dim;
};
constexpr Model kModels[] = {{"smollm2-135m", 9, 3, 64},
                             {"qwen2.5-0.5b", 14, 2, 64},
                             {"llama-1.1b", 32, 4, 64},
                             {"gemma3-270m", 4, 1, 256},
                             {"llama3-8b", 32, 8, 128}};

struct Layers {
  Layers(const Model& model, DType dtype, int64_t context, int64_t layers) {
    const int64_t capacity = (context + 127) / 128 * 128;
    const auto bytes = static_cast<size_t>(model.kv_heads * capacity * model.head_dim * (dtype == DType::kF32 ? 4 : 2));
    parity::Random random(1);
    const int64_t width = model.kv_heads * model.head_dim;
    const std::vector<float> rows = parity::values(random, 128 * width, parity::Inputs::kPlain);
    for (int64_t l = 0; l < layers; ++l) {
      planes_.push_back(std::make_unique<parity::Aligned>(bytes));
      planes_.push_back(std::make_unique<parity::Aligned>(bytes));
      views.push_back({planes_[planes_.size() - 2]->data(), planes_.back()->data(), dtype, capacity, model.kv_heads,
                       model.head_dim, model.head_dim});
      for (int64_t p = 0; p < context; p += 128)
        kv_write({best_isa(), Numerics::kExact, nullptr}, views.back(), p, std::min<int64_t>(128, context - p),
                 rows.data(), width, rows.data(), width);
    }
    bytes_per_layer = 2 * bytes;
  }
  std::vector<KvView> views;
  size_t bytes_per_layer = 0;

 private:
  std::vector<std::unique_ptr<parity::Aligned>> planes_;
};

std::vector<float> attend(const Context& context, const Model& model, const KvView& view, int64_t position,
                          int64_t rows, const std::vector<float>& q, const parity::Aligned& scratch,
                          std::vector<float>& out) {
  const int64_t width = model.heads * model.head_dim;
  const AttentionJob job{view, position, rows, q.data(), width, out.data(), width};
  AttentionOptions options;
  options.heads = model.heads;
  options.scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim));
  attention(context, options, std::span(&job, 1), scratch.span());
  return out;
}

void run(benchmark::State& state, Isa isa, const Model& model, DType dtype, int64_t before, int64_t rows, int threads,
         int64_t layers) {
  const Layers caches(model, dtype, before + rows, layers);
  ThreadPool pool(threads);
  const Context context{isa, Numerics::kExact, threads == 1 ? nullptr : &pool};
  parity::Random random(2);
  const int64_t width = model.heads * model.head_dim;
  const std::vector<float> q = parity::values(random, rows * width, parity::Inputs::kPlain);
  std::vector<float> out(static_cast<size_t>(rows * width)), expected(out.size());
  const parity::Aligned scratch(
      quant::attention_scratch_bytes(model.heads, model.head_dim, model.head_dim, rows, before + rows, threads));
  attend(context, model, caches.views[0], before, rows, q, scratch, out);
  if (rows == 1) {
    attend({}, model, caches.views[0], before, rows, q, scratch, expected);
    CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0);
  }
  size_t layer = 0;
  for (auto _ : state) {
    attend(context, model, caches.views[layer], before, rows, q, scratch, out);
    layer = (layer + 1) % caches.views.size();
  }
  if (rows == 1) {
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(caches.bytes_per_layer));
  } else {
    const double keys = static_cast<double>(rows) * (static_cast<double>(before) + static_cast<double>(rows + 1) / 2);
    state.counters["FLOP/s"] =
        benchmark::Counter(4.0 * keys * static_cast<double>(width), benchmark::Counter::kIsIterationInvariantRate);
  }
}

// What the same threads read from memory, for the share of the limit.
void read(benchmark::State& state, int threads) {
  const size_t n = size_t{1} << 28;
  const parity::Aligned memory(n);
  ThreadPool pool(threads);
  for (auto _ : state) {
    uint64_t sums[8] = {};
    pool.parallel_for(static_cast<int64_t>(n / 8), 1 << 20, [&](int64_t begin, int64_t end, int thread) {
      const auto* words = reinterpret_cast<const uint64_t*>(memory.data());
      uint64_t sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += words[i];
      sums[thread % 8] += sum;
    });
    benchmark::DoNotOptimize(sums);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(n));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const int threads : {1, 2}) {
    benchmark::RegisterBenchmark(("BM_Read/" + std::to_string(threads)).c_str(), [=](benchmark::State& state) {
      read(state, threads);
    })->UseRealTime();
    for (const Isa isa : available_isas()) {
      if (isa == Isa::kRef) continue;
      for (const Model& model : kModels) {
        for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
          const std::string name = std::string(isa_name(isa)) + "/" + std::string(dtype_name(dtype)) + "/" + model.name;
          const int64_t layers = std::max<int64_t>(
              2, (int64_t{192} << 20) / (4096 * 2 * model.kv_heads * model.head_dim * (dtype == DType::kF32 ? 4 : 2)));
          benchmark::RegisterBenchmark(
              ("BM_AttentionDecode/" + name + "/4096/" + std::to_string(threads)).c_str(),
              [=](benchmark::State& state) { run(state, isa, model, dtype, 4095, 1, threads, layers); })
              ->UseRealTime();
          if (threads == 1)
            benchmark::RegisterBenchmark(("BM_AttentionAgain/" + name + "/512/1").c_str(),
                                         [=](benchmark::State& state) { run(state, isa, model, dtype, 511, 1, 1, 1); })
                ->UseRealTime();
          if (dtype == DType::kF32) continue;
          benchmark::RegisterBenchmark(
              ("BM_AttentionPrefill/" + name + "/512@1024/" + std::to_string(threads)).c_str(),
              [=](benchmark::State& state) { run(state, isa, model, dtype, 1024, 512, threads, 1); })
              ->UseRealTime();
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace berth::kernel
