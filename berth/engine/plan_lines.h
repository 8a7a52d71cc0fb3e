// engine/plan_lines.h — `berth plan --from-jsonl`: a line with a module tree and budgets in, the library's plan out.
//
// In place of a tree a line may have "model": what `berth plan` takes as MODEL. "dtype" is then --dtype (both libraries),
// "quant" "nf4", "fp4" or "int8" loads it in 4 or 8 bit, "none" or absent takes the checkpoint as it is, its own quantizer
// included. Lines of one model in a row open it once.
//
// One answer for each line that is not blank, in order (plan/strategies/compat_jsonl.h has both formats). A line that
// cannot be read is answered too, so that answers and lines stay in step.
//
// Start reading at: plan_lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "berth/base/result.h"

namespace berth::engine {

struct PlannedLines {
  int64_t lines = 0;       // that are not blank
  int64_t unreadable = 0;  // answered by {"error": {"stage": "read"}}
};

// `path` "-" is standard input; a pipe will do. `answer` gets each answer without its line break and may stop the whole
// by an error. Errors: kNotFound, kIo, kInvalidArgument (a gzip file), those of `answer`.
Result<PlannedLines> plan_lines(const std::string& path, const std::function<Status(const std::string&)>& answer);

}  // namespace berth::engine
