// plan/strategies/compat_jsonl.h — `berth plan --from-jsonl FILE`: one line in, one line out, for checks in bulk.
//
// In:  a module tree (arch/tree_json.h, "format" optional) with "id", "library" ("transformers" | "accelerate"), "mode"
//      ("auto" | "balanced" | "balanced_low_0" | "sequential"), "max_memory" ({"0": bytes or "18GiB", "cpu": ..}), and
//      optionally "quant" ("none" | "nf4" | "fp4" | "int8": modules of class Linear4bit / Linear8bitLt are quantized),
//      "dtype" and "fallback_allocation" (accelerate), "offload_buffers".
// Out: {"id", "balanced", "adjusted", "map", "log", "error"}, those that are there, in the goldens' format; with
// "error"
//      also "message", in words. A line that cannot be read gives {"id", "error": {"stage": "read", "type": code},
//      "message"}.
//
// A line may name a published model in place of a tree: engine/plan_lines.h, which shares the answers' format.
//
// Start reading at: plan_compat_line.
#pragma once

#include <string>
#include <string_view>

#include "berth/base/json.h"
#include "berth/plan/strategies/compat_result.h"

namespace berth::plan::compat {

// A pure function; the answer has no line break. `readable`, where given, is set to false for a line that cannot be
// read.
std::string plan_compat_line(std::string_view line, bool* readable = nullptr);

// The answer to a line; `id` as it was given, invalid where it has none.
std::string answer_line(const CompatResult& result, JsonView id);
std::string unreadable_line(const Error& error, JsonView id);

}  // namespace berth::plan::compat
