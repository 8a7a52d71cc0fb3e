// plan/strategies/fill.cc — see fill.h.
#include "berth/plan/strategies/fill.h"

#include <algorithm>

namespace berth::plan {
namespace {
constexpr size_t kMostSums = 20000;
}

std::vector<int64_t> with_multiples(const std::vector<int64_t>& sums, int64_t size, int64_t count, int64_t most,
                                    size_t limit) {
  // Sums that differ by multiples of the size lie on one ladder; each covers some of its rungs.
  std::vector<std::pair<int64_t, int64_t>> ladders;  // remainder, sum
  ladders.reserve(sums.size());
  for (const int64_t sum : sums)
    if (sum <= most) ladders.emplace_back(sum % size, sum);
  std::sort(ladders.begin(), ladders.end());
  std::vector<int64_t> out;
  out.reserve(std::min(limit + 1, sums.size() * 4));
  for (size_t k = 0; k < ladders.size();) {
    const int64_t ladder = ladders[k].first;
    for (int64_t next = 0; k < ladders.size() && ladders[k].first == ladder; ++k) {
      const int64_t sum = ladders[k].second;
      const int64_t last = sum + std::min(count, (most - sum) / size) * size;
      for (next = std::max(next, sum); next <= last; next += size) {
        if (out.size() == limit) return {};
        out.push_back(next);
      }
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

Fill Fill::make(const std::map<int64_t, int64_t>& sizes, int64_t budget) {
  std::vector<int64_t> sums{0};
  for (auto it = sizes.rbegin(); it != sizes.rend(); ++it) {
    const auto& [size, count] = *it;
    if (size <= 0) continue;
    size_t tried = 0;  // with repetitions
    for (const int64_t sum : sums)
      if (size <= budget - sum) tried += static_cast<size_t>(std::min(count, (budget - sum) / size)) + 1;
    if (tried > 4 * kMostSums) return Fill{};
    sums = with_multiples(sums, size, count, budget, kMostSums);
    if (sums.empty()) return Fill{};
  }
  Fill fill;
  fill.sums_ = std::move(sums);
  return fill;
}

int64_t Fill::floor(int64_t bytes) const {
  if (sums_.empty()) return bytes;
  const auto above = std::upper_bound(sums_.begin(), sums_.end(), bytes);
  return above == sums_.begin() ? 0 : *std::prev(above);
}

}  // namespace berth::plan
