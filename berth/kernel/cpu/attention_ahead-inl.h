// kernel/cpu/attention_ahead-inl.h — attention asks for memory before it needs it, so that memory is never idle.
//
// Keys and values are read once and a step is as long as that takes; so one thing comes in while another is worked on:
// the scores' loop asks for the block's values (and for its own keys a little ahead, into the first level), the weights
// and the values' loop for the keys of the block that comes next. docs/kernel_figures.md has what was tried.
//
// Start reading at: Ahead.
#pragma once

#include <algorithm>
#include <cstdint>

#include "berth/kernel/cpu/attention_tile-inl.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

constexpr int64_t kKeysAhead = 8;  // channels of 32 keys
BERTH_MATH void prefetch(const std::byte* p) { __builtin_prefetch(p, 0, 2); }
BERTH_MATH void prefetch_near(const std::byte* p) { __builtin_prefetch(p, 0, 3); }

// Memory that will be read soon, asked for line by line in four streams, a quarter of it each: one stream does not keep
// memory busy. Up to four lines at the end are left to whoever reads them. Two instructions a line: more showed.
class Ahead {
 public:
  Ahead(const std::byte* begin, int64_t bytes) : at_(begin), quarter_(bytes / 256 * 64), left_(bytes / 256) {}
  // The next line of each stream, `times`.
  BERTH_MATH void ask(int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      if (left_ <= 0) return;
      for (int64_t j = 0; j < 4; ++j) prefetch(at_ + j * quarter_);
      at_ += 64;
      --left_;
    }
  }
  int64_t left() const { return left_; }

 private:
  const std::byte* at_;
  int64_t quarter_, left_;
};

// Whether the scores' loop asks for values at channel d. Where there are many queries the weights take long too: a
// quarter of the values is left to ask for then.
template <int kN>
BERTH_MATH bool asks_now(int64_t d) {
  return kN < 4 || d % 16 != 12;
}

// The keys of the block of the tile that begins at position `begin`.
Ahead keys_of(const Tile& tile, int64_t begin) {
  const KvView& cache = tile.job->cache;
  const int64_t bytes = cache.head_dim * (cache.dtype == DType::kF32 ? 4 : 2);  // of a key
  const int64_t seen = std::min(tile.position(tile.count - 1) + 1 - begin, kAttentionBlock);
  return {cache.k + (tile.kv_head * cache.capacity + begin % cache.capacity) * bytes, (seen + 31) / 32 * 32 * bytes};
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
