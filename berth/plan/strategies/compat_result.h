// plan/strategies/compat_result.h — what a compat strategy gives back: the library's budgets, map, messages, or its
// error.
//
// Start reading at: CompatResult.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "berth/base/json.h"
#include "berth/plan/device_map.h"
#include "berth/plan/strategies/compat_infer.h"
#include "berth/plan/strategies/compat_memory.h"

namespace berth::plan::compat {

// Where a library stopped.
enum class Stage {
  kBalance,   // reading max_memory, lowering it
  kPlan,      // the loop
  kValidate,  // bitsandbytes refuses the finished map (which is there)
};
std::string_view stage_name(Stage stage);  // "balance"...

struct CompatError {
  Stage stage;
  Raised raised;
};

// What the library cannot divide: a block, a module without children, or a tensor of its own; with the bytes it counts.
struct CompatUnit {
  std::string path;
  bool is_block = false;
  std::optional<DeviceName> device;  // nothing: no entry of the map covers it
  Number bytes;
};

struct CompatResult {
  Library library = Library::kTransformers;
  std::optional<Budgets> balanced;  // after get_balanced_memory; Transformers also has them for "sequential"
  std::optional<Budgets> adjusted;  // after the quantizer's discount; only with a quantizer
  std::optional<DeviceMap> map;
  std::vector<LogFact> log;
  std::optional<CompatError> error;
  Number total;  // the model as the library counts it
  std::vector<std::pair<DeviceName, Number>>
      counted;  // the same by device of `map`; tensors without a device are left out

  // In definition order; a unit whose tensors the map puts on several devices is listed as those tensors.
  std::vector<CompatUnit> units;

  // The budgets the loop filled: adjusted, else balanced, else (accelerate, sequential) those given.
  Budgets filled;
};

// Members "balanced", "adjusted", "map", "log", "error" in the goldens' format, those that are there, into an open
// object.
void write_result(const CompatResult& result, JsonWriter& out);
// One plain sentence for a fact the library logged.
std::string log_fact_text(const LogFact& fact, Library library);

// Fills map, log, counted and units from the loop, or the error. Used by both strategies.
void run_loop(const Model& model, const InferOptions& options, CompatResult& result);
// The same for a map that was given: the libraries take it as it is.
void take_map(const Model& model, DeviceMap map, CompatResult& result);

}  // namespace berth::plan::compat
