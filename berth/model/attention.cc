// model/attention.cc — projections, norms, rotation, cache and scores of the usual attention (docs/architectures.md;
// order: docs/numerics.md).
#include "berth/model/attention.h"

#include <cmath>

#include "berth/kernel/attention.h"
#include "berth/kernel/double_math.h"
#include "berth/kernel/elementwise.h"
#include "berth/kernel/gated.h"
#include "berth/kernel/norm.h"
#include "berth/kernel/rope.h"

namespace berth::model {

using arch::Role;

namespace {

kernel::RopeLayout layout_of(arch::RopeLayout layout) {
  switch (layout) {
    case arch::RopeLayout::kHalves:
      return kernel::RopeLayout::kHalves;
    case arch::RopeLayout::kPairs:
      return kernel::RopeLayout::kPairs;
    case arch::RopeLayout::kPairsToHalves:
      return kernel::RopeLayout::kPairsToHalves;
  }
  CHECK(false);
  return kernel::RopeLayout::kHalves;
}

// [rows, n] normed with strides, in place.
void norm_rows(const kernel::Context& context, const arch::NormSpec& norm, const float* w, const float* b, float* x,
               int64_t stride, int64_t rows, int64_t n) {
  const auto eps = static_cast<float>(norm.eps);
  if (norm.kind == arch::NormKind::kLayer) {
    kernel::layer_norm(context, x, stride, w, b, eps, rows, n, x, stride);
  } else {
    kernel::rms_norm(context, x, stride, w, eps, rows, n, x, stride);
  }
}

void norm_heads(const kernel::Context& context, const arch::NormSpec& norm, const arch::AttentionSpec& a,
                const float* w, const float* b, int64_t rows, const Heads& x) {
  if (!norm.present()) return;
  if (a.qk_norm == arch::QkNorm::kAllHeads) {
    norm_rows(context, norm, w, b, x.data, x.stride(), rows, x.stride());
  } else if (a.qk_norm_own_weights) {
    for (int32_t h = 0; h < x.heads; ++h) {
      const int64_t at = int64_t{h} * x.head_dim;
      norm_rows(context, norm, w + at, b, x.data + at, x.stride(), rows, x.head_dim);
    }
  } else {
    norm_rows(context, norm, w, b, x.data, x.head_dim, rows * x.heads, x.head_dim);
  }
}

struct Projections {
  Heads q, k, v;
};

// One fused matrix, for each group: `per_group` queries, their key, their value.
void add_groups(Linears& linears, const load::HeldTensor& w, const float* bias, const arch::AttentionSpec& a,
                int32_t groups, const Projections& p) {
  const int64_t d = a.head_dim, queries = a.heads / groups * d, values = a.v_head_dim;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * (queries + d + values);
    linears.add_rows(w, bias, begin, queries, p.q.data + g * queries, p.q.stride());
    linears.add_rows(w, bias, begin + queries, d, p.k.data + g * d, p.k.stride());
    linears.add_rows(w, bias, begin + queries + d, values, p.v.data + g * values, p.v.stride());
  }
}

// q, k, v = W n + b in the layout's buffers, and the gate of the output where there is one.
Projections project(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  Projections p;
  p.q = {on.at(layout.q), a.heads, a.head_dim};
  p.k = {on.at(layout.k), a.kv_heads, a.head_dim};
  p.v = {on.at(layout.v), a.kv_heads, a.v_head_dim};
  Linears linears(pass);
  if (a.fused != arch::AttentionSpec::Fused::kSplit) {
    const load::HeldTensor& w = pass.need(Role::kQkv, layer);
    const float* bias = pass.vector(Role::kQkvBias, layer);
    if (a.fused == arch::AttentionSpec::Fused::kQkvRows) {
      linears.add_rows(w, bias, 0, p.q.stride(), p.q.data, p.q.stride());
      linears.add_rows(w, bias, p.q.stride(), p.k.stride(), p.k.data, p.k.stride());
      linears.add_rows(w, bias, p.q.stride() + p.k.stride(), p.v.stride(), p.v.data, p.v.stride());
    } else {
      add_groups(linears, w, bias, a, a.kv_heads, p);
    }
  } else {
    const load::HeldTensor& w = pass.need(Role::kQ, layer);
    const float* bias = pass.vector(Role::kQBias, layer);
    if (a.output_gate) {  // each head: its query, then its gate
      float* gate = on.at(layout.gate_q);
      const int64_t d = a.head_dim;
      for (int64_t h = 0; h < a.heads; ++h) {
        linears.add_rows(w, bias, 2 * h * d, d, p.q.data + h * d, p.q.stride());
        linears.add_rows(w, bias, (2 * h + 1) * d, d, gate + h * d, p.q.stride());
      }
    } else {
      linears.add(w, bias, p.q.data, p.q.stride());
    }
    if (a.kv_source_layer < 0) {
      linears.add(pass.need(Role::kK, layer), pass.vector(Role::kKBias, layer), p.k.data, p.k.stride());
      if (!a.v_from_k)
        linears.add(pass.need(Role::kV, layer), pass.vector(Role::kVBias, layer), p.v.data, p.v.stride());
    }
  }
  linears.run(on, layout, on.at(layout.normed), pass.rows, pass.spec.hidden);
  return p;
}

void norm_queries_and_keys(const ForwardState& pass, DeviceState& on, int32_t layer, const Projections& p) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  norm_heads(on.context, a.q_norm, a, pass.vector(Role::kQNorm, layer), pass.vector(Role::kQNormBias, layer), pass.rows,
             p.q);
  if (a.kv_source_layer < 0)
    norm_heads(on.context, a.k_norm, a, pass.vector(Role::kKNorm, layer), pass.vector(Role::kKNormBias, layer),
               pass.rows, p.k);
}

