// plan/explain/export.h — a plan in the words of other engines, ready to paste. What they cannot express is said in
// notes.
//
// Non-goals: making the plan right for them (--target transformers | llama.cpp plans with their units and costs).
// Start reading at: export_plan.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"
#include "berth/plan/plan_json.h"

namespace berth::plan {

enum class ExportTarget { kTransformers, kAccelerate, kLlamaCpp, kVllm };
Result<ExportTarget> parse_export_target(std::string_view text);  // "transformers", "accelerate", "llama.cpp", "vllm"

struct Exported {
  std::string text;                // Python, or options of a command line
  std::vector<std::string> notes;  // for stderr: what is lost
};

Exported export_plan(const PlanDocument& document, ExportTarget target);

// Parts of it, for tests and for other front ends.
// device_map={..} as a Python literal, one entry a line.
std::string python_device_map(const DeviceMap& map, int indent);
// llama.cpp's --override-tensor rules: "PATTERN=BUFFER", first match wins.
std::vector<std::string> tensor_overrides(const Plan& plan, std::vector<std::string>& notes);
// Layers of each accelerator, in machine order (pipeline stages).
std::vector<int> layers_by_accelerator(const Plan& plan);

// How llama.cpp shares layers out: the first `layers[0]` to devices[0] and so on; its output layer goes to the last.
struct LlamaCppSplit {
  std::vector<int> devices;     // accelerator numbers, in the order in which the plan visits them (--device)
  std::vector<int> layers;      // for each (--tensor-split, with the output layer on the last)
  std::map<int32_t, int> home;  // by layer: where it lands, which is where its cache is
};
LlamaCppSplit llama_cpp_split(const Plan& plan);

}  // namespace berth::plan
