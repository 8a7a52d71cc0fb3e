// model/kv_cache.h — what a run remembers of its sequences: per layer one buffer on the device that computes its
// attention.
//
// Mostly keys and values; latents for latent attention, index keys beside K and V for block-sparse attention, and for a
// gated delta net its state and the last inputs of its convolution. Sizes come from sizing/kv_cache.h, so predicted and
// allocated bytes are the same number. A layer that shares another's cache reads it where that layer computes; on
// another device a copy is kept and written with the same new rows.
//
// A run has `batch` sequences, each with its own positions; truncate() keeps a prefix, so that a conversation's next
// turn computes only what is new. A recurrent state cannot be cut back: keepable() then says 0.
//
// Start reading at: KvCache::create.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/device/device.h"
#include "berth/kernel/attention.h"
#include "berth/kernel/sparse_attention.h"
#include "berth/sizing/kv_cache.h"

namespace berth::model {

// One sequence's latents of a layer, rows one after the other in the cache's dtype.
struct LatentView {
  std::byte* latents = nullptr;  // [capacity, kv_lora_rank]
  std::byte* rope = nullptr;     // [capacity, rope_head_dim]
  DType dtype = DType::kF32;
};

// One sequence's state of a delta-net layer.
struct DeltaState {
  float* state = nullptr;        // [value_heads, key_dim, value_dim]
  float* convolution = nullptr;  // [conv_kernel, channels]
};

class KvCache {
 public:
  // `devices`: per layer, where its attention computes. Errors: kDoesNotFit from the arena.
  static Result<KvCache> create(const arch::ModelSpec& spec, const sizing::RunShape& shape,
                                const std::vector<device::Device*>& devices);

  // Cache of `layer` for `sequence` on device `on`; a layer that shares reads its source's, or its copy there.
  kernel::KvView view(int32_t layer, int32_t sequence, const device::Device& on) const;
  LatentView latent_view(int32_t layer, int32_t sequence) const;
  kernel::IndexView index_view(int32_t layer, int32_t sequence) const;
  DeltaState delta_state(int32_t layer, int32_t sequence) const;

  // Other devices that keep a copy of `layer`'s cache.
  std::vector<device::Device*> copies(int32_t layer) const;
  // Whether a layer's memory is a state that cannot be cut back.
  bool recurrent() const { return recurrent_; }

  // Positions written so far.
  int64_t length(int32_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  void set_length(int32_t sequence, int64_t length);
  // The longest prefix <= `wanted` that can be kept: ring buffers forget and states cannot go back, so it may be 0.
  int64_t keepable(int32_t sequence, int64_t wanted) const;
  void truncate(int32_t sequence, int64_t length) { lengths_[static_cast<size_t>(sequence)] = length; }

  int64_t ctx_size() const { return ctx_size_; }
  int32_t sequences() const { return static_cast<int32_t>(lengths_.size()); }

 private:
  struct Copy {
    device::Device* device = nullptr;
    device::Buffer buffer;
  };
  struct Layer {
    device::Device* device = nullptr;
    device::Buffer buffer;
    std::vector<Copy> copies;
    sizing::KvLayerSize size;
    kernel::KvView shape;  // pointers unset
    int64_t window = 0;
    int32_t source = -1;
    int32_t index_dim = 0;
    uint64_t state_bytes = 0;  // delta net: of S, the convolution's inputs follow
  };
  std::byte* base(const Layer& layer, const device::Buffer& buffer, int32_t sequence) const {
    return buffer.data() + layer.size.total() * static_cast<uint64_t>(sequence);
  }
  std::vector<Layer> layers_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> high_water_;  // positions ever written since the sequence was last empty
  int64_t ctx_size_ = 0;
  bool recurrent_ = false;
};

}  // namespace berth::model
