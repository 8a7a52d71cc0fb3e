// kernel/cpu/attention_tile-inl.h — how attention's work is cut into tiles, what a query sees, and a thread's scratch.
//
// A *group* is the query heads that read one kv head; a *tile* is up to 32 queries (row x head of the group) of one job
// and kv head, which read each block of 128 keys together. Within a tile, a *batch* is the few queries that share
// registers.
//
// Start reading at: Tile, then Tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "berth/kernel/attention.h"
#include "berth/kernel/cpu/lanes-inl.h"
#include "berth/quant/scratch.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

constexpr int64_t kTile = quant::kAttentionTileQueries;
constexpr float kNothingSeen = -1;  // no sum of weights is negative

// Queries that share registers: 8 (6) x 2 packs of sums leave room for the operands in 32 (16) registers.
constexpr int kQueries = F::kRegisters >= 32 ? 8 : 6;

struct Range {
  int64_t begin, end;
};

// The keys that the query at `position` sees.
Range visible(const AttentionOptions& options, int64_t position) {
  int64_t begin = 0;
  if (options.window > 0) begin = std::max(begin, position - options.window + 1);
  if (options.chunk > 0) begin = std::max(begin, position / options.chunk * options.chunk);
  return {begin, position + 1};
}

// Queries [first, first + count) of one job and kv head: query i is row i / group, head i % group of the group.
struct Tile {
  const AttentionJob* job;
  int64_t kv_head, first, count, group;
  int64_t row(int64_t i) const { return (first + i) / group; }
  int64_t head(int64_t i) const { return kv_head * group + (first + i) % group; }
  int64_t position(int64_t i) const { return job->position + row(i); }
  const float* q(int64_t i) const { return job->q + row(i) * job->q_stride + head(i) * job->cache.head_dim; }
  float* out(int64_t i) const { return job->out + row(i) * job->out_stride + head(i) * job->cache.v_head_dim; }
};

// One thread's scratch.
struct Workspace {
  float* q;        // [kTile / kQueries][head_dim][queries of the batch]
  float* scores;   // [kTile][128]
  float* o_block;  // [kTile][v_padded]
  float* o;        // [kTile][v_padded]
  float* m_block;  // [kTile] each
  float* l_block;
  float* m;
  float* l;
};

struct Shape {
  int64_t head_dim, v_head_dim, v_padded;
  explicit Shape(const KvView& cache)
      : head_dim(cache.head_dim), v_head_dim(cache.v_head_dim), v_padded((cache.v_head_dim + 15) / 16 * 16) {}
  int64_t workspace_floats() const { return (kTile * (head_dim + 128 + 2 * v_padded + 4) + 63) / 16 * 16; }
};

Workspace workspace(float* scratch, const Shape& shape, int thread) {
  float* at = scratch + thread * shape.workspace_floats();
  Workspace w;
  w.scores = at;
  w.o_block = w.scores + kTile * 128;
  w.o = w.o_block + kTile * shape.v_padded;
  w.m_block = w.o + kTile * shape.v_padded;
  w.l_block = w.m_block + kTile;
  w.m = w.l_block + kTile;
  w.l = w.m + kTile;
  w.q = w.l + kTile;
  return w;
}

// Lays the queries of a tile out as [batch][head_dim][queries of the batch].
void pack_queries(const Tile& tile, const Shape& shape, float* packed) {
  for (int64_t begin = 0; begin < tile.count; begin += kQueries) {
    const int64_t n = std::min<int64_t>(kQueries, tile.count - begin);
    float* batch = packed + begin * shape.head_dim;
    for (int64_t i = 0; i < n; ++i) {
      const float* q = tile.q(begin + i);
      for (int64_t d = 0; d < shape.head_dim; ++d) batch[d * n + i] = q[d];
    }
  }
}

// Calls f.operator()<kN>() for n = kN in 1..kQueries.
template <int kN = kQueries, typename Callable>
BERTH_MATH void with_count(int64_t n, Callable&& f) {
  if constexpr (kN > 1) {
    if (n < kN) return with_count<kN - 1>(n, f);
  }
  f.template operator()<kN>();
}

// First block of the first query and end of the last one's.
Range blocks_of(const AttentionOptions& options, const Tile& tile) {
  const int64_t first = visible(options, tile.position(0)).begin / kAttentionBlock;
  return {first, tile.position(tile.count - 1) / kAttentionBlock + 1};
}

// Tiles of all jobs, numbered.
struct Tiles {
  std::span<const AttentionJob> jobs;
  int64_t heads;
  static int64_t per_head(const AttentionJob& job, int64_t heads) {
    return (job.rows * (heads / job.cache.kv_heads) + kTile - 1) / kTile;
  }
  int64_t count() const {
    int64_t n = 0;
    for (const AttentionJob& job : jobs) n += job.cache.kv_heads * per_head(job, heads);
    return n;
  }
  Tile at(int64_t index) const {
    for (const AttentionJob& job : jobs) {
      const int64_t per = per_head(job, heads), n = job.cache.kv_heads * per;
      if (index < n) {
        const int64_t group = heads / job.cache.kv_heads;
        const int64_t first = index / job.cache.kv_heads * kTile;
        return {&job, index % job.cache.kv_heads, first, std::min(kTile, job.rows * group - first), group};
      }
      index -= n;
    }
    return {};
  }
};

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
