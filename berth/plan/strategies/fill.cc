// plan/strategies/fill.cc — see fill.h.
#include "berth/plan/strategies/fill.h"

#include <algorithm>

namespace berth::plan {
namespace {
constexpr size_t kMostSums = 20000;
}

Fill Fill::make(const std::map<int64_t, int64_t>& sizes, int64_t budget) {
  Fill fill;
  std::vector<int64_t> sums{0}, next;
  for (auto it = sizes.rbegin(); it != sizes.rend(); ++it) {
    const auto& [size, count] = *it;
    if (size <= 0) continue;
    next.clear();
    for (const int64_t sum : sums)
      for (int64_t k = 0; k <= count && size <= (budget - sum) / std::max<int64_t>(k, 1); ++k) {
        next.push_back(sum + k * size);
        if (next.size() > 4 * kMostSums) return Fill{};
      }
    // A sum to which not even one more fits stays as it is.
    for (const int64_t sum : sums)
      if (size > budget - sum) next.push_back(sum);
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    if (next.size() > kMostSums) return Fill{};
    sums.swap(next);
  }
  fill.sums_ = std::move(sums);
  return fill;
}

int64_t Fill::floor(int64_t bytes) const {
  if (sums_.empty()) return bytes;
  const auto above = std::upper_bound(sums_.begin(), sums_.end(), bytes);
  return above == sums_.begin() ? 0 : *std::prev(above);
}

}  // namespace berth::plan
