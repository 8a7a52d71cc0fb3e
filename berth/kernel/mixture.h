// kernel/mixture.h — mixture of experts: which experts a row goes to, and the weighted sum of what they give
// (numerics.md 2).
//
// Start reading at: RouterOptions.
#pragma once

#include <cstdint>

#include "berth/kernel/context.h"

namespace berth::kernel {

enum class RouterKind {
  kSoftmaxThenTopK,  // weights: the chosen of a softmax over all
  kTopKThenSoftmax,  // weights: a softmax over the chosen
  kSigmoid,          // weights: the chosen sigmoids
};

inline constexpr int32_t kMaxChosenExperts = 1024;  // of one row

struct RouterOptions {
  RouterKind kind = RouterKind::kSoftmaxThenTopK;
  int32_t experts = 0, chosen = 0;
  bool renormalize = false;                  // weights are divided by their sum
  bool choose_by_logits = false;             // kSigmoid: the choice is made before the sigmoid (Llama 4)
  int32_t groups = 0, groups_chosen = 0;     // > 0: experts of the best groups only; a group counts its two best
  const float* selection_bias = nullptr;     // [experts]: added for the choice, not to the weights
  const float* expert_scale = nullptr;       // [experts]: multiplies the finished weights
};

// For every row: `chosen` expert ids in ascending order and their weights. logits: [rows, experts], overwritten.
// The choice: largest first, the lower index where equal. Sums over the chosen: plain adds, ascending id.
void route(const Context& context, const RouterOptions& options, float* logits, int64_t rows, int32_t* ids,
           float* weights);

// o[row_of[i]] = fma(weights[i], y[i], o[row_of[i]]) for i = 0 .. count-1 in order; weights null: 1 (a plain add).
void accumulate_rows(const Context& context, const float* y, int64_t y_stride, const int32_t* row_of,
                     const float* weights, int64_t count, int64_t n, float* o, int64_t o_stride);

}  // namespace berth::kernel
