// engine/bench.cc — see bench.h.
#include "berth/engine/bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include "berth/device/probe.h"

namespace berth::engine {
namespace {

double seconds_of(const std::function<Status()>& work, Status& status) {
  const auto start = std::chrono::steady_clock::now();
  status = work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<double> read_limit(ThreadPool& pool) {
  device::MeasureOptions options;
  options.seconds = 0.2;
  TRY(const device::Rates rates, device::measure_rates(pool, options));
  return rates.read_bytes_per_s;
}

uint64_t peak_rss_bytes() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#if defined(__APPLE__)
  return static_cast<uint64_t>(usage.ru_maxrss);
#else
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

struct Sample {
  double median = 0, stdev = 0;
};
Sample summarize(std::vector<double> v) {
  Sample s;
  std::sort(v.begin(), v.end());
  s.median = v[v.size() / 2];
  double mean = 0, square = 0;
  for (const double x : v) mean += x / static_cast<double>(v.size());
  for (const double x : v) square += (x - mean) * (x - mean);
  s.stdev = v.size() > 1 ? std::sqrt(square / static_cast<double>(v.size() - 1)) : 0;
  return s;
}

}  // namespace

Result<std::vector<BenchRow>> bench(RunningModel& running, const BenchOptions& options) {
  model::Model& model = *running.model;
  const int64_t needed = options.depth + std::max({options.prompt, options.generate, int64_t{1}});
  if (needed > model.kv().ctx_size())
    return Error(ErrorCode::kInvalidArgument, fmt::format("the bench needs a context of {} tokens, the plan has {}", needed, model.kv().ctx_size()));
  std::vector<int32_t> tokens(static_cast<size_t>(needed));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(std::min<int64_t>(model.spec().vocab_size, 20000)));
  const auto ignore = [](size_t, int64_t, std::span<const float>) { return Status(); };
  std::vector<BenchRow> rows;
  const int threads = running.planned.inputs.shape.threads;

  const model::BatchItem one{.sequence = 0, .tokens = std::span(tokens).first(1)};
  TRY_STATUS(model.forward(std::span(&one, 1), ignore));
  const double ready_s = options.started == std::chrono::steady_clock::time_point{}
                             ? 0
                             : std::chrono::duration<double>(std::chrono::steady_clock::now() - options.started).count();
  const uint64_t rss = peak_rss_bytes();  // before the read limit's memory

  // The sequence to `depth` tokens, computed anew only where its cache cannot be cut back to them.
  const auto rewind = [&]() -> Status {
    if (options.depth > 0 && model.kv().keepable(0, options.depth) == options.depth) {
      model.kv().truncate(0, options.depth);
      return {};
    }
    model.kv().set_length(0, 0);
    if (options.depth == 0) return {};
    return model.prefill(0, std::span(tokens).first(static_cast<size_t>(options.depth)), model::LogitRows::kNone, ignore);
  };
  const std::string at = options.depth > 0 ? fmt::format("@{}", options.depth) : "";
  const auto after = std::span(tokens).subspan(static_cast<size_t>(options.depth));

  const auto measure = [&](std::string test, int64_t count, const std::function<Status()>& work) -> Status {
    BenchRow row;
    row.test = std::move(test);
    row.threads = threads;
    row.ready_s = ready_s;
    row.peak_rss_bytes = rss;
    TRY(double limit, read_limit(*running.pool));
    Status status;
    TRY_STATUS(rewind());
    seconds_of(work, status);  // warm
    TRY_STATUS(status);
    std::vector<double> rates;
    for (int r = 0; r < options.repeats; ++r) {
      TRY_STATUS(rewind());
      rates.push_back(static_cast<double>(count) / seconds_of(work, status));
      TRY_STATUS(status);
    }
    TRY(const double later, read_limit(*running.pool));
    limit = std::max(limit, later);
    const Sample s = summarize(rates);
    row.tokens_per_s = s.median;
    row.stdev = s.stdev;
    row.read_limit_gb_per_s = limit / 1e9;
    rows.push_back(row);
    return {};
  };

  if (options.prompt > 0)
    TRY_STATUS(measure(fmt::format("pp{}{}", options.prompt, at), options.prompt, [&] {
      return model.prefill(0, after.first(static_cast<size_t>(options.prompt)), model::LogitRows::kLast, ignore);
    }));
  if (options.generate > 0) {
    const auto decode = [&](int64_t count) -> Status {
      for (int64_t i = 0; i < count; ++i) {
        const model::BatchItem item{.sequence = 0, .tokens = after.subspan(static_cast<size_t>(i), 1)};
        TRY_STATUS(model.forward(std::span(&item, 1), ignore));
      }
      return {};
    };
    TRY_STATUS(measure(fmt::format("tg{}{}", options.generate, at), options.generate, [&] { return decode(options.generate); }));
    if (options.trace) {
      TRY_STATUS(rewind());
      const int64_t traced = std::min<int64_t>(options.generate, 32);
      Trace trace(running.pool->size(), static_cast<size_t>(traced) * (model.spec().layers.size() * 64 + 64));
      running.pool->set_trace(&trace);
      const Status status = decode(traced);
      running.pool->set_trace(nullptr);
      TRY_STATUS(status);
      rows.back().timeline = trace.rows();
      for (Trace::Row& r : rows.back().timeline) {
        r.count /= traced;
        for (double* const seconds : {&r.seconds, &r.alone, &r.early, &r.between, &r.late})
          *seconds /= static_cast<double>(traced);
      }

    }
    // Weights of the chain once, and of the cache what is visible halfway.
    BenchRow& row = rows.back();
    for (const sizing::Unit& u : running.planned.inputs.units.units) row.bytes_per_token += u.touched_bytes;
    const auto halfway = static_cast<uint64_t>(options.depth + options.generate / 2);
    for (const arch::LayerSpec& l : model.spec().layers) {
      const sizing::KvLayerSize size = sizing::kv_layer_size(l.attention, running.planned.inputs.shape);
      if (size.positions == 0) continue;
      const bool limited = l.attention.kind == arch::AttentionKind::kSliding && l.attention.window > 0;
      const uint64_t visible = limited ? std::min(halfway, static_cast<uint64_t>(l.attention.window)) : halfway;
      row.bytes_per_token += (size.k_bytes + size.v_bytes) / static_cast<uint64_t>(size.positions) * visible;
    }
    row.read_gb_per_s = row.tokens_per_s * static_cast<double>(row.bytes_per_token) / 1e9;
    row.share = row.read_limit_gb_per_s > 0 ? row.read_gb_per_s / row.read_limit_gb_per_s : 0;
  }
  return rows;
}

}  // namespace berth::engine
