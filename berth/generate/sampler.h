// generate/sampler.h — from a row of logits to the next token: penalties, warpers, greedy or sampled choice.
//
// The order is Transformers': repetition penalty; then, sampling, temperature, top-k, top-p, min-p. Candidates are ordered
// by value, the lower id first where equal; sums are doubles; the random number depends on (seed, sequence, position)
// alone. Equal logits therefore give equal tokens on every machine.
//
// Start reading at: Sampler::choose.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/base/result.h"

namespace berth::generate {

struct SamplingOptions {
  bool sample = false;            // false: greedy
  double temperature = 1;         // > 0; 0 means greedy
  int64_t top_k = 0;              // 0: off
  double top_p = 1;               // (0, 1]
  double min_p = 0;               // [0, 1]
  double repetition_penalty = 1;  // > 0
  uint64_t seed = 0;
};

// kInvalidArgument naming the option, what it may be and what it was.
Status validate(const SamplingOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  // `logits`: [vocab], finite. `history`: the tokens so far, prompt included (repetition penalty).
  int32_t choose(std::span<const float> logits, std::span<const int32_t> history, uint32_t sequence, uint64_t position);

 private:
  struct Candidate {
    float score;
    int32_t id;
  };
  int32_t draw(uint32_t sequence, uint64_t position);
  SamplingOptions options_;
  std::vector<float> scores_;          // reused
  std::vector<Candidate> candidates_;  // reused
  std::vector<double> weights_;
  std::vector<int32_t> seen_;
};

}  // namespace berth::generate
