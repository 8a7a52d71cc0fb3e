// model/decoder.cc — attention and MLP of one decoder layer (specs: docs/architectures.md; order: numerics.md).
#include "berth/model/decoder.h"

#include <cmath>
#include <cstring>

#include "berth/base/check.h"
#include "berth/kernel/attention.h"
#include "berth/kernel/elementwise.h"
#include "berth/kernel/norm.h"
#include "berth/kernel/rope.h"

namespace berth::model {
namespace {

using arch::Role;

kernel::LinearJob job(const load::HeldTensor& weight, const load::HeldTensor* bias, float* y, int64_t y_stride) {
  kernel::LinearJob j;
  j.weight = &weight.matrix;
  j.row_count = weight.matrix.rows;
  j.bias = bias == nullptr ? nullptr : bias->as_vector();
  j.y = y;
  j.y_stride = y_stride;
  return j;
}

const load::HeldTensor& need(const load::WeightStore& weights, Role role, int32_t layer) {
  const load::HeldTensor* t = weights.find(role, layer);
  CHECK(t != nullptr);
  return *t;
}

kernel::RopeLayout layout_of(arch::RopeLayout layout) {
  switch (layout) {
    case arch::RopeLayout::kHalves: return kernel::RopeLayout::kHalves;
    case arch::RopeLayout::kPairs: return kernel::RopeLayout::kPairs;
    case arch::RopeLayout::kPairsToHalves: return kernel::RopeLayout::kPairsToHalves;
  }
  CHECK(false);
  return kernel::RopeLayout::kHalves;
}

kernel::Activation activation_of(arch::Activation activation) {
  switch (activation) {
    case arch::Activation::kSilu: return kernel::Activation::kSilu;
    case arch::Activation::kGeluTanh: return kernel::Activation::kGeluTanh;
    case arch::Activation::kGeluErf: return kernel::Activation::kGeluErf;
    case arch::Activation::kRelu: return kernel::Activation::kRelu;
    case arch::Activation::kClampedSwiglu: break;
  }
  CHECK(false);
  return kernel::Activation::kSilu;
}

// q, k or v of the current rows: [rows, heads, head_dim] inside a buffer with a row stride.
struct Heads {
  float* data = nullptr;
  int64_t stride = 0;
  int32_t heads = 0, head_dim = 0;
};

void norm_heads(const kernel::Context& context, const arch::NormSpec& norm, arch::QkNorm kind,
                const load::HeldTensor* weight, int64_t rows, const Heads& x) {
  if (!norm.present()) return;
  const float* w = weight == nullptr ? nullptr : weight->as_vector();
  const auto eps = static_cast<float>(norm.eps);
  const int64_t width = int64_t{x.heads} * x.head_dim;
  if (kind == arch::QkNorm::kAllHeads) {
    kernel::rms_norm(context, x.data, x.stride, w, eps, rows, width, x.data, x.stride);
  } else if (x.stride == width) {
    kernel::rms_norm(context, x.data, x.head_dim, w, eps, rows * x.heads, x.head_dim, x.data, x.head_dim);
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      float* row = x.data + r * x.stride;
      kernel::rms_norm(context, row, x.head_dim, w, eps, x.heads, x.head_dim, row, x.head_dim);
    }
  }
}

struct Projections {
  Heads q, k, v;
};

// q, k, v = W n + b, in the layout's buffers.
Projections project(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::AttentionSpec& a = pass.spec.layers[static_cast<size_t>(layer)].attention;
  const load::WeightStore& w = pass.weights;
  const int64_t q_width = int64_t{a.heads} * a.head_dim;
  const int64_t k_width = int64_t{a.kv_heads} * a.head_dim;
  const int64_t v_width = int64_t{a.kv_heads} * a.v_head_dim;
  Projections p;
  p.q = {on.at(layout.q), q_width, a.heads, a.head_dim};
  p.k = {on.at(layout.k), k_width, a.kv_heads, a.head_dim};
  p.v = {on.at(layout.v), v_width, a.kv_heads, a.v_head_dim};
  kernel::LinearJob jobs[3];
  size_t count = 0;
  if (a.fused == arch::AttentionSpec::Fused::kSplit) {
    jobs[count++] = job(need(w, Role::kQ, layer), w.find(Role::kQBias, layer), p.q.data, p.q.stride);
    jobs[count++] = job(need(w, Role::kK, layer), w.find(Role::kKBias, layer), p.k.data, p.k.stride);
    jobs[count++] = job(need(w, Role::kV, layer), w.find(Role::kVBias, layer), p.v.data, p.v.stride);
  } else {
    const int64_t width = q_width + k_width + v_width;
    p.q.stride = p.k.stride = p.v.stride = width;
    p.k.data = p.q.data + q_width;
    p.v.data = p.k.data + k_width;
    jobs[count++] = job(need(w, Role::kQkv, layer), w.find(Role::kQkvBias, layer), p.q.data, width);
  }
  const kernel::LinearInput input{on.at(layout.normed), pass.rows, pass.spec.hidden, pass.spec.hidden};
  kernel::linear(on.context, input, std::span(jobs, count), on.scratch(layout));
  return p;
}

}  // namespace

