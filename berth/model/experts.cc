// model/experts.cc — routing, the expert bank, and the sum (docs/numerics.md 2: chosen experts in ascending index, then
// the routed scale, then the shared expert).
#include <algorithm>
#include <cmath>

#include "berth/kernel/elementwise.h"
#include "berth/kernel/gated.h"
#include "berth/kernel/mixture.h"
#include "berth/kernel/norm.h"
#include "berth/model/mlp.h"

namespace berth::model {

using arch::Role;

namespace {

constexpr MlpRoles kSharedRoles{Role::kSharedGate, Role::kSharedUp, Role::kSharedGateUp, Role::kSharedDown, false};

kernel::RouterOptions options_of(const ForwardState& pass, const arch::MoeSpec& moe, int32_t layer) {
  kernel::RouterOptions options;
  switch (moe.router) {
    case arch::RouterKind::kSoftmaxThenTopK:
      options.kind = kernel::RouterKind::kSoftmaxThenTopK;
      break;
    case arch::RouterKind::kTopKThenSoftmax:
      options.kind = kernel::RouterKind::kTopKThenSoftmax;
      break;
    case arch::RouterKind::kSigmoid:
      options.kind = kernel::RouterKind::kSigmoid;
      break;
  }
  options.experts = moe.experts;
  options.chosen = moe.experts_per_token;
  options.renormalize = moe.renormalize;
  options.choose_by_logits = moe.weight_on_input;
  options.groups = moe.groups;
  options.groups_chosen = moe.groups_per_token;
  options.selection_bias = moe.selection_bias ? pass.vector(Role::kSelectionBias, layer) : nullptr;
  options.expert_scale = pass.vector(Role::kRouterExpertScale, layer);
  return options;
}

// Ids and weights of every row for router input x.
void choose_experts(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer,
                    const float* x) {
  const arch::MoeSpec& moe = *pass.layer(layer).mlp.moe;
  float* logits = on.at(layout.router);
  Linears linears(pass);
  linears.add(pass.need(Role::kRouter, layer), pass.vector(Role::kRouterBias, layer), logits, moe.experts);
  linears.run(on, layout, x, pass.rows, pass.spec.hidden);
  kernel::route(on.context, options_of(pass, moe, layer), logits, pass.rows, on.ids(layout.expert_ids),
                on.at(layout.expert_weights));
}

// Gemma 4: router, experts and the dense MLP each read the raw residual through a norm of their own.
void route_beside_dense(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout,
                        int32_t layer) {
  const arch::LayerSpec& l = pass.layer(layer);
  const int64_t n = pass.spec.hidden;
  const float* hidden = on.at(layout.hidden);
  float* normed = on.at(layout.normed);
  kernel::rms_norm(on.context, hidden, n, pass.vector(Role::kRouterScale, layer), static_cast<float>(l.mlp_norm.eps),
                   pass.rows, n, normed, n);
  kernel::scale(on.context, normed, n, static_cast<float>(1 / std::sqrt(static_cast<double>(n))), pass.rows, n);
  choose_experts(pass, on, layout, layer, normed);
  apply_norm(pass, on, l.mlp_norm, Role::kMoeInputNorm, Role::kMoeInputNorm, layer, hidden, on.at(layout.expert_input));
  float* shared = on.at(layout.shared);
  apply_norm(pass, on, l.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias, layer, hidden, normed);
  gated_mlp(pass, on, layout, layer, {}, l.mlp.intermediate, normed, shared);
  apply_norm(pass, on, l.mlp_norm, Role::kMoeDenseOutNorm, Role::kMoeDenseOutNorm, layer, shared, shared);
}

// Rows and weights in the order of their experts: rows of expert e are order[begin[e] .. begin[e + 1]).
struct Groups {
  int32_t* begin;  // [experts + 1]
  int32_t* row;    // [rows * chosen]
  float* weight;   // the same
};

Groups group_rows(const DeviceState& on, const sizing::WorkspaceLayout& layout, const arch::MoeSpec& moe,
                  int64_t rows) {
  const int32_t* ids = on.ids(layout.expert_ids);
  const float* weights = on.at(layout.expert_weights);
  const int64_t slots = rows * moe.experts_per_token;
  Groups g{on.ids(layout.expert_order), on.ids(layout.expert_order) + moe.experts + 1, on.at(layout.expert_factors)};
  std::fill(g.begin, g.begin + moe.experts + 1, 0);
  for (int64_t s = 0; s < slots; ++s) ++g.begin[ids[s] + 1];
  for (int32_t e = 0; e < moe.experts; ++e) g.begin[e + 1] += g.begin[e];
  // Slots are visited in row order, so rows ascend within an expert; begin[e] moves on as e fills and is set back
  // after.
  for (int64_t s = 0; s < slots; ++s) {
    const int32_t at = g.begin[ids[s]]++;
    g.row[at] = static_cast<int32_t>(s / moe.experts_per_token);
    g.weight[at] = weights[s];
  }
  for (int32_t e = moe.experts; e > 0; --e) g.begin[e] = g.begin[e - 1];
  g.begin[0] = 0;
  return g;
}

// One expert over its rows, y [rows, H].
class Expert {
 public:
  Expert(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer)
      : pass_(pass),
        on_(on),
        layout_(layout),
        mlp_(pass.layer(layer).mlp),
        gate_up_(pass.need(Role::kExpertsGateUp, layer)),
        down_(pass.need(Role::kExpertsDown, layer)),
        gate_up_bias_(pass.vector(Role::kExpertsGateUpBias, layer)),
        down_bias_(pass.vector(Role::kExpertsDownBias, layer)) {}

