// plan/strategies/fill.h — how full a device can be at all, given the sizes of what may be put there.
//
// Layers come in few sizes, so a budget is rarely used to the last byte: 10 GiB hold seven units of 1.3 GiB and no
// more. The sums that some subset of units reaches are few as well; a budget rounded down to the next of them bounds
// what the budget is worth. Any superset of the units gives a valid (weaker) bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace berth::plan {

// Every sum of one of `sums` (ascending, each once) and 0 to `count` times `size`, up to `most`: ascending, each once.
// More than `limit` of them are not listed: then empty.
std::vector<int64_t> with_multiples(const std::vector<int64_t>& sums, int64_t size, int64_t count, int64_t most,
                                    size_t limit);

class Fill {
 public:
  Fill() = default;  // every sum is reachable
  // Sizes with how often each may be used. Where the sums are too many to list: every sum counts as reachable.
  static Fill make(const std::map<int64_t, int64_t>& sizes, int64_t budget);

  // The largest reachable sum that is at most `bytes`; `bytes` itself where sums are not listed.
  int64_t floor(int64_t bytes) const;

 private:
  std::vector<int64_t> sums_;  // ascending, beginning with 0; empty: all
};

}  // namespace berth::plan