void apply_norm(const kernel::Context& context, const arch::NormSpec& norm, const load::HeldTensor* weight,
                const load::HeldTensor* bias, const float* x, int64_t rows, int64_t n, float* y) {
  const float* w = weight == nullptr ? nullptr : weight->as_vector();
  const auto eps = static_cast<float>(norm.eps);
  switch (norm.kind) {
    case arch::NormKind::kNone:
      if (x != y) std::memcpy(y, x, static_cast<size_t>(rows * n) * sizeof(float));
      return;
    case arch::NormKind::kRms:
      kernel::rms_norm(context, x, n, w, eps, rows, n, y, n);
      return;
    case arch::NormKind::kLayer:
      kernel::layer_norm(context, x, n, w, bias == nullptr ? nullptr : bias->as_vector(), eps, rows, n, y, n);
      return;
  }
}

void run_attention(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::LayerSpec& l = pass.spec.layers[static_cast<size_t>(layer)];
  const arch::AttentionSpec& a = l.attention;
  const load::WeightStore& w = pass.weights;
  float* hidden = on.at(layout.hidden);
  float* normed = on.at(layout.normed);
  apply_norm(on.context, l.input_norm, w.find(Role::kInputNorm, layer), w.find(Role::kInputNormBias, layer), hidden,
             pass.rows, pass.spec.hidden, normed);
  const Projections p = project(pass, on, layout, layer);
  norm_heads(on.context, a.q_norm, a.qk_norm, w.find(Role::kQNorm, layer), pass.rows, p.q);
  norm_heads(on.context, a.k_norm, a.qk_norm, w.find(Role::kKNorm, layer), pass.rows, p.k);
  if (a.rope >= 0) {
    const arch::RopeSpec& r = pass.spec.ropes[static_cast<size_t>(a.rope)];
    const RopeRows& host = pass.ropes[static_cast<size_t>(a.rope)];
    const size_t values = static_cast<size_t>(pass.rows * (r.rotary_dim / 2));
    float* cos = on.at(layout.rope);
    float* sin = cos + values;
    std::memcpy(cos, host.cos.data(), values * sizeof(float));
    std::memcpy(sin, host.sin.data(), values * sizeof(float));
    for (const Heads& x : {p.q, p.k})
      kernel::rope(on.context, x.data, x.stride, pass.rows, x.heads, x.head_dim, r.rotary_dim, layout_of(r.layout), cos, sin);
  }

  float* attended = on.at(layout.attended);
  const int64_t out_width = int64_t{a.heads} * a.v_head_dim;
  pass.attention_jobs.clear();
  for (const RowRange& range : pass.ranges) {
    const kernel::KvView cache = pass.kv.view(layer, range.sequence);
    kernel::kv_write(on.context, cache, range.position, range.rows, p.k.data + range.first_row * p.k.stride, p.k.stride,
                     p.v.data + range.first_row * p.v.stride, p.v.stride);
    kernel::AttentionJob j;
    j.cache = cache;
    j.position = range.position;
    j.rows = range.rows;
    j.q = p.q.data + range.first_row * p.q.stride;
    j.q_stride = p.q.stride;
    j.out = attended + range.first_row * out_width;
    j.out_stride = out_width;
    pass.attention_jobs.push_back(j);
  }
  kernel::AttentionOptions options;
  options.heads = a.heads;
  options.scale = static_cast<float>(a.scale);
  options.softcap = static_cast<float>(a.softcap);
  options.window = a.kind == arch::AttentionKind::kSliding ? a.window : 0;
  options.chunk = a.kind == arch::AttentionKind::kChunked ? a.window : 0;
  const load::HeldTensor* sinks = w.find(Role::kSinks, layer);
  options.sinks = sinks == nullptr ? nullptr : sinks->as_vector();
  kernel::attention(on.context, options, pass.attention_jobs, on.scratch(layout));

  const kernel::LinearJob out = job(need(w, Role::kO, layer), w.find(Role::kOBias, layer), normed, pass.spec.hidden);
  kernel::linear(on.context, {attended, pass.rows, out_width, out_width}, std::span(&out, 1), on.scratch(layout));
  if (l.attention_out_norm.present())
    apply_norm(on.context, l.attention_out_norm, w.find(Role::kAttentionOutNorm, layer), nullptr, normed, pass.rows,
               pass.spec.hidden, normed);
  kernel::add_residual(on.context, hidden, pass.spec.hidden, normed, pass.spec.hidden,
                       static_cast<float>(l.residual_multiplier), pass.rows, pass.spec.hidden);
}