  void run(int32_t expert, const float* x, int64_t rows, float* y) const {
    float* inner = on_.at(layout_.expert_inner);
    Linears in(pass_);
    in.add_rows(gate_up_, gate_up_bias_, expert * 2 * inner_width(), 2 * inner_width(), inner, 2 * inner_width());
    in.run(on_, layout_, x, rows, pass_.spec.hidden);
    finish(expert, inner, rows, y);
  }

  // One row through several experts: they read the same x in one call. y of expert i follows in turn.
  void begin_row(const int32_t* experts, int32_t count, const float* x) const {
    Linears in(pass_);
    for (int32_t i = 0; i < count; ++i)
      in.add_rows(gate_up_, gate_up_bias_, experts[i] * 2 * inner_width(), 2 * inner_width(), inner_of(i),
                  2 * inner_width());
    in.run(on_, layout_, x, 1, pass_.spec.hidden);
  }
  void finish_row(int32_t expert, int32_t index, float* y) const { finish(expert, inner_of(index), 1, y); }

  // The matrices of one expert, as pieces of the weight stream.
  load::StreamPiece gate_up_piece(int32_t e) const {
    return {gate_up_.index, e * 2 * inner_width(), 2 * inner_width()};
  }
  load::StreamPiece down_piece(int32_t e) const { return {down_.index, e * pass_.spec.hidden, pass_.spec.hidden}; }

 private:
  int64_t inner_width() const { return mlp_.moe->intermediate; }
  float* inner_of(int32_t i) const { return on_.at(layout_.expert_inner) + i * 2 * inner_width(); }
  void finish(int32_t expert, float* inner, int64_t rows, float* y) const {
    const int64_t n = pass_.spec.hidden, width = inner_width();
    activate_gated(on_.context, mlp_, inner, 2 * width, inner + width, 2 * width, rows, width);
    Linears out(pass_);
    out.add_rows(down_, down_bias_, expert * n, n, y, n);
    out.run(on_, layout_, inner, rows, width, 2 * width);
  }

