// kernel/cpu/linear_lanes-inl.h — the order of words in the gemm tiles and panels. For cpu/linear_* and gemm_* files.
#pragma once

#include <cstdint>

namespace berth::kernel::cpu {
namespace {

// Lanes (8 or 32) in bit-reversed order; a lane's words lane, lane + lanes, ... side by side.
struct LaneOrder {
  int64_t words;
  int lanes;
  int32_t first[33];     // position of the first word of the i-th lane taken; first[lanes] = words
  uint8_t taken_as[32];  // of each lane

  LaneOrder(int64_t word_count, int lane_count) : words(word_count), lanes(lane_count) {
    int64_t at = 0;
    for (int i = 0; i < lanes; ++i) {
      const int l = lane(i);
      taken_as[l] = static_cast<uint8_t>(i);
      first[i] = static_cast<int32_t>(at);
      at += (words - l + lanes - 1) / lanes;
    }
    first[lanes] = static_cast<int32_t>(at);
  }
  int lane(int i) const {
    int reversed = 0;
    for (int bit = 1; bit < lanes; bit *= 2) reversed = reversed * 2 + (i & bit ? 1 : 0);
    return reversed;
  }
  int64_t position(int64_t word) const { return first[taken_as[word % lanes]] + word / lanes; }
};

// How many finished sums the i-th lane is added to: the trailing ones of i.
inline int merges(int i) {
  int n = 0;
  while ((i >> n) & 1) ++n;
  return n;
}

}  // namespace
}  // namespace berth::kernel::cpu
