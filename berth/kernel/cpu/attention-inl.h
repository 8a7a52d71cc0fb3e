// kernel/cpu/attention-inl.h — attention over packs; ref/attention.cc is the definition.
//
// For every block of 128 keys of a tile of queries:
//
//   scores   attention_scores-inl.h
//   weights  attention_weights-inl.h
//   values   attention_values-inl.h
//   merge    attention_merge-inl.h, in block order
//
// Two plans. *By tile*: a task is a tile and walks its blocks. *By block* (few rows, long context, so few tiles): a
// task is one block of one tile, its m_B, l_B, o_B go to scratch and are merged in order when all are there.
//
// Start reading at: attention() at the end, then block_of_tile() in attention_block-inl.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "berth/kernel/attention.h"
#include "berth/kernel/cpu/attention_ahead-inl.h"
#include "berth/kernel/cpu/attention_block-inl.h"
#include "berth/kernel/cpu/attention_merge-inl.h"
#include "berth/kernel/cpu/attention_tile-inl.h"
#include "berth/kernel/cpu/lanes-inl.h"
#include "berth/kernel/cpu/split-inl.h"
#include "berth/kernel/cpu/targets.h"
#include "berth/quant/scratch.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

void run_tile(const AttentionOptions& options, const Tile& tile, const Shape& shape, const Workspace& w) {
  pack_queries(tile, shape, w.q);
  for (int64_t i = 0; i < tile.count; ++i) begin_query(shape.v_padded, &w.m[i], &w.l[i], w.o + i * shape.v_padded);
  const Range blocks = blocks_of(options, tile);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const Ahead next = b + 1 < blocks.end ? keys_of(tile, (b + 1) * kAttentionBlock) : Ahead(nullptr, 0);
    block_of_tile(options, tile, shape, b * kAttentionBlock, next, w);
    alignas(64) float new_m[kTile], al[kTile], be[kTile];
    for (int64_t i = 0; i < kTile; i += F::kLanes) max(F::load(w.m + i), F::load(w.m_block + i)).store(new_m + i);
    merge_weights(tile.count, w.m, w.m_block, new_m, al, be);
    for (int64_t i = 0; i < tile.count; ++i) {
      if (w.l_block[i] == kNothingSeen) continue;
      merge(al[i], be[i], w.l_block[i], w.o_block + i * shape.v_padded, shape.v_padded, &w.l[i],
            w.o + i * shape.v_padded);
      w.m[i] = new_m[i];
    }
  }
  for (int64_t i = 0; i < tile.count; ++i)
    end_query(options, tile, shape, i, &w.m[i], &w.l[i], w.o + i * shape.v_padded);
}

// A rough time of one block of one tile, to decide whether to fork.
double block_ns(const Shape& shape, int64_t queries) {
  return 128.0 * static_cast<double>(shape.head_dim + shape.v_head_dim) * (0.06 + 0.02 * static_cast<double>(queries)) +
         150.0 * static_cast<double>(queries);
}

// A query of a tile that goes by blocks: m and l at 0, 1; in the tile's first one, how many blocks of the wave are
// merged already, at 2; o from 16.
constexpr int64_t kMerged = 2, kSums = 16;

// Merges the block that `w` has the results of into the queries `to`, one a record.
void merge_block(const Tile& tile, const Shape& shape, const Workspace& w, float* to, int64_t record) {
  alignas(64) float old_m[kTile], new_m[kTile], al[kTile], be[kTile];
  for (int64_t i = 0; i < tile.count; ++i) old_m[i] = to[i * record];
  for (int64_t i = tile.count; i % F::kLanes != 0; ++i) old_m[i] = 0;
  for (int64_t i = 0; i < tile.count; i += F::kLanes) max(F::load(old_m + i), F::load(w.m_block + i)).store(new_m + i);
  merge_weights(tile.count, old_m, w.m_block, new_m, al, be);
  for (int64_t i = 0; i < tile.count; ++i) {
    if (w.l_block[i] == kNothingSeen) continue;
    float* const query = to + i * record;
    merge(al[i], be[i], w.l_block[i], w.o_block + i * shape.v_padded, shape.v_padded, query + 1, query + kSums);
    query[0] = new_m[i];
  }
}