  const ForwardState& pass_;
  DeviceState& on_;
  const sizing::WorkspaceLayout& layout_;
  const arch::MlpSpec& mlp_;
  const load::HeldTensor& gate_up_;
  const load::HeldTensor& down_;
  const float* gate_up_bias_;
  const float* down_bias_;
};

}  // namespace

void route_experts(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::LayerSpec& l = pass.layer(layer);
  const arch::MoeSpec& moe = *l.mlp.moe;
  if (moe.parallel_dense) return route_beside_dense(pass, on, layout, layer);
  const int64_t n = pass.spec.hidden;
  float* x = on.at(layout.expert_input);
  apply_norm(pass, on, l.mlp_norm, Role::kMlpNorm, Role::kMlpNormBias, layer, on.at(layout.hidden), x);
  choose_experts(pass, on, layout, layer, x);
  if (moe.shared_intermediate == 0) return;
  float* shared = on.at(layout.shared);
  gated_mlp(pass, on, layout, layer, kSharedRoles, moe.shared_intermediate, x, shared);
  if (!moe.shared_gate) return;
  float* gate = on.at(layout.shared_gate);
  Linears linears(pass);
  linears.add(pass.need(Role::kSharedRouter, layer), nullptr, gate, 1);
  linears.run(on, layout, x, pass.rows, n);
  kernel::apply(on.context, kernel::Function::kSigmoid, gate, gate, pass.rows);
  kernel::scale_rows(on.context, shared, n, gate, pass.rows, n, shared, n);
}

void run_experts(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::MoeSpec& moe = *pass.layer(layer).mlp.moe;
  const int64_t n = pass.spec.hidden;
  const float* x = on.at(layout.expert_input);
  float* sum = on.at(layout.expert_sum);
  float* out = on.at(layout.expert_out);
  std::fill(sum, sum + pass.rows * n, 0.0f);
  const Expert expert(pass, on, layout, layer);
  if (pass.rows == 1 && !moe.weight_on_input) {
    const int32_t* ids = on.ids(layout.expert_ids);
    const float* weights = on.at(layout.expert_weights);
    const int32_t row = 0;
    if (pass.stream != nullptr) {
      pass.expert_pieces.clear();
      for (int32_t i = 0; i < moe.experts_per_token; ++i) pass.expert_pieces.push_back(expert.gate_up_piece(ids[i]));
      for (int32_t i = 0; i < moe.experts_per_token; ++i) pass.expert_pieces.push_back(expert.down_piece(ids[i]));
      pass.stream->route(pass.expert_pieces);
    }
    expert.begin_row(ids, moe.experts_per_token, x);
    for (int32_t i = 0; i < moe.experts_per_token; ++i) {
      expert.finish_row(ids[i], i, out);
      kernel::accumulate_rows(on.context, out, n, &row, weights + i, 1, n, sum, n);
    }
    return;
  }
  const Groups groups = group_rows(on, layout, moe, pass.rows);
  float* rows = on.at(layout.expert_rows);
  if (pass.stream != nullptr) {
    pass.expert_pieces.clear();
    for (int32_t e = 0; e < moe.experts; ++e) {
      if (groups.begin[e + 1] == groups.begin[e]) continue;
      pass.expert_pieces.push_back(expert.gate_up_piece(e));
      pass.expert_pieces.push_back(expert.down_piece(e));
    }
    pass.stream->route(pass.expert_pieces);
  }
  for (int32_t e = 0; e < moe.experts; ++e) {
    const int64_t begin = groups.begin[e], count = groups.begin[e + 1] - begin;
    if (count == 0) continue;
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(rows + i * n, x + groups.row[begin + i] * n, static_cast<size_t>(n) * sizeof(float));
    if (moe.weight_on_input) kernel::scale_rows(on.context, rows, n, groups.weight + begin, count, n, rows, n);
    expert.run(e, rows, count, out);
    kernel::accumulate_rows(on.context, out, n, groups.row + begin,
                            moe.weight_on_input ? nullptr : groups.weight + begin, count, n, sum, n);
  }
}

void finish_experts(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::LayerSpec& l = pass.layer(layer);
  const arch::MoeSpec& moe = *l.mlp.moe;
  const int64_t n = pass.spec.hidden;
  float* sum = on.at(layout.expert_sum);
  if (moe.routed_scale != 1) kernel::scale(on.context, sum, n, static_cast<float>(moe.routed_scale), pass.rows, n);
  if (moe.parallel_dense) apply_norm(pass, on, l.mlp_norm, Role::kMoeOutNorm, Role::kMoeOutNorm, layer, sum, sum);
  if (moe.parallel_dense || moe.shared_intermediate > 0)
    kernel::add_residual(on.context, sum, n, on.at(layout.shared), n, 1, pass.rows, n);
  add_mlp(pass, on, layout, layer, sum);
}

}  // namespace berth::model
