// model/kv_cache.cc — see kv_cache.h.
#include "berth/model/kv_cache.h"

#include <algorithm>

#include "berth/base/check.h"

namespace berth::model {

Result<KvCache> KvCache::create(const arch::ModelSpec& spec, const sizing::RunShape& shape,
                                const std::vector<device::Device*>& devices) {
  CHECK(devices.size() == spec.layers.size());
  KvCache cache;
  cache.ctx_size_ = shape.ctx_size;
  cache.lengths_.assign(static_cast<size_t>(shape.batch), 0);
  cache.high_water_.assign(static_cast<size_t>(shape.batch), 0);
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const arch::AttentionSpec& a = spec.layers[l].attention;
    Layer layer;
    layer.source = a.kv_source_layer;
    layer.size = sizing::kv_layer_size(a, shape);
    if (layer.source < 0) {
      const uint64_t bytes = layer.size.total() * static_cast<uint64_t>(shape.batch);
      TRY(layer.buffer, devices[l]->arena().allocate(bytes, device::Tag::kKv));
      layer.shape = {.dtype = shape.kv_dtype,
                     .capacity = layer.size.positions,
                     .kv_heads = a.kv_heads,
                     .head_dim = a.head_dim,
                     .v_head_dim = a.v_head_dim};
      const bool ring = a.kind == arch::AttentionKind::kSliding || a.kind == arch::AttentionKind::kChunked;
      layer.window = ring && layer.size.positions < shape.ctx_size ? a.window : 0;
    }
    cache.layers_.push_back(std::move(layer));
  }
  return cache;
}

kernel::KvView KvCache::view(int32_t layer, int32_t sequence) const {
  const Layer* l = &layers_[static_cast<size_t>(layer)];
  if (l->source >= 0) l = &layers_[static_cast<size_t>(l->source)];
  kernel::KvView view = l->shape;
  std::byte* base = l->buffer.data() + l->size.total() * static_cast<uint64_t>(sequence);
  view.k = base;
  view.v = base + l->size.k_bytes;
  return view;
}

void KvCache::set_length(int32_t sequence, int64_t length) {
  lengths_[static_cast<size_t>(sequence)] = length;
  int64_t& high = high_water_[static_cast<size_t>(sequence)];
  high = length == 0 ? 0 : std::max(high, length);
}

int64_t KvCache::keepable(int32_t sequence, int64_t wanted) const {
  wanted = std::min(wanted, length(sequence));
  const int64_t high = high_water_[static_cast<size_t>(sequence)];
  for (const Layer& l : layers_) {
    // A ring holds positions [high - capacity, high); the next query at `wanted` needs [wanted - window + 1, wanted).
    if (l.window > 0 && std::max<int64_t>(wanted - l.window + 1, 0) < high - l.size.positions) return 0;
  }
  return wanted;
}

}  // namespace berth::model
