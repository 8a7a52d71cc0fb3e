// sizing/kv_cache.h — bytes of the KV cache, layer by layer; the model allocates by the same functions.
#pragma once

#include <cstdint>

#include "berth/arch/model_spec.h"
#include "berth/sizing/run_shape.h"

namespace berth::sizing {

inline constexpr int64_t kKvBlock = 128;  // positions are rounded up to whole attention blocks

// One layer's cache of one sequence. All zero where the layer owns none (KV sharing) or keeps a recurrent state instead.
struct KvLayerSize {
  int64_t positions = 0;      // capacity, a multiple of kKvBlock: ctx_size, or window + chunk where that is less
  uint64_t k_bytes = 0;       // keys (latent attention: the latents)
  uint64_t v_bytes = 0;       // values (latent attention: the rotated shared keys)
  uint64_t extra_bytes = 0;   // index keys (MiniMax-M3), convolution and recurrent state in fp32 (delta net)
  // Each part rounded up to 64 bytes.
  uint64_t total() const { return k_bytes + v_bytes + extra_bytes; }
};

KvLayerSize kv_layer_size(const arch::AttentionSpec& attention, const RunShape& shape);

}  // namespace berth::sizing
