// kernel/ref/mixture.cc — routing and the weighted sum of experts, numerics.md 2.
#include "berth/kernel/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "berth/kernel/family_operations.h"
#include "berth/kernel/math.h"
#include "berth/kernel/ref/lanes.h"

namespace berth::kernel::BERTH_REF {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What the choice looks at: value(e) of expert e, or minus infinity where its group was not chosen.
class Choice {
 public:
  Choice(const RouterOptions& options, const float* values) : o_(options), values_(values) {}

  float value(int32_t e) const { return o_.selection_bias == nullptr ? values_[e] : values_[e] + o_.selection_bias[e]; }

  // The sum of a group's two best values.
  float group_value(int32_t group) const {
    const int32_t size = o_.experts / o_.groups;
    float best = kMinusInfinity, second = kMinusInfinity;
    for (int32_t e = group * size; e < (group + 1) * size; ++e) {
      const float v = value(e);
      if (v > best) {
        second = best;
        best = v;
      } else if (v > second) {
        second = v;
      }
    }
    return size == 1 ? best : best + second;
  }

  // How many groups come before this one: larger first, then the lower index.
  bool group_chosen(int32_t group) const {
    const float own = group_value(group);
    int32_t before = 0;
    for (int32_t g = 0; g < o_.groups; ++g) {
      const float other = group_value(g);
      if (other > own || (other == own && g < group)) ++before;
    }
    return before < o_.groups_chosen;
  }

 private:
  const RouterOptions& o_;
  const float* values_;
};

// Puts the `chosen` best experts into ids, ascending.
void choose(const RouterOptions& options, const float* values, int32_t* ids) {
  const Choice choice(options, values);
  const int32_t group_size = options.groups > 0 ? options.experts / options.groups : options.experts;
  int32_t count = 0;
  float kept[kMaxChosenExperts];  // values of ids[0 .. count), largest first
  const int32_t wanted = options.chosen;
  for (int32_t first = 0; first < options.experts; first += group_size) {
    if (options.groups > 0 && !choice.group_chosen(first / group_size)) continue;
    for (int32_t e = first; e < first + group_size; ++e) {
      const float v = choice.value(e);
      if (count == wanted && !(v > kept[count - 1])) continue;
      int32_t at = count < wanted ? count++ : count - 1;
      for (; at > 0 && v > kept[at - 1]; --at) {
        kept[at] = kept[at - 1];
        ids[at] = ids[at - 1];
      }
      kept[at] = v;
      ids[at] = e;
    }
  }
  for (int32_t e = 0; count < wanted && e < options.experts; ++e)
    if (std::find(ids, ids + count, e) == ids + count) ids[count++] = e;  // fewer in the chosen groups than wanted
  std::sort(ids, ids + wanted);
}

}  // namespace

void route(const RouterOptions& options, float* logits, int64_t rows, int32_t* ids, float* weights) {
  const int64_t n = options.experts;
  const int32_t k = options.chosen;
  for (int64_t r = 0; r < rows; ++r, logits += n, ids += k, weights += k) {
    if (options.kind == RouterKind::kTopKThenSoftmax || options.choose_by_logits) choose(options, logits, ids);
    if (options.kind == RouterKind::kSoftmaxThenTopK) {
      const float m = *std::max_element(logits, logits + n);
      for (int64_t i = 0; i < n; ++i) logits[i] = exp_f32(logits[i] - m);
      const float sum = lane_sum(n, [&](int64_t i) { return logits[i]; });
      for (int64_t i = 0; i < n; ++i) logits[i] = logits[i] / sum;
    }
    if (options.kind == RouterKind::kSigmoid)
      for (int64_t i = 0; i < n; ++i) logits[i] = sigmoid_f32(logits[i]);
    if (options.kind != RouterKind::kTopKThenSoftmax && !options.choose_by_logits) choose(options, logits, ids);
    for (int32_t i = 0; i < k; ++i) weights[i] = logits[ids[i]];
    const bool softmax = options.kind == RouterKind::kTopKThenSoftmax;
    if (softmax) {
      const float m = *std::max_element(weights, weights + k);
      for (int32_t i = 0; i < k; ++i) weights[i] = exp_f32(weights[i] - m);
    }
    if (softmax || options.renormalize) {
      float sum = 0;
      for (int32_t i = 0; i < k; ++i) sum = sum + weights[i];
      if (options.kind == RouterKind::kSigmoid) sum = sum + 1e-20f;
      for (int32_t i = 0; i < k; ++i) weights[i] = weights[i] / sum;
    }
    if (options.expert_scale != nullptr)
      for (int32_t i = 0; i < k; ++i) weights[i] = weights[i] * options.expert_scale[ids[i]];
  }
}

void accumulate_rows(const float* y, int64_t y_stride, const int32_t* row_of, const float* weights, int64_t count,
                     int64_t n, float* o, int64_t o_stride) {
  for (int64_t i = 0; i < count; ++i) {
    float* to = o + row_of[i] * o_stride;
    const float* from = y + i * y_stride;
    if (weights == nullptr) {
      for (int64_t j = 0; j < n; ++j) to[j] = to[j] + from[j];
    } else {
      const float w = weights[i];
      for (int64_t j = 0; j < n; ++j) to[j] = std::fma(w, from[j], to[j]);
    }
  }
}

}  // namespace berth::kernel::BERTH_REF
