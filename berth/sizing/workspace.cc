// sizing/workspace.cc — see workspace.h.
#include "berth/sizing/workspace.h"

#include <algorithm>
#include <initializer_list>

#include "berth/base/bytes.h"
#include "berth/quant/scratch.h"

namespace berth::sizing {
namespace {

// Lays slices one after the other.
class Layouter {
 public:
  Slice take(uint64_t bytes) {
    const Slice s{at_, align_up<uint64_t>(bytes, 64)};
    at_ += s.bytes;
    return s;
  }
  Slice floats(std::initializer_list<int64_t> extents) {
    uint64_t n = 4;
    for (const int64_t e : extents) n *= static_cast<uint64_t>(std::max<int64_t>(e, 0));
    return take(n);
  }
  uint64_t total() const { return at_; }

 private:
  uint64_t at_ = 0;
};

// Linears of so many rows.
uint64_t linear_scratch_of(int64_t m, int64_t k, const RunShape& shape) {
  return quant::linear_scratch_bytes(m, k, shape.int8_numerics, shape.threads);
}
// Of several input widths.
uint64_t linear_scratch_of(int64_t m, std::initializer_list<int64_t> widths, const RunShape& shape) {
  return linear_scratch_of(m, std::max(widths), shape);
}

int32_t rotary_dim(const arch::ModelSpec& spec, const arch::AttentionSpec& a) {
  return a.rope < 0 ? 0 : spec.ropes[static_cast<size_t>(a.rope)].rotary_dim;
}

// What outlives a unit.
void lay_streams(const arch::ModelSpec& spec, const RunShape& shape, Layouter& at, WorkspaceLayout& w) {
  w.hidden = at.floats({std::max(1, spec.altup.inputs), shape.rows(), spec.hidden});
  w.per_layer = at.floats({static_cast<int64_t>(spec.layers.size()), shape.rows(), spec.per_layer_embedding.dim});
}

// Heads of latent attention whose K and V are expanded together: as many as fit kExpandedBytes, at least one.
constexpr int64_t kExpandedBytes = int64_t{32} << 20;
int32_t latent_heads_at_once(const arch::AttentionSpec& a, int64_t positions) {
  const int64_t per_head = positions * (int64_t{a.head_dim} + a.v_head_dim) * 8;
  return static_cast<int32_t>(std::clamp<int64_t>(kExpandedBytes / std::max<int64_t>(per_head, 1), 1, a.heads));
}

uint64_t lay_latent(const arch::AttentionSpec& a, int64_t rows, const RunShape& shape, Layouter& at,
                    WorkspaceLayout& w) {
  const int64_t positions = align_up<int64_t>(std::max<int64_t>(shape.ctx_size, 1), 128);
  w.latent_heads = latent_heads_at_once(a, positions);
  w.latent_q = at.floats({rows, a.q_lora_rank});
  w.latent = at.floats({rows, int64_t{a.kv_lora_rank} + a.rope_head_dim});
  w.latent_rows = at.floats({positions, a.kv_lora_rank});
  w.latent_rope = at.floats({positions, a.rope_head_dim});
  w.expanded_k = at.floats({positions, w.latent_heads, a.head_dim});
  w.expanded_v = at.floats({positions, w.latent_heads, a.v_head_dim});
  w.cache_k = at.floats({positions, w.latent_heads, a.head_dim});
  w.cache_v = at.floats({positions, w.latent_heads, a.v_head_dim});
  return std::max(linear_scratch_of(rows, std::max(a.q_lora_rank, 1), shape),
                  linear_scratch_of(positions, a.kv_lora_rank, shape));
}

void lay_delta_net(const arch::AttentionSpec& a, int64_t rows, Layouter& at, WorkspaceLayout& w) {
  const int64_t keys = int64_t{a.linear_key_heads} * a.linear_key_dim;
  const int64_t values = int64_t{a.linear_value_heads} * a.linear_value_dim;
  w.mixed = at.floats({rows, 2 * keys + values});
  w.convolved = at.floats({rows, 2 * keys + values});
  w.z = at.floats({rows, values});
  for (Slice* s : {&w.delta_b, &w.delta_a, &w.beta, &w.decay}) *s = at.floats({rows, a.linear_value_heads});
  w.attended = at.floats({rows, values});
}

// Attention's buffers after `normed`; what its kernels ask for.
uint64_t lay_attention(const arch::ModelSpec& spec, const arch::AttentionSpec& a, int64_t rows, const RunShape& shape,
                       Layouter& at, WorkspaceLayout& w) {
  if (a.kind == arch::AttentionKind::kDeltaNet) {
    lay_delta_net(a, rows, at, w);
    return linear_scratch_of(rows, {spec.hidden, int64_t{a.linear_value_heads} * a.linear_value_dim}, shape);
  }
  const int64_t out = int64_t{a.heads} * a.v_head_dim;
  w.q = at.floats({rows, a.heads, a.head_dim});
  uint64_t scratch = linear_scratch_of(rows, {spec.hidden, out}, shape);
  int64_t heads = a.heads;
  if (a.kind == arch::AttentionKind::kLatent) {
    scratch = std::max(scratch, lay_latent(a, rows, shape, at, w));
    heads = w.latent_heads;
  } else {
    // A layer that reads another's cache needs room for the rows that a copy of that cache is written from: all of
    // them.
    w.k = at.floats({shape.rows(), a.kv_heads, a.head_dim});
    w.v = at.floats({shape.rows(), a.kv_heads, a.v_head_dim});
  }
  w.attended = at.floats({rows, a.heads, a.v_head_dim});
  w.rope = at.floats({rows, rotary_dim(spec, a)});
  if (a.output_gate) w.gate_q = at.floats({rows, a.heads, a.v_head_dim});
  if (a.kind == arch::AttentionKind::kBlockSparse) {
    w.index_q = at.floats({rows, a.index_heads, a.index_head_dim});
    w.index_k = at.floats({rows, a.index_head_dim});
    w.index_scores = at.floats({rows, shape.ctx_size / std::max(a.index_block, 1) + 1});
    w.index_chosen = at.floats({rows, a.index_heads, a.index_top_k});
    scratch = std::max(scratch, static_cast<uint64_t>(rows) * static_cast<uint64_t>(a.v_head_dim) * 4);
  }
  return std::max(scratch,
                  quant::attention_scratch_bytes(heads, a.head_dim, a.v_head_dim, rows, shape.ctx_size, shape.threads));
}

// What router and bank of a layer share.
void lay_routing(const arch::ModelSpec& spec, const arch::MoeSpec& moe, int64_t rows, Layouter& at,
                 WorkspaceLayout& w) {
  w.expert_input = at.floats({rows, spec.hidden});
  w.expert_ids = at.floats({rows, moe.experts_per_token});
  w.expert_weights = at.floats({rows, moe.experts_per_token});
  w.expert_sum = at.floats({rows, spec.hidden});
  w.shared = at.floats({rows, spec.hidden});
}

// A dense MLP's buffers, or router, shared expert and dense MLP beside the experts; what its kernels ask for.
uint64_t lay_mlp(const arch::ModelSpec& spec, const arch::LayerSpec& layer, int64_t rows, const RunShape& shape,
                 Layouter& at, WorkspaceLayout& w) {
  const arch::MlpSpec& m = layer.mlp;
  int64_t inner = m.present ? m.intermediate : 0;
  if (m.moe) {
    inner = std::max<int64_t>(m.moe->shared_intermediate, m.moe->parallel_dense ? m.intermediate : 0);
    w.router = at.floats({rows, m.moe->experts});
    w.shared_gate = at.floats({rows});
  }
  const int64_t ple = layer.per_layer_embedding ? spec.per_layer_embedding.dim : 0;
  w.gate = at.floats({rows, std::max(inner * (m.fused_gate_up ? 2 : 1), ple)});
  w.up = at.floats({rows, m.fused_gate_up || !m.gated ? 0 : inner});
  return linear_scratch_of(rows, {spec.hidden, inner, ple}, shape);
}

uint64_t lay_altup(const arch::ModelSpec& spec, int64_t rows, const RunShape& shape, Layouter& at, WorkspaceLayout& w) {
  const int64_t streams = spec.altup.inputs;
  w.laurel = at.floats({rows, spec.altup.laurel_rank});
  w.modalities = at.floats({rows, streams});
  w.coefficients = at.floats({rows, streams, streams});
  return linear_scratch_of(rows, {spec.hidden, spec.altup.laurel_rank, streams}, shape);
}

WorkspaceLayout finished(WorkspaceLayout w, Layouter& at, uint64_t scratch) {
  w.scratch = at.take(scratch);
  w.total_bytes = at.total();
  return w;
}

}  // namespace

int32_t first_narrow_layer(const arch::ModelSpec& spec) {
  auto first = static_cast<int32_t>(spec.layers.size());
  while (first > 0 && spec.layers[static_cast<size_t>(first) - 1].attention.kv_source_layer >= 0) --first;
  return first;
}

int64_t attention_rows(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape) {
  return layer >= first_narrow_layer(spec) ? shape.narrow_rows() : shape.rows();
}

int64_t mlp_rows(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape) {
  return layer + 1 >= first_narrow_layer(spec) ? shape.narrow_rows() : shape.rows();
}

WorkspaceLayout attention_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape) {
  const int64_t rows = attention_rows(spec, layer, shape);
  Layouter at;
  WorkspaceLayout w;
  lay_streams(spec, shape, at, w);
  w.normed = at.floats({rows, spec.hidden});
  const uint64_t scratch = lay_attention(spec, spec.layers[static_cast<size_t>(layer)].attention, rows, shape, at, w);
  return finished(w, at, scratch);
}

