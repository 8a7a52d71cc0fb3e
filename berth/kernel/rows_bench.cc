// kernel/rows_bench.cc — norms, rope, activations, softcap, softmax, row lookups, argmax and cache writes at the sizes
// of real models. BM_Rows/OP/ISA/ROWSxN, elements per second.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "berth/kernel/attention.h"
#include "berth/kernel/elementwise.h"
#include "berth/kernel/norm.h"
#include "berth/kernel/parity.h"
#include "berth/kernel/rope.h"

namespace berth::kernel {
namespace {

template <typename Run>
void add(const std::string& op, int64_t rows, int64_t n, Run run) {
  for (const Isa isa : available_isas()) {
    const std::string name =
        "BM_Rows/" + op + "/" + std::string(isa_name(isa)) + "/" + std::to_string(rows) + "x" + std::to_string(n);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      parity::Random random(1);
      std::vector<float> x = parity::values(random, rows * n, parity::Inputs::kPlain), y(x.size());
      const std::vector<float> w = parity::values(random, n, parity::Inputs::kPlain);
      const Context context{isa, Numerics::kExact, nullptr};
      for (auto _ : state) {
        run(context, x.data(), w.data(), rows, n, y.data());
        benchmark::DoNotOptimize(y.data());
        benchmark::ClobberMemory();
      }
      state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * rows * n);
    });
  }
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const int64_t rows : {1, 64}) {
    add("rms_norm", rows, 896, [](auto& c, float* x, const float* w, int64_t m, int64_t n, float* y) {
      rms_norm(c, x, n, w, 1e-6f, m, n, y, n);
    });
    add("layer_norm", rows, 896, [](auto& c, float* x, const float* w, int64_t m, int64_t n, float* y) {
      layer_norm(c, x, n, w, w, 1e-6f, m, n, y, n);
    });
    add("add_residual", rows, 896, [](auto& c, float* x, const float*, int64_t m, int64_t n, float* y) {
      add_residual(c, y, n, x, n, 1.0f, m, n);
    });
    add("silu_gated", rows, 4864, [](auto& c, float* x, const float*, int64_t m, int64_t n, float* y) {
      activate(c, Activation::kSilu, x, n, x, n, m, n, y, n);
    });
    add("gelu_tanh_gated", rows, 4864, [](auto& c, float* x, const float*, int64_t m, int64_t n, float* y) {
      activate(c, Activation::kGeluTanh, x, n, x, n, m, n, y, n);
    });
    add("gelu_erf", rows, 4864, [](auto& c, float* x, const float*, int64_t m, int64_t n, float* y) {
      activate(c, Activation::kGeluErf, x, n, nullptr, 0, m, n, y, n);
    });
    add("softmax", rows, 128,
        [](auto& c, float* x, const float*, int64_t m, int64_t n, float*) { softmax(c, x, n, m, n); });
    add("rope", rows, 14 * 64, [](auto& c, float* x, const float* w, int64_t m, int64_t n, float*) {
      for (int64_t r = 0; r < m; ++r) rope(c, x + r * n, n, 1, 14, 64, 64, RopeLayout::kHalves, w, w + 32);
    });
    add("kv_write_bf16", rows, 2 * 2 * 64, [](auto& c, float* x, const float*, int64_t m, int64_t n, float*) {
      static const parity::Aligned memory(2 * 2 * 128 * 64 * 2);
      const KvView view{memory.data(), memory.data() + 2 * 128 * 64 * 2, DType::kBF16, 128, 2, 64, 64};
      kv_write(c, view, 5, m, x, n, x + n / 2, n);
    });
  }
  add("softcap", 1, 262144,
      [](auto& c, float* x, const float*, int64_t m, int64_t n, float*) { softcap(c, x, n, 30.0f, m, n); });
  add("argmax", 1, 262144,
      [](auto&, float* x, const float*, int64_t, int64_t n, float* y) { y[0] = static_cast<float>(argmax(x, n)); });
  return true;
}();

}  // namespace
}  // namespace berth::kernel
