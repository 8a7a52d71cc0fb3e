// sizing/kv_cache.cc — see kv_cache.h.
#include "berth/sizing/kv_cache.h"

#include <algorithm>

#include "berth/base/bytes.h"

namespace berth::sizing {
namespace {

uint64_t element_bytes(DType dtype) { return dtype_info(dtype).block_bytes; }
uint64_t aligned(uint64_t n) { return align_up<uint64_t>(n, 64); }
uint64_t product(std::initializer_list<int64_t> factors) {
  uint64_t n = 1;
  for (const int64_t f : factors) n *= static_cast<uint64_t>(std::max<int64_t>(f, 0));
  return n;
}

}  // namespace

KvLayerSize kv_layer_size(const arch::AttentionSpec& a, const RunShape& shape) {
  KvLayerSize out;
  if (a.kv_source_layer >= 0) return out;
  if (a.kind == arch::AttentionKind::kDeltaNet) {
    const uint64_t state = product({a.linear_value_heads, a.linear_key_dim, a.linear_value_dim, 4});
    const int64_t channels = 2 * int64_t{a.linear_key_heads} * a.linear_key_dim + int64_t{a.linear_value_heads} * a.linear_value_dim;
    out.extra_bytes = aligned(state) + aligned(product({channels, a.conv_kernel, 4}));
    return out;
  }
  int64_t positions = shape.ctx_size;
  if (a.window > 0 && (a.kind == arch::AttentionKind::kSliding || a.kind == arch::AttentionKind::kChunked))
    positions = std::min<int64_t>(positions, int64_t{a.window} + shape.prefill_chunk);
  out.positions = align_up<int64_t>(std::max<int64_t>(positions, 1), kKvBlock);
  const uint64_t b = element_bytes(shape.kv_dtype);
  if (a.kind == arch::AttentionKind::kLatent) {
    out.k_bytes = aligned(product({out.positions, a.kv_lora_rank}) * b);
    out.v_bytes = aligned(product({out.positions, a.rope_head_dim}) * b);
    return out;
  }
  out.k_bytes = aligned(product({out.positions, a.kv_heads, a.head_dim}) * b);
  out.v_bytes = aligned(product({out.positions, a.kv_heads, a.v_head_dim}) * b);
  if (a.kind == arch::AttentionKind::kBlockSparse)
    out.extra_bytes = aligned(product({out.positions, std::max(1, a.index_heads > 0 ? 1 : 0), a.index_head_dim}) * b);
  return out;
}

}  // namespace berth::sizing