WorkspaceLayout mlp_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape) {
  const arch::LayerSpec& l = spec.layers[static_cast<size_t>(layer)];
  const int64_t rows = mlp_rows(spec, layer, shape);
  Layouter at;
  WorkspaceLayout w;
  lay_streams(spec, shape, at, w);
  if (l.mlp.moe) lay_routing(spec, *l.mlp.moe, rows, at, w);
  w.normed = at.floats({rows, spec.hidden});
  const uint64_t scratch = lay_mlp(spec, l, rows, shape, at, w);
  return finished(w, at, scratch);
}

WorkspaceLayout bank_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape) {
  const arch::MoeSpec& moe = *spec.layers[static_cast<size_t>(layer)].mlp.moe;
  const int64_t rows = mlp_rows(spec, layer, shape), chosen = moe.experts_per_token;
  Layouter at;
  WorkspaceLayout w;
  lay_streams(spec, shape, at, w);
  lay_routing(spec, moe, rows, at, w);
  w.expert_order = at.floats({int64_t{moe.experts} + 1 + rows * chosen});
  w.expert_factors = at.floats({rows, chosen});
  w.expert_rows = at.floats({rows, spec.hidden});
  w.expert_inner = at.floats({std::max(rows, chosen), 2 * int64_t{moe.intermediate}});
  w.expert_out = at.floats({rows, spec.hidden});
  return finished(w, at, linear_scratch_of(rows, {spec.hidden, moe.intermediate}, shape));
}

