// model/latent_attention.cc — DeepSeek's latent attention: low-rank K and V are cached as latents, and their expansion
// by kv_b in fp32 is recomputed for the positions a pass sees, a few heads at a time (docs/numerics.md 2).
#include <algorithm>

#include "berth/kernel/attention.h"
#include "berth/kernel/gated.h"
#include "berth/kernel/norm.h"
#include "berth/model/attention.h"

namespace berth::model {
namespace {

using arch::Role;

// q [rows, heads, nope | rope], the rope part turned.
void make_queries(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
                  const Rotation& rotation) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  const int64_t width = int64_t{a.heads} * a.head_dim;
  const auto eps = static_cast<float>(a.latent_norm_eps);
  float* q = on.at(layout.q);
  if (a.q_lora_rank > 0) {
    float* down = on.at(layout.latent_q);
    Linears first(pass);
    first.add(pass.need(Role::kQDown, layer), nullptr, down, a.q_lora_rank);
    first.run(on, layout, on.at(layout.normed), pass.rows, pass.spec.hidden);
    kernel::rms_norm(on.context, down, a.q_lora_rank, pass.vector(Role::kQDownNorm, layer), eps, pass.rows,
                     a.q_lora_rank, down, a.q_lora_rank);
    Linears second(pass);
    second.add(pass.need(Role::kQUp, layer), nullptr, q, width);
    second.run(on, layout, down, pass.rows, a.q_lora_rank);
  } else {
    Linears only(pass);
    only.add(pass.need(Role::kQ, layer), nullptr, q, width);
    only.run(on, layout, on.at(layout.normed), pass.rows, pass.spec.hidden);
  }
  rotation.turn(q + a.nope_head_dim, width, a.heads, a.head_dim);
}

// New latents: normed, their rope part turned, both written to the cache.
void write_latents(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
                   const Rotation& rotation) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  const int64_t width = int64_t{a.kv_lora_rank} + a.rope_head_dim;
  float* latent = on.at(layout.latent);
  Linears down(pass);
  down.add(pass.need(Role::kKvDown, layer), nullptr, latent, width);
  down.run(on, layout, on.at(layout.normed), pass.rows, pass.spec.hidden);
  kernel::rms_norm(on.context, latent, width, pass.vector(Role::kKvDownNorm, layer),
                   static_cast<float>(a.latent_norm_eps), pass.rows, a.kv_lora_rank, latent, width);
  rotation.turn(latent + a.kv_lora_rank, width, 1, a.rope_head_dim);
  for (const RowRange& range : pass.ranges) {
    const LatentView cache = pass.kv.latent_view(layer, range.sequence);
    const int64_t bytes = static_cast<int64_t>(dtype_info(cache.dtype).block_bytes);
    const float* rows = latent + range.first_row * width;
    kernel::store_rows(on.context, cache.dtype, rows, width, range.rows, a.kv_lora_rank,
                       cache.latents + range.position * a.kv_lora_rank * bytes);
    kernel::store_rows(on.context, cache.dtype, rows + a.kv_lora_rank, width, range.rows, a.rope_head_dim,
                       cache.rope + range.position * a.rope_head_dim * bytes);
  }
}

// K and V of heads [first, first + count) at positions [0, length), in an fp32 attention cache.
kernel::KvView expand(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
                      int32_t first, int32_t count, int64_t length) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  const int64_t k_width = int64_t{count} * a.head_dim, v_width = int64_t{count} * a.v_head_dim;
  float* k = on.at(layout.expanded_k);
  float* v = on.at(layout.expanded_v);
  const float* turned = on.at(layout.latent_rope);
  const load::HeldTensor& up = pass.need(Role::kKvUp, layer);
  Linears linears(pass);
  for (int32_t h = 0; h < count; ++h) {
    const int64_t begin = int64_t{first + h} * (a.nope_head_dim + a.v_head_dim);
    linears.add_rows(up, nullptr, begin, a.nope_head_dim, k + int64_t{h} * a.head_dim, k_width);
    linears.add_rows(up, nullptr, begin + a.nope_head_dim, a.v_head_dim, v + int64_t{h} * a.v_head_dim, v_width);
  }
  linears.run(on, layout, on.at(layout.latent_rows), length, a.kv_lora_rank);
  for (int64_t p = 0; p < length; ++p)
    for (int32_t h = 0; h < count; ++h)
      std::memcpy(k + p * k_width + int64_t{h} * a.head_dim + a.nope_head_dim, turned + p * a.rope_head_dim,
                  static_cast<size_t>(a.rope_head_dim) * sizeof(float));
  kernel::KvView cache;
  cache.k = reinterpret_cast<std::byte*>(on.at(layout.cache_k));
  cache.v = reinterpret_cast<std::byte*>(on.at(layout.cache_v));
  cache.dtype = DType::kF32;
  cache.capacity = (length + kernel::kAttentionBlock - 1) / kernel::kAttentionBlock * kernel::kAttentionBlock;
  cache.kv_heads = count;
  cache.head_dim = a.head_dim;
  cache.v_head_dim = a.v_head_dim;
  kernel::kv_write(on.context, cache, 0, length, k, k_width, v, v_width);
  return cache;
}

}  // namespace

void attend_latent(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  const Rotation rotation(pass, on, layout, a);
  make_queries(pass, on, layout, layer, rotation);
  write_latents(pass, on, layout, layer, rotation);
  const int64_t q_width = int64_t{a.heads} * a.head_dim, out_width = int64_t{a.heads} * a.v_head_dim;
  kernel::AttentionOptions options;
  options.scale = static_cast<float>(a.scale);
  for (const RowRange& range : pass.ranges) {
    const int64_t length = range.position + range.rows;
    const LatentView latents = pass.kv.latent_view(layer, range.sequence);
    kernel::load_rows(on.context, latents.dtype, latents.latents, length, a.kv_lora_rank, on.at(layout.latent_rows),
                      a.kv_lora_rank);
    kernel::load_rows(on.context, latents.dtype, latents.rope, length, a.rope_head_dim, on.at(layout.latent_rope),
                      a.rope_head_dim);
    for (int32_t first = 0; first < a.heads; first += layout.latent_heads) {
      const int32_t count = std::min(layout.latent_heads, a.heads - first);
      kernel::AttentionJob j;
      j.cache = expand(pass, on, layout, layer, first, count, length);
      j.position = range.position;
      j.rows = range.rows;
      j.q = on.at(layout.q) + range.first_row * q_width + int64_t{first} * a.head_dim;
      j.q_stride = q_width;
      j.out = on.at(layout.attended) + range.first_row * out_width + int64_t{first} * a.v_head_dim;
      j.out_stride = out_width;
      options.heads = count;
      kernel::attention(on.context, options, std::span(&j, 1), on.scratch(layout));
    }
  }
}

}  // namespace berth::model
