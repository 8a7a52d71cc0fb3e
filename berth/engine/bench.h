// engine/bench.h — how fast a loaded model is, as shares of the memory limit measured in the same run.
//
// Rows: "ppN" (a prompt of N tokens, logits of the last) and "tgN" (N tokens one after the other), both behind `depth`
// tokens that are already in the cache ("tg64@4096"). read_gb_per_s counts every weight and KV byte that a decode step
// reads, so that `share` is the part of a step's time that reading them alone would take; the limit is a plain read by the same threads over memory larger
// than the caches, taken before and after each test (the better one counts).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "berth/base/result.h"
#include "berth/base/trace.h"
#include "berth/engine/running.h"

namespace berth::engine {

struct BenchRow {
  std::string test;  // "pp512", "tg64", "tg64@4096"
  int threads = 1;
  double tokens_per_s = 0;  // median of the repeats
  double stdev = 0;
  uint64_t bytes_per_token = 0;
  double read_gb_per_s = 0;  // 1e9
  double read_limit_gb_per_s = 0;
  double share = 0;
  double ready_s = 0;           // since BenchOptions::started: open, plan, load, the first token
  uint64_t peak_rss_bytes = 0;  // of the process, when the first token was done
  // Of one run more (BenchOptions::trace): its operations, times per token.
  std::vector<Trace::Row> timeline;
};

struct BenchOptions {
  int64_t prompt = 512;
  int64_t generate = 64;
  int64_t depth = 0;  // tokens before either
  int repeats = 3;
  bool trace = false;  // the decode test runs once more, with a timeline
  std::chrono::steady_clock::time_point started{};  // when the model began to be opened; unset: ready_s is 0
};

// Tests the running model with its own thread count. Errors: kInvalidArgument where the context is too small.
Result<std::vector<BenchRow>> bench(RunningModel& running, const BenchOptions& options);

}  // namespace berth::engine
