// plan/explain/solve.h — how far one can go: the longest context, the least memory, the most sequences, the fewest
// devices.
//
// Each answer is proved by a plan at it and by the refusal one step beyond. Start reading at: solve.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "berth/base/json.h"
#include "berth/base/result.h"
#include "berth/plan/plan.h"
#include "berth/plan/strategy.h"

namespace berth::plan {

enum class Question { kMaxCtx, kMinVram, kMaxBatch, kMinDevices };
std::string_view question_name(Question question);  // "max-ctx"
Result<Question> parse_question(std::string_view text);

// Both set one quantity: the context in tokens, one equal budget of every accelerator in bytes, the batch in sequences,
// or how many of the accelerators (the first ones) may be used. Errors other than kDoesNotFit end the search.
struct Planner {
  std::function<Result<bool>(int64_t value)> exists;                 // asked often
  std::function<Result<Plan>(int64_t value, Explain explain)> plan;  // asked at the answer and one step beyond
};

struct Solution {
  Question question = Question::kMaxCtx;
  int64_t answer = 0;
  std::string unit;  // "tokens", "bytes", "sequences", "accelerators"
  bool at_limit =
      false;  // the answer is the end of what was asked (the model's longest context..): nothing refuses beyond it
  std::string device, reason;  // what binds: from the refusal one step beyond
  std::optional<Plan> plan;    // at the answer
};

// `least` and `most` bound the answer; `step` is its grain (min-vram: 1 MiB). Errors: kDoesNotFit where nothing between
// them fits: the refusal of the easiest value, with remedies.
Result<Solution> solve(Question question, int64_t least, int64_t most, int64_t step, const Planner& planner);

std::string solution_text(const Solution& solution);
void write_solution(const Solution& solution, JsonWriter& out);

}  // namespace berth::plan
