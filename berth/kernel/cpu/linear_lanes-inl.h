// kernel/cpu/linear_lanes-inl.h — the order of words in the gemm tiles and panels. For cpu/linear_* and gemm_* files.
#pragma once

#include <cstdint>
#include <type_traits>

namespace berth::kernel::cpu {
namespace {

// Lanes (8 or 32) in bit-reversed order; a lane's words lane, lane + lanes, ... side by side.
template <int kLanes>
struct LaneOrder {
  int64_t words;
  int32_t first[kLanes + 1];  // position of the first word of the i-th lane taken; first[kLanes] = words
  int32_t start[kLanes];      // of each lane

  uint8_t taken_as[kLanes];  // place of each lane

  explicit LaneOrder(int64_t word_count) : words(word_count) {
    int64_t at = 0;
    for (int i = 0; i < kLanes; ++i) {
      const int l = lane(i);
      taken_as[l] = static_cast<uint8_t>(i);
      first[i] = start[l] = static_cast<int32_t>(at);
      at += (words - l + kLanes - 1) / kLanes;
    }
    first[kLanes] = static_cast<int32_t>(at);
  }
  static int lane(int i) {
    int reversed = 0;
    for (int bit = 1; bit < kLanes; bit *= 2) reversed = reversed * 2 + (i & bit ? 1 : 0);
    return reversed;
  }
  int64_t gap(int64_t word) const { return taken_as[static_cast<uint64_t>(word) % kLanes]; }
  int64_t position(int64_t word) const {
    const uint64_t w = static_cast<uint64_t>(word);
    return start[w % kLanes] + static_cast<int64_t>(w / kLanes);
  }
};

// f with a tile's number of inputs as a constant.
template <typename F>
inline __attribute__((always_inline)) void with_tile(int tile, F&& f) {
  switch (tile) {
    case 6:
      return f(std::integral_constant<int, 6>{});
    case 5:
      return f(std::integral_constant<int, 5>{});
    default:
      return f(std::integral_constant<int, 4>{});
  }
}

// How many finished sums the i-th lane is added to: the trailing ones of i.
inline int merges(int i) {
  int n = 0;
  while ((i >> n) & 1) ++n;
  return n;
}

}  // namespace
}  // namespace berth::kernel::cpu