// Llama 4, layers without rope: q grows with the logarithm of the position.
void scale_by_position(const ForwardState& pass, DeviceState& on, const arch::AttentionSpec& a, const Heads& q) {
  for (const RowRange& range : pass.ranges) {
    for (int64_t r = 0; r < range.rows; ++r) {
      const double steps = std::floor(static_cast<double>(range.position + r + 1) / a.query_temperature_floor);
      const double factor = kernel::log_f64(1 + steps) * a.query_temperature_scale + 1;
      float* row = q.data + (range.first_row + r) * q.stride();
      kernel::scale(on.context, row, q.stride(), static_cast<float>(factor), 1, q.stride());
    }
  }
}

kernel::AttentionOptions options_of(const ForwardState& pass, const arch::AttentionSpec& a, int32_t layer) {
  kernel::AttentionOptions options;
  options.heads = a.heads;
  options.scale = static_cast<float>(a.scale);
  options.softcap = static_cast<float>(a.softcap);
  options.window = a.kind == arch::AttentionKind::kSliding ? a.window : 0;
  options.chunk = a.kind == arch::AttentionKind::kChunked ? a.window : 0;
  options.sinks = pass.vector(Role::kSinks, layer);
  if (a.alibi) {
    options.alibi_slopes = pass.alibi_slopes.data();
    options.alibi_bf16_before_scale = a.alibi_bf16;
  }
  return options;
}

Status attend_usual(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  const Projections p = project(pass, on, layout, layer);
  const bool own_cache = a.kv_source_layer < 0;
  const int64_t values = pass.rows * p.v.stride();
  if (own_cache && a.v_from_k) std::memcpy(p.v.data, p.k.data, static_cast<size_t>(values) * sizeof(float));
  if (own_cache && a.v_norm.present())
    norm_rows(on.context, a.v_norm, nullptr, nullptr, p.v.data, a.v_head_dim, pass.rows * a.kv_heads, a.v_head_dim);
  if (!a.qk_norm_after_rope) norm_queries_and_keys(pass, on, layer, p);
  const Rotation rotation(pass, on, layout, a);
  rotation.turn(p.q.data, p.q.stride(), a.heads, a.head_dim);
  if (own_cache) rotation.turn(p.k.data, p.k.stride(), a.kv_heads, a.head_dim);
  if (a.qk_norm_after_rope) norm_queries_and_keys(pass, on, layer, p);
  if (a.query_temperature_scale != 0) scale_by_position(pass, on, a, p.q);

  float* attended = on.at(layout.attended);
  const int64_t out_width = int64_t{a.heads} * a.v_head_dim;
  pass.attention_jobs.clear();
  for (const RowRange& range : pass.ranges) {
    const kernel::KvView cache = pass.kv.view(layer, range.sequence, *on.device);
    if (own_cache)
      kernel::kv_write(on.context, cache, range.position, range.rows, p.k.data + range.first_row * p.k.stride(),
                       p.k.stride(), p.v.data + range.first_row * p.v.stride(), p.v.stride());
    if (range.rows == 0) continue;
    kernel::AttentionJob j;
    j.cache = cache;
    j.position = range.position;
    j.rows = range.rows;
    j.q = p.q.data + range.first_row * p.q.stride();
    j.q_stride = p.q.stride();
    j.out = attended + range.first_row * out_width;
    j.out_stride = out_width;
    pass.attention_jobs.push_back(j);
  }
  if (own_cache) TRY_STATUS(pass.share_rows(layer, on, p.k.data, p.v.data));
  const kernel::AttentionOptions options = options_of(pass, a, layer);
  if (a.kind == arch::AttentionKind::kBlockSparse) {
    attend_chosen_blocks(pass, on, layout, layer, rotation, options);
  } else {
    kernel::attention(on.context, options, pass.attention_jobs, on.scratch(layout));
  }
  if (a.output_gate) {
    float* gate = on.at(layout.gate_q);
    kernel::apply(on.context, kernel::Function::kSigmoid, gate, gate, pass.rows * out_width);
    kernel::multiply(on.context, attended, out_width, gate, out_width, pass.rows, out_width);
  }
  return {};
}

}  // namespace

