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

// One tile by blocks: partial results of up to kAttentionPartialBlocks blocks at a time, then merged in order.
void run_by_blocks(const Context& context, const AttentionOptions& options, const Tiles& tiles, const Shape& shape,
                   float* scratch, float* partials) {
  const int64_t record = shape.v_padded + 16;  // m, l at 0, 1; o from 16
  for (int64_t t = 0; t < tiles.count();) {
    // As many tiles of this job as it has: all kv heads of one group of queries go together.
    const Tile first = tiles.at(t);
    const int64_t together = first.job->cache.kv_heads;
    const Range blocks = blocks_of(options, first);
    const int64_t queries = first.count * together;
    const int64_t wave_blocks = std::min(quant::kAttentionPartialBlocks, blocks.end - blocks.begin);
    float* merged = partials + queries * wave_blocks * record;
    for (int64_t i = 0; i < queries; ++i)
      begin_query(shape.v_padded, merged + i * record, merged + i * record + 1, merged + i * record + 16);
    for (int64_t wave = blocks.begin; wave < blocks.end; wave += wave_blocks) {
      const int64_t n = std::min(wave_blocks, blocks.end - wave);
      split_in_stretches(context, n * together, block_ns(shape, first.count), [&](auto&& claim, int thread) {
        Workspace w = workspace(scratch, shape, thread);
        int64_t packed = -1;
        for (int64_t item = claim(); item >= 0; item = claim()) {
          const int64_t head = item / n, block = item % n, after = item + 1;
          const Tile tile = tiles.at(t + head);
          if (packed != head) pack_queries(tile, shape, w.q);
          packed = head;
          block_of_tile(options, tile, shape, (wave + block) * kAttentionBlock,
                        after < n * together ? keys_of(tiles.at(t + after / n), (wave + after % n) * kAttentionBlock)
                                             : Ahead(nullptr, 0),
                        w);
          for (int64_t i = 0; i < tile.count; ++i) {
            float* to = partials + ((head * first.count + i) * n + block) * record;
            to[0] = w.m_block[i];
            to[1] = w.l_block[i];
            for (int64_t d = 0; d < shape.v_padded; d += F::kLanes)
              F::load(w.o_block + i * shape.v_padded + d).store(to + 16 + d);
          }
        }
      });
      // The partial results come from beyond the second-level cache or from that of another core.
      const double merge_ns = static_cast<double>(n) * (5.0 + 0.25 * static_cast<double>(shape.v_padded));
      const bool last = wave + n == blocks.end;
      split(context, queries, merge_ns, [&](int64_t begin, int64_t end, int) {
        for (int64_t q = begin; q < end; ++q) {
          float* to = merged + q * record;
          merge_partials(partials + q * n * record, n, record, shape.v_padded, to);
          if (last) end_query(options, tiles.at(t + q / first.count), shape, q % first.count, to, to + 1, to + 16);
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
