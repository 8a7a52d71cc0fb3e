// generate/sampler.cc — see sampler.h.
#include "berth/generate/sampler.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "berth/base/check.h"
#include "berth/generate/philox.h"
#include "berth/kernel/elementwise.h"

namespace berth::generate {

Status validate(const SamplingOptions& o) {
  const auto bad = [](std::string_view name, std::string_view range, double found) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} must be {}, not {}", name, range, found));
  };
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature)) return bad("temperature", "a number >= 0", o.temperature);
  if (o.top_k < 0) return bad("top_k", "an integer >= 0", static_cast<double>(o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1)) return bad("top_p", "above 0 and at most 1", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) return bad("min_p", "between 0 and 1", o.min_p);
  if (!(o.repetition_penalty > 0) || !std::isfinite(o.repetition_penalty))
    return bad("repetition_penalty", "a number > 0", o.repetition_penalty);
  return {};
}

int32_t Sampler::choose(std::span<const float> logits, std::span<const int32_t> history, uint32_t sequence,
                        uint64_t position) {
  std::span<const float> scores = logits;
  if (options_.repetition_penalty != 1) {
    scores_.assign(logits.begin(), logits.end());
    seen_.assign(history.begin(), history.end());
    std::sort(seen_.begin(), seen_.end());
    seen_.erase(std::unique(seen_.begin(), seen_.end()), seen_.end());
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    for (const int32_t id : seen_) {
      if (id < 0 || static_cast<size_t>(id) >= scores_.size()) continue;
      float& s = scores_[static_cast<size_t>(id)];
      s = s < 0 ? s * penalty : s / penalty;
    }
    scores = scores_;
  }
  if (!options_.sample || options_.temperature == 0) {
    const int64_t best = kernel::argmax(scores.data(), static_cast<int64_t>(scores.size()));
    CHECK(best >= 0);
    return static_cast<int32_t>(best);
  }
  const auto temperature = static_cast<float>(options_.temperature);
  candidates_.resize(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) candidates_[i] = {scores[i] / temperature, static_cast<int32_t>(i)};
  const auto first = [](const Candidate& a, const Candidate& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; };
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < candidates_.size()) {
    const auto kth = candidates_.begin() + options_.top_k - 1;
    std::nth_element(candidates_.begin(), kth, candidates_.end(), first);
    const float least = kth->score;  // ties with the k-th stay, as in Transformers
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(), [&](const Candidate& c) { return c.score < least; }),
                      candidates_.end());
  }
  std::sort(candidates_.begin(), candidates_.end(), first);
  return draw(sequence, position);
}

int32_t Sampler::draw(uint32_t sequence, uint64_t position) {
  weights_.resize(candidates_.size());
  const double top = candidates_.front().score;
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) sum += weights_[i] = std::exp(static_cast<double>(candidates_[i].score) - top);
  size_t kept = candidates_.size();
  if (options_.top_p < 1) {  // drop the tail whose probabilities, summed from the least, stay within 1 - top_p
    double tail = 0;
    while (kept > 1) {
      tail += weights_[kept - 1];
      if (tail > (1 - options_.top_p) * sum) break;
      --kept;
    }
  }
  if (options_.min_p > 0)
    while (kept > 1 && weights_[kept - 1] < options_.min_p * weights_[0]) --kept;
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += weights_[i];
  double left = philox_uniform(options_.seed, sequence, position) * total;
  for (size_t i = 0; i < kept; ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[kept - 1].id;
}

}  // namespace berth::generate
