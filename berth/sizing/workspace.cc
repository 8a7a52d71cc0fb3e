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

uint64_t linear_scratch(int64_t k, const RunShape& shape) {
  return quant::linear_scratch_bytes(shape.rows(), k, shape.int8_numerics, shape.threads);
}

int32_t rotary_dim(const arch::ModelSpec& spec, const arch::AttentionSpec& a) {
  return a.rope < 0 ? 0 : spec.ropes[static_cast<size_t>(a.rope)].rotary_dim;
}

}  // namespace

WorkspaceLayout attention_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape) {
  const arch::AttentionSpec& a = spec.layers[static_cast<size_t>(layer)].attention;
  const int64_t rows = shape.rows();
  Layouter at;
  WorkspaceLayout w;
  w.hidden = at.floats({rows, spec.hidden});
  w.normed = at.floats({rows, spec.hidden});
  const int64_t q = int64_t{a.heads} * a.head_dim * (a.output_gate ? 2 : 1);
  const int64_t k = int64_t{a.kv_heads} * a.head_dim, v = int64_t{a.kv_heads} * a.v_head_dim;
  w.q = at.floats({rows, a.fused == arch::AttentionSpec::Fused::kSplit ? q : q + k + v});
  if (a.kv_source_layer < 0) {
    w.k = at.floats({rows, k});
    w.v = at.floats({rows, v});
  }
  w.attended = at.floats({rows, a.heads, a.v_head_dim});
  w.rope = at.floats({rows, rotary_dim(spec, a)});
  const int64_t widest = std::max<int64_t>(spec.hidden, int64_t{a.heads} * a.v_head_dim);
  w.scratch = at.take(std::max(linear_scratch(widest, shape),
                               quant::attention_scratch_bytes(a.heads, a.head_dim, a.v_head_dim, shape.rows(),
                                                              shape.ctx_size, shape.threads)));
  w.total_bytes = at.total();
  return w;
}

WorkspaceLayout mlp_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape) {
  const arch::MlpSpec& m = spec.layers[static_cast<size_t>(layer)].mlp;
  const int64_t rows = shape.rows();
  const int64_t inner = m.moe ? std::max<int64_t>(m.moe->shared_intermediate, m.moe->parallel_dense ? m.intermediate : 0)
                              : m.intermediate;
  Layouter at;
  WorkspaceLayout w;
  w.hidden = at.floats({rows, spec.hidden});
  w.normed = at.floats({rows, spec.hidden});
  w.gate = at.floats({rows, inner * (m.fused_gate_up ? 2 : 1)});
  w.up = at.floats({rows, m.fused_gate_up ? 0 : inner});
  if (m.moe) w.attended = at.floats({rows, m.moe->experts + spec.hidden});
  w.scratch = at.take(linear_scratch(std::max<int64_t>(spec.hidden, inner), shape));
  w.total_bytes = at.total();
  return w;
}

WorkspaceLayout bank_workspace(const arch::ModelSpec& spec, int32_t layer, const RunShape& shape) {
  const arch::MoeSpec& moe = *spec.layers[static_cast<size_t>(layer)].mlp.moe;
  const int64_t rows = shape.rows();
  Layouter at;
  WorkspaceLayout w;
  w.hidden = at.floats({rows, spec.hidden});
  w.normed = at.floats({rows, spec.hidden});
  w.q = at.floats({rows, spec.hidden});                        // rows of one expert, gathered
  w.attended = at.floats({rows, moe.experts_per_token, spec.hidden});  // expert outputs by (row, choice)
  w.gate = at.floats({rows, 2 * int64_t{moe.intermediate}});
  w.k = at.floats({rows, moe.experts_per_token});              // weights
  w.v = at.floats({rows, moe.experts_per_token});              // expert ids
  w.scratch = at.take(linear_scratch(std::max<int64_t>(spec.hidden, moe.intermediate), shape));
  w.total_bytes = at.total();
  return w;
}

WorkspaceLayout head_workspace(const arch::ModelSpec& spec, const RunShape& shape) {
  const int64_t rows = shape.rows();
  Layouter at;
  WorkspaceLayout w;
  w.hidden = at.floats({rows, spec.hidden});
  w.normed = at.floats({shape.logit_rows, spec.hidden});
  w.logits = at.floats({shape.logit_rows, spec.vocab_rows});
  RunShape head = shape;
  head.prefill_chunk = head.batch = shape.logit_rows;
  w.scratch = at.take(linear_scratch(spec.hidden, head));
  w.total_bytes = at.total();
  return w;
}

WorkspaceLayout table_workspace(const arch::ModelSpec& spec, const RunShape& shape) {
  Layouter at;
  WorkspaceLayout w;
  w.hidden = at.floats({shape.rows(), spec.embedding_dim > 0 ? spec.embedding_dim : spec.hidden});
  w.total_bytes = at.total();
  return w;
}

}  // namespace berth::sizing
