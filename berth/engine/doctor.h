// engine/doctor.h — what this machine has, and what is wrong with it.
#pragma once

#include <string>
#include <vector>

#include "berth/engine/options.h"
#include "berth/engine/planning.h"

namespace berth::engine {

struct Finding {
  enum class Level { kGood, kNote, kBad } level = Level::kGood;
  std::string what;    // "instruction set avx512"
  std::string detail;  // one sentence; for kBad what to do
};

// Looks at CPU kernels, memory and its limits, CUDA, caches, and whether the pool is quick; takes a second or two.
std::vector<Finding> doctor(const Options& options);

// The machine as planning sees it; `measure`: its rates are measured and kept (berth devices).
Result<machine::Machine> devices(const Options& options, bool measure, std::vector<std::string>& notes);

}  // namespace berth::engine