WorkspaceLayout layer_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape) {
  const arch::LayerSpec& l = spec.layers[static_cast<size_t>(layer)];
  const int64_t rows = attention_rows(spec, layer, shape);
  Layouter at;
  WorkspaceLayout w;
  lay_streams(spec, shape, at, w);
  w.normed = at.floats({rows, spec.hidden});
  w.branch = at.floats({rows, spec.hidden});
  uint64_t scratch = spec.altup.inputs > 0 ? lay_altup(spec, rows, shape, at, w) : 0;
  // Attention is done when the MLP begins: they share their room.
  Layouter mlp = at;
  scratch = std::max(scratch, lay_attention(spec, l.attention, rows, shape, at, w));
  scratch = std::max(scratch, lay_mlp(spec, l, rows, shape, mlp, w));
  Layouter& end = at.total() > mlp.total() ? at : mlp;
  return finished(w, end, scratch);
}

WorkspaceLayout input_workspace(const arch::ModelSpec& spec, const RunShape& shape) {
  const int64_t rows = shape.rows();
  Layouter at;
  WorkspaceLayout w;
  lay_streams(spec, shape, at, w);
  if (spec.embedding_dim > 0) w.embedded = at.floats({rows, spec.embedding_dim});
  if (spec.position_rows > 0) w.positions = at.floats({rows, spec.hidden});
  const int64_t ple = spec.per_layer_embedding.dim;
  if (ple > 0)
    w.per_layer_rows = at.floats({std::min(rows, kPerLayerRows), static_cast<int64_t>(spec.layers.size()), ple});
  const bool linears = spec.embedding_dim > 0 || ple > 0 || spec.altup.inputs > 0;
  return finished(w, at, linears ? linear_scratch_of(rows, {spec.hidden, spec.embedding_dim}, shape) : 0);
}

WorkspaceLayout head_workspace(const arch::ModelSpec& spec, const RunShape& shape) {
  const int64_t streams = std::max(1, spec.altup.inputs);
  Layouter at;
  WorkspaceLayout w;
  w.hidden = at.floats({streams, shape.narrow_rows(), spec.hidden});
  w.merged = at.floats({streams > 1 ? shape.logit_rows : 0, spec.hidden});
  w.stream = at.floats({streams > 1 ? shape.logit_rows : 0, spec.hidden});
  w.normed = at.floats({shape.logit_rows, spec.hidden});
  w.projected = at.floats({shape.logit_rows, spec.embedding_dim});
  w.logits = at.floats({shape.logit_rows, spec.vocab_rows});
  return finished(w, at,
                  linear_scratch_of(shape.logit_rows, std::max<int64_t>(spec.hidden, spec.embedding_dim), shape));
}

WorkspaceLayout table_workspace(const arch::ModelSpec& spec, const RunShape& shape) {
  Layouter at;
  WorkspaceLayout w;
  w.hidden = at.floats({shape.rows(), spec.embedding_dim > 0 ? spec.embedding_dim : spec.hidden});
  w.per_layer_rows = at.floats(
      {std::min(shape.rows(), kPerLayerRows), static_cast<int64_t>(spec.layers.size()), spec.per_layer_embedding.dim});
  w.total_bytes = at.total();
  return w;
}

}  // namespace berth::sizing
