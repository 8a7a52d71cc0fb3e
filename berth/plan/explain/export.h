// plan/explain/export.h — a plan in the words of other engines, ready to paste. What they cannot express is said in
// notes.
//
// Non-goals: making the plan right for them (--target transformers | llama.cpp plans with their units and costs).
// Start reading at: export_plan.
#pragma once

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
// Layers of each accelerator, in their order (--tensor-split, pipeline stages); the head counts as one where
// `with_head`.
std::vector<int> layers_by_accelerator(const Plan& plan, bool with_head);

}  // namespace berth::plan
