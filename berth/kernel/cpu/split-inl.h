// kernel/cpu/split-inl.h — cuts an operation's items over the pool, or runs them in the caller where they are few.
#pragma once

#include <algorithm>
#include <cstdint>

#include "berth/kernel/context.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

// A fork-join costs half a microsecond where the other threads wait for it, as they do within a token.
constexpr double kSmallestForkNs = 6000;
constexpr double kPieceNs = 3000;

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

// Items that ask for the memory of the item after them: each thread takes them one by one from its own stretch, then
// from what is left of the others'. f(claim, thread), where claim() is the next item, -1 at the end.
template <typename F>
void split_in_stretches(const Context& context, int64_t items, double item_ns, F&& f) {
  constexpr int kMost = 64;
  struct alignas(64) Stretch {
    int64_t next, end;
  };
  const int threads = context.pool == nullptr ? 1 : context.pool->size();
  const bool alone = threads == 1 || items < 2 || static_cast<double>(items) * item_ns < kSmallestForkNs;
  const int n = alone ? 1 : threads < kMost ? threads : kMost;
  Stretch stretches[kMost];
  for (int i = 0; i < n; ++i) stretches[i] = {items * i / n, items * (i + 1) / n};
  const auto work = [&](int64_t share, int thread) {
    int64_t tried = 0;
    f(
        [&]() -> int64_t {
          for (; tried < n; ++tried) {
            Stretch& s = stretches[(share + tried) % n];
            if (__atomic_load_n(&s.next, __ATOMIC_RELAXED) >= s.end) continue;
            const int64_t item = __atomic_fetch_add(&s.next, 1, __ATOMIC_RELAXED);
            if (item < s.end) return item;
          }
          return -1;
        },
        thread);
  };
  if (alone) return work(0, 0);
  context.pool->parallel_for(n, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t share = begin; share < end; ++share) work(share, thread);
  });
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
