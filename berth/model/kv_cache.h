// model/kv_cache.h — the KV cache of a run: one buffer per layer on the device that computes its attention.
//
// Sizes come from sizing/kv_cache.h, so predicted and allocated bytes are the same number. A run has `batch` sequences,
// each with its own positions; truncate() keeps a prefix, so that a conversation's next turn computes only what is new.
//
// Start reading at: KvCache::create.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/device/device.h"
#include "berth/kernel/attention.h"
#include "berth/sizing/kv_cache.h"

namespace berth::model {

class KvCache {
 public:
  // `devices`: per layer, where its attention computes. Errors: kDoesNotFit from the arena.
  static Result<KvCache> create(const arch::ModelSpec& spec, const sizing::RunShape& shape,
                                const std::vector<device::Device*>& devices);

  // Cache of `layer` for `sequence`; a layer that shares reads its source's.
  kernel::KvView view(int32_t layer, int32_t sequence) const;

  // Positions written so far.
  int64_t length(int32_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  void set_length(int32_t sequence, int64_t length);
  // The longest prefix <= `wanted` that can be kept: ring buffers forget, so it may be 0.
  int64_t keepable(int32_t sequence, int64_t wanted) const;
  void truncate(int32_t sequence, int64_t length) { lengths_[static_cast<size_t>(sequence)] = length; }

  int64_t ctx_size() const { return ctx_size_; }
  int32_t sequences() const { return static_cast<int32_t>(lengths_.size()); }

 private:
  struct Layer {
    device::Buffer buffer;
    sizing::KvLayerSize size;
    kernel::KvView shape;  // pointers unset
    int64_t window = 0;
    int32_t source = -1;
  };
  std::vector<Layer> layers_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> high_water_;  // positions ever written since the sequence was last empty
  int64_t ctx_size_ = 0;
};

}  // namespace berth::model
