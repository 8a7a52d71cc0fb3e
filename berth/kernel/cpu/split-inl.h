// kernel/cpu/split-inl.h — cuts an operation's items over the pool, or runs them in the caller where they are few.
#pragma once

#include <algorithm>
#include <cstdint>

#include "berth/kernel/context.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

// A fork-join costs one to two microseconds; a piece should take five.
constexpr double kSmallestForkNs = 15000;
constexpr double kPieceNs = 6000;

// f(begin, end, thread) over [0, items), each of about `item_ns`.
template <typename F>
void split(const Context& context, int64_t items, double item_ns, F&& f) {
  if (context.pool == nullptr || context.pool->size() == 1 || items < 2 ||
      static_cast<double>(items) * item_ns < kSmallestForkNs) {
    f(int64_t{0}, items, 0);
    return;
  }
  const auto grain = static_cast<int64_t>(kPieceNs / item_ns);
  context.pool->parallel_for(items, std::max<int64_t>(grain, 1), f);
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
