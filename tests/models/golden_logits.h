// tests/models/golden_logits.h — a model against what Transformers computed with a golden folder's weights.
//
// Logits of every prompt position and of the greedy continuation; tolerance: numerics.md 6.
#pragma once

#include <string>

#include "placed_model.h"

namespace berth::testing {

// Context that the goldens' prompts and continuations need.
sizing::RunShape golden_shape();

struct GoldenDifference {
  double largest = 0;  // |logit|
  double prompt = 0, steps = 0;
  double share() const { return largest > 0 ? std::max(prompt, steps) / largest : 0; }
};

// Feeds the prompt of `folder`, then its greedy tokens; fails the test where a token or a logit differs.
GoldenDifference expect_golden_logits(model::Model& model, const std::string& folder);

}  // namespace berth::testing
