// kernel/ref/sparse_attention.cc — the indexer's choice of blocks and attention over them, numerics.md 2: blocks of 128 by
// absolute position, an ordered merge, hidden positions skipped.
#include "berth/kernel/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "berth/kernel/family_operations.h"
#include "berth/kernel/math.h"
#include "berth/kernel/ref/lanes.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::BERTH_REF {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kTile = 32;  // keys side by side

float load(const std::byte* plane, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(plane)[index];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(plane)[index];
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// Scores of one query against the 32 keys of a tile: one chain over the channels for each key.
void score_tile(const std::byte* keys, DType dtype, int64_t tile, int64_t dim, const float* q, float* s) {
  for (int64_t j = 0; j < kTile; ++j) s[j] = 0;
  const int64_t base = tile * dim * kTile;
  for (int64_t i = 0; i < dim; ++i)
    for (int64_t j = 0; j < kTile; ++j) s[j] = std::fma(q[i], load(keys, dtype, base + i * kTile + j), s[j]);
}

// The `top_k` best of n values, larger first, then the lower index; ascending, -1 where there are fewer finite ones.
void best_blocks(const float* values, int64_t n, int32_t top_k, int32_t* chosen) {
  int32_t count = 0;
  for (int64_t b = 0; b < n; ++b) {
    if (values[b] == -kInfinity) continue;
    if (count == top_k && !(values[b] > values[chosen[count - 1]])) continue;
    int32_t at = count < top_k ? count++ : count - 1;
    for (; at > 0 && values[b] > values[chosen[at - 1]]; --at) chosen[at] = chosen[at - 1];
    chosen[at] = static_cast<int32_t>(b);
  }
  std::sort(chosen, chosen + count);
  for (; count < top_k; ++count) chosen[count] = -1;
}

struct Query {
  const float* q;
  float* out;
  float* block_o;
  int64_t position, kv_head;
  const int32_t* chosen;
};

void one_query(const AttentionOptions& options, const KvView& cache, const BlockChoice& choice, const Query& x) {
  float m = -kInfinity, l = 0;
  const int64_t n = cache.v_head_dim;
  for (int64_t d = 0; d < n; ++d) x.out[d] = 0;
  int32_t next = 0;  // into x.chosen
  const auto chosen = [&](int64_t p) {
    const int64_t block = p / choice.block;
    while (next < choice.top_k && x.chosen[next] >= 0 && x.chosen[next] < block) ++next;
    return next < choice.top_k && x.chosen[next] == block;
  };
  for (int64_t begin = 0; begin <= x.position; begin += kAttentionBlock) {
    const int64_t end = std::min(begin + kAttentionBlock, x.position + 1);
    float e[kAttentionBlock];
    bool seen[kAttentionBlock] = {};
    float m_block = -kInfinity;
    for (int64_t tile = begin; tile < end; tile += kTile) {
      float s[kTile];
      bool scored = false;
      for (int64_t p = tile; p < std::min(tile + kTile, end); ++p) {
        if (!chosen(p)) continue;
        const int64_t slot = tile % cache.capacity;
        if (!scored)
          score_tile(cache.k, cache.dtype, x.kv_head * (cache.capacity / kTile) + slot / kTile, cache.head_dim, x.q, s);
        scored = true;
        seen[p - begin] = true;
        e[p - begin] = s[p - tile] * options.scale;
        m_block = std::max(m_block, e[p - begin]);
      }
    }
    if (m_block == -kInfinity) continue;
    float lanes[kLanes] = {};
    for (int64_t d = 0; d < n; ++d) x.block_o[d] = 0;
    for (int64_t p = begin; p < end; ++p) {
      if (!seen[p - begin]) continue;
      const float weight = exp_f32(e[p - begin] - m_block);
      lanes[p % kLanes] = lanes[p % kLanes] + weight;
      const int64_t at = (x.kv_head * cache.capacity + p % cache.capacity) * n;
      for (int64_t d = 0; d < n; ++d) x.block_o[d] = std::fma(weight, load(cache.v, cache.dtype, at + d), x.block_o[d]);
    }
    const float l_block = finish(lanes, kLanes);
    const float new_m = std::max(m, m_block);
    const float al = exp_f32(m - new_m), be = exp_f32(m_block - new_m);
    l = std::fma(l, al, l_block * be);
    for (int64_t d = 0; d < n; ++d) x.out[d] = std::fma(x.out[d], al, x.block_o[d] * be);
    m = new_m;
  }
  for (int64_t d = 0; d < n; ++d) x.out[d] = l > 0 ? x.out[d] / l : 0.0f;
}

}  // namespace

void index_write(const IndexView& index, int64_t position, int64_t rows, const float* k, int64_t k_stride) {
  for (int64_t r = 0; r < rows; ++r, ++position, k += k_stride) {
    const int64_t slot = position % index.capacity;
    for (int32_t i = 0; i < index.dim; ++i) {
      const int64_t at = (slot / kTile * index.dim + i) * kTile + slot % kTile;
      if (index.dtype == DType::kF32) reinterpret_cast<float*>(index.keys)[at] = k[i];
      if (index.dtype == DType::kF16) reinterpret_cast<uint16_t*>(index.keys)[at] = f32_to_f16(k[i]);
      if (index.dtype == DType::kBF16) reinterpret_cast<uint16_t*>(index.keys)[at] = f32_to_bf16(k[i]);
    }
  }
}

void select_blocks(const IndexView& index, const BlockChoice& choice, int64_t position, int64_t rows, const float* q,
                   int64_t q_stride, float* pooled, int64_t pooled_stride, int32_t* chosen) {
  for (int64_t r = 0; r < rows; ++r, ++position, q += q_stride, pooled += pooled_stride) {
    const int64_t own = position / choice.block, blocks = own + 1;
    for (int32_t h = 0; h < choice.heads; ++h, chosen += choice.top_k) {
      for (int64_t b = 0; b < blocks; ++b) pooled[b] = -kInfinity;
      for (int64_t tile = 0; tile <= position; tile += kTile) {
        float s[kTile];
        score_tile(index.keys, index.dtype, tile % index.capacity / kTile, index.dim, q + h * index.dim, s);
        for (int64_t p = tile; p < std::min(tile + kTile, position + 1); ++p)
          pooled[p / choice.block] = std::max(pooled[p / choice.block], s[p - tile]);
      }
      for (int64_t b = std::max<int64_t>(0, own - choice.local_blocks + 1); b <= own; ++b) pooled[b] = kInfinity;
      best_blocks(pooled, blocks, choice.top_k, chosen);
    }
  }
}

void sparse_attention(const AttentionOptions& options, const AttentionJob& job, const BlockChoice& choice,
                      const int32_t* chosen, float* scratch) {
  const int32_t per_index_head = options.heads / choice.heads, per_kv_head = options.heads / job.cache.kv_heads;
  for (int64_t r = 0; r < job.rows; ++r) {
    for (int32_t h = 0; h < options.heads; ++h) {
      const Query x{job.q + r * job.q_stride + int64_t{h} * job.cache.head_dim,
                    job.out + r * job.out_stride + int64_t{h} * job.cache.v_head_dim,
                    scratch + r * job.cache.v_head_dim,
                    job.position + r,
                    h / per_kv_head,
                    chosen + (r * choice.heads + h / per_index_head) * choice.top_k};
      one_query(options, job.cache, choice, x);
    }
  }
}

}  // namespace berth::kernel::BERTH_REF
