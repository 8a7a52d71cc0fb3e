// engine/load_rates.h — how fast a checkpoint is loaded, beside the raw rates at which this machine reads its files.
//
// Raw: every file of the checkpoint into buffers that are used again, by read(), by direct I/O and through a mapping,
// with one thread, as many as the model runs with, and twice as many; cold also with as many as read ahead of a load.
// Cold: the files' pages are dropped from the page cache before each pass (what a host keeps below a virtual machine
// cannot be dropped from inside). The limit is the best of them.
//
// Berth: load_model() with the options given, cold and warm; the first time into memory that nobody has touched.
// Host memory beyond the weights is the growth of resident memory up to its peak, less the bytes that the arenas count
// for weights (mapped ones are counted there).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "berth/base/log.h"
#include "berth/base/result.h"
#include "berth/engine/options.h"

namespace berth::engine {

struct LoadBenchOptions {
  int repeats = 3;
  bool cold = true;
};

struct LoadBenchRow {
  std::string what;  // "read", "direct", "mapped", "load"
  bool cold = false;
  int threads = 1;
  double seconds = 0;                 // the fastest repeat
  double gb_per_s = 0;                // of the checkpoint's files, 1e9
  double share = 0;                   // of the best raw rate, cold or warm as this one; 0 for raw ones
  double first_seconds = 0;           // loads: the first, into fresh memory
  double cpu_seconds = 0;             // loads: of all threads, the least of the repeats
  uint64_t quantized_bytes = 0;       // loads: of the files, what was quantized on the way
  uint64_t weights_bytes = 0;         // loads: counted by the arenas,
  uint64_t mapped_bytes = 0;          // of which used from the mapped files
  uint64_t beyond_weights_bytes = 0;  // loads: of host memory, at the peak of the first
};

// Errors: those of opening, planning and loading the model; kIo.
Result<std::vector<LoadBenchRow>> load_bench(const std::string& model, const Options& options,
                                             const LoadBenchOptions& bench, const Log& log);

std::string load_bench_text(const std::vector<LoadBenchRow>& rows);

}  // namespace berth::engine