void apply_norm(const kernel::Context& context, const arch::NormSpec& norm, const float* weight, const float* bias,
                const float* x, int64_t rows, int64_t n, float* y) {
  const auto eps = static_cast<float>(norm.eps);
  switch (norm.kind) {
    case arch::NormKind::kNone:
      if (x != y) std::memcpy(y, x, static_cast<size_t>(rows * n) * sizeof(float));
      return;
    case arch::NormKind::kRms:
      kernel::rms_norm(context, x, n, weight, eps, rows, n, y, n);
      return;
    case arch::NormKind::kLayer:
      kernel::layer_norm(context, x, n, weight, bias, eps, rows, n, y, n);
      return;
  }
}

Rotation::Rotation(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout,
                   const arch::AttentionSpec& attention)
    : context_(&on.context), rows_(pass.rows) {
  if (attention.rope < 0) return;
  rope_ = &pass.spec.ropes[static_cast<size_t>(attention.rope)];
  const RopeRows& host = pass.ropes[static_cast<size_t>(attention.rope)];
  const size_t values = static_cast<size_t>(pass.rows * (rope_->rotary_dim / 2));
  float* cos = on.at(layout.rope);
  float* sin = cos + values;
  std::memcpy(cos, host.cos.data(), values * sizeof(float));
  std::memcpy(sin, host.sin.data(), values * sizeof(float));
  cos_ = cos;
  sin_ = sin;
}

void Rotation::turn(float* x, int64_t stride, int32_t heads, int32_t head_dim) const {
  if (rope_ == nullptr) return;
  kernel::rope(*context_, x, stride, rows_, heads, head_dim, rope_->rotary_dim, layout_of(rope_->layout), cos_, sin_);
}

Status attend(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
              float* y) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  int64_t width = int64_t{a.heads} * a.v_head_dim;
  switch (a.kind) {
    case arch::AttentionKind::kLatent:
      attend_latent(pass, on, layout, layer);
      break;
    case arch::AttentionKind::kDeltaNet:
      attend_delta_net(pass, on, layout, layer);
      width = int64_t{a.linear_value_heads} * a.linear_value_dim;
      break;
    default:
      TRY_STATUS(attend_usual(pass, on, layout, layer));
  }
  Linears out(pass);
  out.add(pass.need(Role::kO, layer), pass.vector(Role::kOBias, layer), y, pass.spec.hidden);
  out.run(on, layout, on.at(layout.attended), pass.rows, width);
  return {};
}

Status run_attention(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::LayerSpec& l = pass.layer(layer);
  const int64_t n = pass.spec.hidden;
  float* hidden = on.at(layout.hidden);
  float* normed = on.at(layout.normed);
  apply_norm(pass, on, l.input_norm, Role::kInputNorm, Role::kInputNormBias, layer, hidden, normed);
  if (l.residual_from_norm) std::memcpy(hidden, normed, static_cast<size_t>(pass.rows * n) * sizeof(float));
  TRY_STATUS(attend(pass, on, layout, layer, normed));
  if (!l.norm_after_residual)
    apply_norm(pass, on, l.attention_out_norm, Role::kAttentionOutNorm, Role::kAttentionOutNormBias, layer, normed,
               normed);
  kernel::add_residual(on.context, hidden, n, normed, n, static_cast<float>(l.residual_multiplier), pass.rows, n);
  if (l.norm_after_residual)
    apply_norm(pass, on, l.attention_out_norm, Role::kAttentionOutNorm, Role::kAttentionOutNormBias, layer, hidden,
               hidden);
  return {};
}

}  // namespace berth::model