void run_mlp(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::LayerSpec& l = pass.spec.layers[static_cast<size_t>(layer)];
  const arch::MlpSpec& m = l.mlp;
  const load::WeightStore& w = pass.weights;
  const int64_t hidden_size = pass.spec.hidden;
  float* hidden = on.at(layout.hidden);
  float* normed = on.at(layout.normed);
  apply_norm(on.context, l.mlp_norm, w.find(Role::kMlpNorm, layer), w.find(Role::kMlpNormBias, layer), hidden, pass.rows,
             hidden_size, normed);
  float* gate = on.at(layout.gate);
  float* up = on.at(layout.up);
  const int64_t inner = m.intermediate;
  int64_t stride = inner;
  kernel::LinearJob jobs[2];
  size_t count = 0;
  if (m.fused_gate_up) {
    stride = 2 * inner;
    up = gate + inner;
    jobs[count++] = job(need(w, Role::kGateUp, layer), w.find(Role::kGateUpBias, layer), gate, stride);
  } else {
    if (m.gated) jobs[count++] = job(need(w, Role::kGate, layer), w.find(Role::kGateBias, layer), gate, stride);
    jobs[count++] = job(need(w, Role::kUp, layer), w.find(Role::kUpBias, layer), m.gated ? up : gate, stride);
  }
  const kernel::LinearInput input{normed, pass.rows, hidden_size, hidden_size};
  kernel::linear(on.context, input, std::span(jobs, count), on.scratch(layout));
  kernel::activate(on.context, activation_of(m.activation), gate, stride, m.gated ? up : nullptr, stride, pass.rows, inner,
                   gate, stride);
  const kernel::LinearJob down = job(need(w, Role::kDown, layer), w.find(Role::kDownBias, layer), normed, hidden_size);
  kernel::linear(on.context, {gate, pass.rows, inner, stride}, std::span(&down, 1), on.scratch(layout));
  if (l.mlp_out_norm.present())
    apply_norm(on.context, l.mlp_out_norm, w.find(Role::kMlpOutNorm, layer), nullptr, normed, pass.rows, hidden_size, normed);
  kernel::add_residual(on.context, hidden, hidden_size, normed, hidden_size, static_cast<float>(l.residual_multiplier),
                       pass.rows, hidden_size);
}

}  // namespace berth::model
