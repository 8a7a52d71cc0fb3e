// kernel/attention.h — the KV cache's layout, writing to it, and attention over it (numerics.md 2).
//
// A layer's cache of one sequence: K and V of `kv_heads`, `capacity` positions (a multiple of 128), each element in the
// cache's dtype (fp32, fp16, bf16). Position p lives in slot p mod capacity, so a sliding layer's cache is a ring;
// since capacity is a multiple of 128, a block of 128 absolute positions is one contiguous run of slots.
//   K: [kv_heads][capacity / 32][head_dim][32]   32 keys side by side
//   V: [kv_heads][capacity][v_head_dim]
// Values are rounded to the dtype when written and read back even within the same chunk.
//
// Start reading at: KvView, then attention(); ref/attention.cc is the definition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "berth/kernel/context.h"
#include "berth/tensor/dtype.h"

namespace berth::kernel {

inline constexpr int64_t kAttentionBlock = 128;

struct KvView {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  DType dtype = DType::kF32;  // kF32, kF16 or kBF16
  int64_t capacity = 0;       // positions, a multiple of 128
  int32_t kv_heads = 0, head_dim = 0, v_head_dim = 0;
};

// Stores `rows` new positions, first at `position`. k: [rows, kv_heads, head_dim], v: [rows, kv_heads, v_head_dim].
void kv_write(const Context& context, const KvView& cache, int64_t position, int64_t rows, const float* k,
              int64_t k_stride, const float* v, int64_t v_stride);

// One sequence's share of a batch: queries at positions position .. position + rows - 1, whose keys are already
// written.
struct AttentionJob {
  KvView cache;
  int64_t position = 0, rows = 0;
  const float* q = nullptr;  // [rows, heads, head_dim], row stride q_stride
  int64_t q_stride = 0;
  float* out = nullptr;  // [rows, heads, v_head_dim], row stride out_stride
  int64_t out_stride = 0;
};

struct AttentionOptions {
  int32_t heads = 0;  // query heads; head h reads kv head h / (heads / kv_heads)
  float scale = 1;
  float softcap = 0;                    // 0: none
  int64_t window = 0;                   // > 0: keys p with p > query - window
  int64_t chunk = 0;                    // > 0: keys of the query's chunk of this many positions (Llama 4)
  const float* alibi_slopes = nullptr;  // [heads] or null; added after scaling: s + slope * key position (BLOOM)
  // Falcon: the bias is rounded to bf16 (slope, position and product, each) and added before scaling.
  bool alibi_bf16_before_scale = false;
  const float* sinks = nullptr;  // [heads] or null
};

// `scratch`: at least quant::attention_scratch_bytes(...), 64-byte aligned; CHECKed.
void attention(const Context& context, const AttentionOptions& options, std::span<const AttentionJob> jobs,
               std::span<std::byte> scratch);

}  // namespace berth::kernel