// One tile by blocks, up to kAttentionPartialBlocks of them at a time. Whoever computes a wave's first block merges it
// and what it computes right after it at once; the results of the other blocks wait and are then merged in order.
void run_by_blocks(const Context& context, const AttentionOptions& options, const Tiles& tiles, const Shape& shape,
                   float* scratch, float* partials) {
  const int64_t record = shape.v_padded + kSums;
  for (int64_t t = 0; t < tiles.count();) {
    // As many tiles of this job as it has: all kv heads of one group of queries go together.
    const Tile first = tiles.at(t);
    const int64_t together = first.job->cache.kv_heads;
    const Range blocks = blocks_of(options, first);
    const int64_t queries = first.count * together;
    const int64_t wave_blocks = std::min(quant::kAttentionPartialBlocks, blocks.end - blocks.begin);
    float* merged = partials + queries * wave_blocks * record;
    for (int64_t i = 0; i < queries; ++i)
      begin_query(shape.v_padded, merged + i * record, merged + i * record + 1, merged + i * record + kSums);
    for (int64_t wave = blocks.begin; wave < blocks.end; wave += wave_blocks) {
      const int64_t n = std::min(wave_blocks, blocks.end - wave);
      split_in_stretches(context, n * together, block_ns(shape, first.count), [&](auto&& claim, int thread) {
        Workspace w = workspace(scratch, shape, thread);
        int64_t packed = -1, to_merge = -1;
        for (int64_t item = claim(); item >= 0; item = claim()) {
          const int64_t head = item / n, block = item % n, after = item + 1;
          const Tile tile = tiles.at(t + head);
          if (packed != head) pack_queries(tile, shape, w.q);
          packed = head;
          block_of_tile(options, tile, shape, (wave + block) * kAttentionBlock,
                        after < n * together ? keys_of(tiles.at(t + after / n), (wave + after % n) * kAttentionBlock)
                                             : Ahead(nullptr, 0),
                        w);
          float* const queries_of_head = merged + head * first.count * record;
          if (block == 0) to_merge = item;
          if (item == to_merge) {
            merge_block(tile, shape, w, queries_of_head, record);
            queries_of_head[kMerged] = static_cast<float>(block + 1);
            to_merge = block + 1 < n ? item + 1 : -1;
            continue;
          }
          for (int64_t i = 0; i < tile.count; ++i) {
            float* to = partials + ((head * first.count + i) * n + block) * record;
            to[0] = w.m_block[i];
            to[1] = w.l_block[i];
            for (int64_t d = 0; d < shape.v_padded; d += F::kLanes)
              F::load(w.o_block + i * shape.v_padded + d).store(to + kSums + d);
          }
        }
      });
      int64_t waiting = 0;
      for (int64_t head = 0; head < together; ++head)
        waiting += n - static_cast<int64_t>(merged[head * first.count * record + kMerged]);
      // These come from beyond the second-level cache or from that of another core.
      const double merge_ns = static_cast<double>(waiting) / static_cast<double>(together) *
                                  (5.0 + 0.25 * static_cast<double>(shape.v_padded)) +
                              20.0;
      const bool last = wave + n == blocks.end;
      split(context, queries, merge_ns, [&](int64_t begin, int64_t end, int) {
        for (int64_t q = begin; q < end; ++q) {
          float* to = merged + q * record;
          const auto done = static_cast<int64_t>(merged[q / first.count * first.count * record + kMerged]);
          if (done < n) merge_partials(partials + (q * n + done) * record, n - done, record, shape.v_padded, to);
          if (last) end_query(options, tiles.at(t + q / first.count), shape, q % first.count, to, to + 1, to + kSums);
        }
      });
    }
    t += together;
  }
}

}  // namespace

void attention(const Context& context, const AttentionOptions& options, std::span<const AttentionJob> jobs,
               std::span<std::byte> scratch) {
  const Shape shape(jobs[0].cache);
  const Tiles tiles{jobs, options.heads};
  const int threads = context.pool == nullptr ? 1 : context.pool->size();
  float* floats = reinterpret_cast<float*>(scratch.data());
  const int64_t count = tiles.count();
  if (count == 0) return;

  int64_t rows = 0, blocks = 0;
  for (const AttentionJob& job : jobs) {
    rows += job.rows;
    blocks = std::max(blocks, (job.position + job.rows + kAttentionBlock - 1) / kAttentionBlock);
  }
  if (threads > 1 && rows <= quant::kAttentionPartialRows && count < 8 * threads && blocks > 1) {
    run_by_blocks(context, options, tiles, shape, floats, floats + threads * shape.workspace_floats());
    return;
  }
  const Tile largest = tiles.at(count - 1);
  const Range longest = blocks_of(options, largest);
  const double tile_ns = block_ns(shape, largest.count) * static_cast<double>(longest.end - longest.begin);
  split(context, count, tile_ns, [&](int64_t begin, int64_t end, int thread) {
    const Workspace w = workspace(floats, shape, thread);
    // Later tiles see more keys: the long ones first.
    for (int64_t i = begin; i < end; ++i) run_tile(options, tiles.at(count - 1 - i), shape, w);
  });
}

}  // namespace berth::kernel::BERTH_TARGET
