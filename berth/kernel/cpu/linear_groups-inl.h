// kernel/cpu/linear_groups-inl.h — more inputs than a loop's sums have room for, in equal groups of `most` at most. For
// cpu/linear_*.
#pragma once

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

// A band of rows stays in the second-level cache while all groups pass, so that inputs too many for that cache come
// from beyond it once per band.
inline void by_groups(const RowsTask& t, int64_t most, RowsFn rows_of_group) {
  constexpr int64_t kBand = 8;  // quads
  const int64_t groups = groups_of(t.m, most);
  if (groups == 1) return rows_of_group(t);
  for (int64_t band = t.quad_begin; band < t.quad_end; band += kBand) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = t.m * g / groups;
      RowsTask group = t;
      group.quad_begin = band;
      group.quad_end = band + kBand < t.quad_end ? band + kBand : t.quad_end;
      group.x = t.x + first * t.x_bytes;
      group.y = t.y + first * t.y_stride;
      group.m = t.m * (g + 1) / groups - first;
      rows_of_group(group);
    }
  }
}

}  // namespace
}  // namespace berth::kernel::cpu
