// kernel/cpu/kv_write-inl.h — new positions into the KV cache (its layout: kernel/attention.h); ref/attention.cc is the
// definition.
//
// Start reading at: kv_write() at the end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "berth/kernel/attention.h"
#include "berth/kernel/cpu/lanes-inl.h"
#include "berth/kernel/cpu/split-inl.h"
#include "berth/kernel/cpu/targets.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

void to_halves(DType dtype, const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + F::kLanes <= n; i += F::kLanes) {
    if (dtype == DType::kF16) F::load(x + i).store_f16(out + i);
    if (dtype == DType::kBF16) F::load(x + i).store_bf16(out + i);
  }
  for (; i < n; ++i) out[i] = dtype == DType::kF16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
}

constexpr int64_t kChannels = 256;  // converted at a time

// One row of one head into column `lane` of its key tile.
template <typename T>
void scatter(const T* x, int64_t n, T* tile) {
  for (int64_t i = 0; i < n; ++i) tile[i * 32] = x[i];
}

}  // namespace

void kv_write(const Context& context, const KvView& cache, int64_t position, int64_t rows, const float* k,
              int64_t k_stride, const float* v, int64_t v_stride) {
  const int64_t head_dim = cache.head_dim, v_head_dim = cache.v_head_dim;
  const bool wide = cache.dtype == DType::kF32;
  // Heads are disjoint; within a head the rows of a key tile share cache lines and stay with one thread.
  const double head_ns = static_cast<double>(rows * (head_dim + v_head_dim)) * 0.8;
  split(context, cache.kv_heads, head_ns, [&](int64_t begin, int64_t end, int) {
    uint16_t halves[kChannels];
    for (int64_t h = begin; h < end; ++h) {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t slot = (position + r) % cache.capacity;
        const int64_t tile = (h * (cache.capacity / 32) + slot / 32) * head_dim * 32 + slot % 32;
        const int64_t value = (h * cache.capacity + slot) * v_head_dim;
        const float* key_row = k + r * k_stride + h * head_dim;
        const float* value_row = v + r * v_stride + h * v_head_dim;
        if (wide) {
          scatter(key_row, head_dim, reinterpret_cast<float*>(cache.k) + tile);
          float* to = reinterpret_cast<float*>(cache.v) + value;
          for (int64_t i = 0; i < v_head_dim; ++i) to[i] = value_row[i];
          continue;
        }
        for (int64_t i = 0; i < head_dim; i += kChannels) {
          const int64_t n = std::min(kChannels, head_dim - i);
          to_halves(cache.dtype, key_row + i, n, halves);
          scatter(halves, n, reinterpret_cast<uint16_t*>(cache.k) + tile + i * 32);
        }
        to_halves(cache.dtype, value_row, v_head_dim, reinterpret_cast<uint16_t*>(cache.v) + value);
      }
    }
  });
}

}  // namespace berth::kernel::BERTH_TARGET
