// model/kv_cache.cc — see kv_cache.h.
#include "berth/model/kv_cache.h"

#include <algorithm>

#include "berth/base/bytes.h"
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
    layer.device = devices[l];
    layer.source = a.kv_source_layer;
    layer.size = sizing::kv_layer_size(a, shape);
    const uint64_t bytes = layer.size.total() * static_cast<uint64_t>(shape.batch);
    if (layer.source < 0) {
      TRY(layer.buffer, devices[l]->arena().allocate(bytes, device::Tag::kKv));
      layer.shape = {.dtype = shape.kv_dtype,
                     .capacity = layer.size.positions,
                     .kv_heads = a.kv_heads,
                     .head_dim = a.head_dim,
                     .v_head_dim = a.v_head_dim};
      const bool ring = a.kind == arch::AttentionKind::kSliding || a.kind == arch::AttentionKind::kChunked;
      layer.window = ring && layer.size.positions < shape.ctx_size ? a.window : 0;
    }
    if (a.kind == arch::AttentionKind::kBlockSparse) layer.index_dim = a.index_head_dim;
    if (a.kind == arch::AttentionKind::kDeltaNet) {
      layer.state_bytes =
          align_up<uint64_t>(static_cast<uint64_t>(a.linear_value_heads) * static_cast<uint64_t>(a.linear_key_dim) *
                                 static_cast<uint64_t>(a.linear_value_dim) * sizeof(float),
                             64);
      cache.recurrent_ = true;
    }
    cache.layers_.push_back(std::move(layer));
    if (a.kv_source_layer < 0) continue;
    // A reader on another device: a copy there, once.
    Layer& source = cache.layers_[static_cast<size_t>(a.kv_source_layer)];
    const bool there =
        source.device == devices[l] || std::any_of(source.copies.begin(), source.copies.end(),
                                                   [&](const Copy& copy) { return copy.device == devices[l]; });
    if (there) continue;
    Copy copy;
    copy.device = devices[l];
    const uint64_t source_bytes = source.size.total() * static_cast<uint64_t>(shape.batch);
    TRY(copy.buffer, devices[l]->arena().allocate(source_bytes, device::Tag::kKv));
    source.copies.push_back(std::move(copy));
  }
  return cache;
}

kernel::KvView KvCache::view(int32_t layer, int32_t sequence, const device::Device& on) const {
  const Layer* l = &layers_[static_cast<size_t>(layer)];
  if (l->source >= 0) l = &layers_[static_cast<size_t>(l->source)];
  const device::Buffer* buffer = &l->buffer;
  if (l->device != &on)
    for (const Copy& copy : l->copies)
      if (copy.device == &on) buffer = &copy.buffer;
  kernel::KvView view = l->shape;
  view.k = base(*l, *buffer, sequence);
  view.v = view.k + l->size.k_bytes;
  return view;
}

LatentView KvCache::latent_view(int32_t layer, int32_t sequence) const {
  const Layer& l = layers_[static_cast<size_t>(layer)];
  std::byte* at = base(l, l.buffer, sequence);
  return {at, at + l.size.k_bytes, l.shape.dtype};
}

kernel::IndexView KvCache::index_view(int32_t layer, int32_t sequence) const {
  const Layer& l = layers_[static_cast<size_t>(layer)];
  return {base(l, l.buffer, sequence) + l.size.k_bytes + l.size.v_bytes, l.shape.dtype, l.size.positions, l.index_dim};
}

DeltaState KvCache::delta_state(int32_t layer, int32_t sequence) const {
  const Layer& l = layers_[static_cast<size_t>(layer)];
  std::byte* at = base(l, l.buffer, sequence);
  return {reinterpret_cast<float*>(at), reinterpret_cast<float*>(at + l.state_bytes)};
}

std::vector<device::Device*> KvCache::copies(int32_t layer) const {
  std::vector<device::Device*> out;
  for (const Copy& copy : layers_[static_cast<size_t>(layer)].copies) out.push_back(copy.device);
  return out;
}

void KvCache::set_length(int32_t sequence, int64_t length) {
  lengths_[static_cast<size_t>(sequence)] = length;
  int64_t& high = high_water_[static_cast<size_t>(sequence)];
  high = length == 0 ? 0 : std::max(high, length);
}

int64_t KvCache::keepable(int32_t sequence, int64_t wanted) const {
  wanted = std::min(wanted, length(sequence));
  const int64_t high = high_water_[static_cast<size_t>(sequence)];
  if (recurrent_ && wanted < high) return 0;
  for (const Layer& l : layers_) {
    // A ring holds positions [high - capacity, high); the next query at `wanted` needs [wanted - window + 1, wanted).
    if (l.window > 0 && std::max<int64_t>(wanted - l.window + 1, 0) < high - l.size.positions) return 0;
  }
  return wanted;
}

}  // namespace berth::model
