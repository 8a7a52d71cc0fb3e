// model/mlp.cc — the dense MLP, what ends a layer, and parallel blocks (docs/architectures.md; order:
// docs/numerics.md).
#include "berth/model/mlp.h"

#include "berth/kernel/elementwise.h"
#include "berth/kernel/gated.h"
#include "berth/model/attention.h"

namespace berth::model {

using arch::Role;

namespace {

kernel::Activation activation_of(arch::Activation activation) {
  switch (activation) {
    case arch::Activation::kSilu:
      return kernel::Activation::kSilu;
    case arch::Activation::kGeluTanh:
      return kernel::Activation::kGeluTanh;
    case arch::Activation::kGeluErf:
      return kernel::Activation::kGeluErf;
    case arch::Activation::kRelu:
      return kernel::Activation::kRelu;
    case arch::Activation::kClampedSwiglu:
      break;
  }
  CHECK(false);
  return kernel::Activation::kSilu;
}

// What comes after the MLP's residual: the layer's part of the per-layer embedding, then its scalar.
void end_layer(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::LayerSpec& l = pass.layer(layer);
  const int64_t n = pass.spec.hidden;
  float* hidden = on.at(layout.hidden);
  if (l.per_layer_embedding) {
    float* branch = on.at(layout.normed);
    per_layer_branch(pass, on, layout, layer, hidden, branch);
    kernel::add_residual(on.context, hidden, n, branch, n, 1, pass.rows, n);
  }
  if (l.layer_scalar) kernel::scale(on.context, hidden, n, pass.vector(Role::kLayerScalar, layer)[0], pass.rows, n);
}

}  // namespace

void add_mlp(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
             float* y) {
  const arch::LayerSpec& l = pass.layer(layer);
  const int64_t n = pass.spec.hidden;
  float* hidden = on.at(layout.hidden);
  if (!l.norm_after_residual)
    apply_norm(pass, on, l.mlp_out_norm, Role::kMlpOutNorm, Role::kMlpOutNormBias, layer, y, y);
  kernel::add_residual(on.context, hidden, n, y, n, static_cast<float>(l.residual_multiplier), pass.rows, n);
  if (l.norm_after_residual)
    apply_norm(pass, on, l.mlp_out_norm, Role::kMlpOutNorm, Role::kMlpOutNormBias, layer, hidden, hidden);
  end_layer(pass, on, layout, layer);
}

void activate_gated(const kernel::Context& context, const arch::MlpSpec& mlp, float* gate, int64_t gate_stride,
                    const float* up, int64_t up_stride, int64_t rows, int64_t inner) {
  if (mlp.sparsity_icdf)
    kernel::sparsify(context, gate, gate_stride, static_cast<float>(*mlp.sparsity_icdf), rows, inner);
  if (mlp.activation == arch::Activation::kClampedSwiglu) {
    kernel::clamped_swiglu(context, gate, gate_stride, up, up_stride, static_cast<float>(mlp.swiglu_limit),
                           static_cast<float>(mlp.swiglu_alpha), rows, inner, gate, gate_stride);
  } else {
    kernel::activate(context, activation_of(mlp.activation), gate, gate_stride, up, up_stride, rows, inner, gate,
                     gate_stride);
  }
}

void gated_mlp(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
               const MlpRoles& roles, int64_t inner, const float* x, float* y) {
  const arch::MlpSpec& m = pass.layer(layer).mlp;
  const int64_t n = pass.spec.hidden;
  const auto bias = [&](Role role) { return roles.bias ? pass.vector(role, layer) : nullptr; };
  float* gate = on.at(layout.gate);
  float* up = nullptr;
  int64_t stride = inner;
  Linears in(pass);
  if (m.fused_gate_up) {
    stride = 2 * inner;
    up = gate + inner;
    in.add(pass.need(roles.gate_up, layer), bias(Role::kGateUpBias), gate, stride);
  } else if (m.gated) {
    up = on.at(layout.up);
    in.add(pass.need(roles.gate, layer), bias(Role::kGateBias), gate, stride);
    in.add(pass.need(roles.up, layer), bias(Role::kUpBias), up, stride);
  } else {
    in.add(pass.need(roles.up, layer), bias(Role::kUpBias), gate, stride);
  }
  in.run(on, layout, x, pass.rows, n);
  activate_gated(on.context, m, gate, stride, up, stride, pass.rows, inner);
  Linears out(pass);
  out.add(pass.need(roles.down, layer), bias(Role::kDownBias), y, n);
  out.run(on, layout, gate, pass.rows, inner, stride);
}

void per_layer_branch(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
                      const float* x, float* y) {
  const arch::PerLayerEmbeddingSpec& ple = pass.spec.per_layer_embedding;
  const int64_t n = pass.spec.hidden, width = ple.dim;
  float* gate = on.at(layout.gate);
  const float* embedding = on.at(layout.per_layer) + layer * pass.rows * width;
  Linears in(pass);
  in.add(pass.need(Role::kPleGate, layer), nullptr, gate, width);
  in.run(on, layout, x, pass.rows, n);
  kernel::activate(on.context, activation_of(pass.layer(layer).mlp.activation), gate, width, embedding, width,
                   pass.rows, width, gate, width);
  Linears out(pass);
  out.add(pass.need(Role::kPleProjection, layer), nullptr, y, n);
  out.run(on, layout, gate, pass.rows, width);
  apply_norm(pass, on, ple.norm, Role::kPleNorm, Role::kPleNorm, layer, y, y);
}

void run_mlp(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::LayerSpec& l = pass.layer(layer);
  if (l.mlp.moe) return route_experts(pass, on, layout, layer);
  float* hidden = on.at(layout.hidden);
  float* normed = on.at(layout.normed);
  apply_norm(pass, on, l.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias, layer, hidden, normed);
  if (l.residual_from_norm)
    std::memcpy(hidden, normed, static_cast<size_t>(pass.rows * pass.spec.hidden) * sizeof(float));
  gated_mlp(pass, on, layout, layer, {}, l.mlp.intermediate, normed, normed);
  add_mlp(pass, on, layout, layer, normed);
}

Status run_parallel(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::LayerSpec& l = pass.layer(layer);
  const int64_t n = pass.spec.hidden;
  float* hidden = on.at(layout.hidden);
  float* normed = on.at(layout.normed);
  float* branch = on.at(layout.branch);
  apply_norm(pass, on, l.input_norm, Role::kInputNorm, Role::kInputNormBias, layer, hidden, normed);
  TRY_STATUS(attend(pass, on, layout, layer, branch));
  if (l.mlp_norm.present()) apply_norm(pass, on, l.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias, layer, hidden, normed);
  gated_mlp(pass, on, layout, layer, {}, l.mlp.intermediate, normed, normed);
  // h + (attention + mlp), whichever comes first in the sum; or (h + attention) + mlp.
  if (l.parallel_order == arch::LayerSpec::ParallelOrder::kHAttnThenMlp) {
    kernel::add_residual(on.context, hidden, n, branch, n, 1, pass.rows, n);
  } else {
    kernel::add_residual(on.context, normed, n, branch, n, 1, pass.rows, n);
  }
  kernel::add_residual(on.context, hidden, n, normed, n, 1, pass.rows, n);
  return {};
}

}  // namespace berth::model
