// kernel/ref/attention.cc — the KV cache and attention, numerics.md 2: blocks of 128 by absolute position, an ordered
// merge.
#include "berth/kernel/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "berth/kernel/math.h"
#include "berth/kernel/ref/lanes.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::BERTH_REF {
namespace {

void store(std::byte* plane, DType dtype, int64_t index, float value) {
  if (dtype == DType::kF32) reinterpret_cast<float*>(plane)[index] = value;
  if (dtype == DType::kF16) reinterpret_cast<uint16_t*>(plane)[index] = f32_to_f16(value);
  if (dtype == DType::kBF16) reinterpret_cast<uint16_t*>(plane)[index] = f32_to_bf16(value);
}

float load(const std::byte* plane, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(plane)[index];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(plane)[index];
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

int64_t k_index(const KvView& cache, int64_t head, int64_t position, int64_t channel) {
  const int64_t slot = position % cache.capacity;
  return (((head * (cache.capacity / 32)) + slot / 32) * cache.head_dim + channel) * 32 + slot % 32;
}
int64_t v_index(const KvView& cache, int64_t head, int64_t position, int64_t channel) {
  return (head * cache.capacity + position % cache.capacity) * cache.v_head_dim + channel;
}

float to_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }

// What a block of keys contributes, and what has been merged so far.
struct Partial {
  float m = -std::numeric_limits<float>::infinity(), l = 0;
  const float* o = nullptr;  // null: all +0
};

float score(const AttentionOptions& options, const KvView& cache, int32_t head, int64_t kv_head, int64_t p,
            const float* q) {
  float s = 0;
  for (int32_t i = 0; i < cache.head_dim; ++i)
    s = std::fma(q[i], load(cache.k, cache.dtype, k_index(cache, kv_head, p, i)), s);
  const float slope = options.alibi_slopes == nullptr ? 0.0f : options.alibi_slopes[head];
  if (options.alibi_slopes != nullptr && options.alibi_bf16_before_scale)
    s = s + to_bf16(to_bf16(slope) * to_bf16(static_cast<float>(p)));
  s = s * options.scale;
  if (options.softcap != 0) s = options.softcap * tanh_f32(s / options.softcap);
  if (options.alibi_slopes != nullptr && !options.alibi_bf16_before_scale) s = s + slope * static_cast<float>(p);
  return s;
}

void merge(const Partial& block, int32_t v_head_dim, float& m, float& l, float* o) {
  const float new_m = std::max(m, block.m);
  const float al = exp_f32(m - new_m);
  const float be = exp_f32(block.m - new_m);
  l = std::fma(l, al, block.l * be);
  for (int32_t d = 0; d < v_head_dim; ++d) o[d] = std::fma(o[d], al, (block.o == nullptr ? 0.0f : block.o[d]) * be);
  m = new_m;
}

void one_query(const AttentionOptions& options, const KvView& cache, int32_t head, int64_t position, const float* q,
               float* out, float* block_o) {
  const int64_t kv_head = head / (options.heads / cache.kv_heads);
  int64_t first = 0;
  if (options.window > 0) first = std::max(first, position - options.window + 1);
  if (options.chunk > 0) first = std::max(first, position / options.chunk * options.chunk);

  float m = -std::numeric_limits<float>::infinity(), l = 0;
  for (int32_t d = 0; d < cache.v_head_dim; ++d) out[d] = 0;
  for (int64_t begin = first / kAttentionBlock * kAttentionBlock; begin <= position; begin += kAttentionBlock) {
    const int64_t low = std::max(begin, first), high = std::min(begin + kAttentionBlock, position + 1);
    float e[kAttentionBlock];
    Partial block;
    for (int64_t p = low; p < high; ++p) {
      e[p - low] = score(options, cache, head, kv_head, p, q);
      block.m = std::max(block.m, e[p - low]);
    }
    float lanes[kLanes] = {};
    for (int32_t d = 0; d < cache.v_head_dim; ++d) block_o[d] = 0;
    for (int64_t p = low; p < high; ++p) {
      const float weight = exp_f32(e[p - low] - block.m);
      lanes[p % kLanes] = lanes[p % kLanes] + weight;
      for (int32_t d = 0; d < cache.v_head_dim; ++d)
        block_o[d] = std::fma(weight, load(cache.v, cache.dtype, v_index(cache, kv_head, p, d)), block_o[d]);
    }
    block.l = finish(lanes, kLanes);
    block.o = block_o;
    merge(block, cache.v_head_dim, m, l, out);
  }
  if (options.sinks != nullptr) {
    Partial sink;
    sink.m = options.sinks[head];
    sink.l = 1;
    merge(sink, cache.v_head_dim, m, l, out);
  }
  for (int32_t d = 0; d < cache.v_head_dim; ++d) out[d] = out[d] / l;
}

}  // namespace

void kv_write(const Context&, const KvView& cache, int64_t position, int64_t rows, const float* k, int64_t k_stride,
              const float* v, int64_t v_stride) {
  for (int64_t r = 0; r < rows; ++r, ++position, k += k_stride, v += v_stride) {
    for (int32_t h = 0; h < cache.kv_heads; ++h) {
      for (int32_t i = 0; i < cache.head_dim; ++i)
        store(cache.k, cache.dtype, k_index(cache, h, position, i), k[h * cache.head_dim + i]);
      for (int32_t d = 0; d < cache.v_head_dim; ++d)
        store(cache.v, cache.dtype, v_index(cache, h, position, d), v[h * cache.v_head_dim + d]);
    }
  }
}

void attention(const Context&, const AttentionOptions& options, std::span<const AttentionJob> jobs,
               std::span<std::byte> scratch) {
  float* block_o = reinterpret_cast<float*>(scratch.data());
  for (const AttentionJob& job : jobs)
    for (int64_t r = 0; r < job.rows; ++r)
      for (int32_t h = 0; h < options.heads; ++h)
        one_query(options, job.cache, h, job.position + r,
                  job.q + r * job.q_stride + static_cast<int64_t>(h) * job.cache.head_dim,
                  job.out + r * job.out_stride + static_cast<int64_t>(h) * job.cache.v_head_dim, block_o);
}

}  // namespace berth::kernel::BERTH_REF
