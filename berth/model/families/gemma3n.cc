// model/families/gemma3n.cc — see gemma3n.h.
#include "berth/model/families/gemma3n.h"

#include <cmath>

#include "berth/kernel/elementwise.h"
#include "berth/kernel/norm.h"
#include "berth/kernel/streams.h"
#include "berth/model/attention.h"
#include "berth/model/mlp.h"

namespace berth::model {

using arch::Role;

namespace {

// modalities = tanh(router(router_norm(x) / H)), then coefficients = coefs(modalities).
void coefficients(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
                  const float* x, float* normed, Role coefs, int64_t count) {
  const int64_t n = pass.spec.hidden, streams = pass.spec.altup.inputs;
  float* modalities = on.at(layout.modalities);
  apply_norm(pass, on, pass.layer(layer).input_norm, Role::kAltUpRouterNorm, Role::kAltUpRouterNorm, layer, x, normed);
  kernel::scale(on.context, normed, n, static_cast<float>(1 / static_cast<double>(n)), pass.rows, n);
  Linears router(pass);
  router.add(pass.need(Role::kAltUpRouter, layer), nullptr, modalities, streams);
  router.run(on, layout, normed, pass.rows, n);
  kernel::apply(on.context, kernel::Function::kTanh, modalities, modalities, pass.rows * streams);
  Linears linears(pass);
  linears.add(pass.need(coefs, layer), nullptr, on.at(layout.coefficients), count);
  linears.run(on, layout, modalities, pass.rows, streams);
}

// branch = n + post_laurel_norm(right(left(n))).
void laurel(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
            const float* normed, float* branch) {
  const int64_t n = pass.spec.hidden, rank = pass.spec.altup.laurel_rank;
  float* left = on.at(layout.laurel);
  Linears first(pass);
  first.add(pass.need(Role::kLaurelLeft, layer), nullptr, left, rank);
  first.run(on, layout, normed, pass.rows, n);
  Linears second(pass);
  second.add(pass.need(Role::kLaurelRight, layer), nullptr, branch, n);
  second.run(on, layout, left, pass.rows, rank);
  apply_norm(pass, on, pass.layer(layer).input_norm, Role::kLaurelNorm, Role::kLaurelNorm, layer, branch, branch);
  kernel::add_residual(on.context, branch, n, normed, n, 1, pass.rows, n);
}

}  // namespace

void split_streams(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout) {
  const int64_t n = pass.spec.hidden;
  float* first = on.at(layout.hidden);
  for (int32_t i = 1; i < pass.spec.altup.inputs; ++i) {
    float* stream = first + i * pass.rows * n;
    Linears linears(pass);
    linears.add(pass.need(Role::kAltUpProjection, i - 1), nullptr, stream, n);
    linears.run(on, layout, first, pass.rows, n);
    kernel::match_magnitude(on.context, stream, n, first, n, pass.rows, n);
  }
}

Status run_altup_layer(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout,
                       int32_t layer) {
  const arch::LayerSpec& l = pass.layer(layer);
  const arch::AltUpSpec& altup = pass.spec.altup;
  const int64_t n = pass.spec.hidden, plane = pass.rows * n;
  float* streams = on.at(layout.hidden);
  float* active = streams + altup.active * plane;
  float* normed = on.at(layout.normed);
  float* branch = on.at(layout.branch);

  coefficients(pass, on, layout, layer, active, normed, Role::kAltUpPredictCoefs, int64_t{altup.inputs} * altup.inputs);
  kernel::predict_streams(on.context, streams, altup.inputs, pass.rows, n, on.at(layout.coefficients));

  // branch = g = ((p + attention) + laurel) / sqrt(2)
  apply_norm(pass, on, l.input_norm, Role::kInputNorm, Role::kInputNormBias, layer, active, normed);
  laurel(pass, on, layout, layer, normed, branch);
  TRY_STATUS(attend(pass, on, layout, layer, normed));
  apply_norm(pass, on, l.attention_out_norm, Role::kAttentionOutNorm, Role::kAttentionOutNormBias, layer, normed,
             normed);
  kernel::add_residual(on.context, normed, n, active, n, 1, pass.rows, n);
  kernel::add_residual(on.context, branch, n, normed, n, 1, pass.rows, n);
  kernel::divide(on.context, branch, n, static_cast<float>(std::sqrt(2.0)), pass.rows, n);

  // branch = f = g + out_norm(mlp(norm(g)))
  apply_norm(pass, on, l.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias, layer, branch, normed);
  gated_mlp(pass, on, layout, layer, {}, l.mlp.intermediate, normed, normed);
  apply_norm(pass, on, l.mlp_out_norm, Role::kMlpOutNorm, Role::kMlpOutNormBias, layer, normed, normed);
  kernel::add_residual(on.context, branch, n, normed, n, 1, pass.rows, n);

  coefficients(pass, on, layout, layer, branch, normed, Role::kAltUpCorrectCoefs, altup.inputs);
  kernel::correct_streams(on.context, streams, altup.inputs, altup.active, pass.rows, n, branch,
                          on.at(layout.coefficients));

  // Its per-layer embedding is added to all streams but the first.
  std::memcpy(branch, active, static_cast<size_t>(plane) * sizeof(float));
  if (altup.correct_scale) {
    const float* factors = pass.vector(Role::kAltUpCorrectScale, layer);
    for (int64_t r = 0; r < pass.rows; ++r)
      for (int64_t i = 0; i < n; ++i) branch[r * n + i] = branch[r * n + i] * factors[i];
  }
  per_layer_branch(pass, on, layout, layer, branch, normed);
  for (int32_t i = 1; i < altup.inputs; ++i)
    kernel::add_residual(on.context, streams + i * plane, n, normed, n, 1, pass.rows, n);
  return {};
}

void merge_streams(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout,
                   std::span<const int64_t> row_of) {
  const int64_t n = pass.spec.hidden, inputs = pass.spec.altup.inputs;
  const auto count = static_cast<int64_t>(row_of.size());
  const float* streams = on.at(layout.hidden);
  float* merged = on.at(layout.merged);
  float* rows = on.at(layout.normed);
  float* stream = on.at(layout.stream);
  const auto gather = [&](int64_t i, float* to) {
    for (int64_t r = 0; r < count; ++r)
      std::memcpy(to + r * n, streams + (i * pass.rows + row_of[static_cast<size_t>(r)]) * n,
                  static_cast<size_t>(n) * sizeof(float));
  };
  gather(0, merged);
  // Magnitudes are the first stream's, so the sum is kept apart until all are there: stream 0 is read again each time.
  for (int64_t i = 1; i < inputs; ++i) {
    gather(i, rows);
    Linears linears(pass);
    linears.add(pass.need(Role::kAltUpUnembedProjection, static_cast<int32_t>(i - 1)), nullptr, stream, n);
    linears.run(on, layout, rows, count, n);
    gather(0, rows);
    kernel::match_magnitude(on.context, stream, n, rows, n, count, n);
    kernel::add_residual(on.context, merged, n, stream, n, 1, count, n);
  }
  kernel::divide(on.context, merged, n, static_cast<float>(inputs), count, n);
}

}  // namespace berth::model
