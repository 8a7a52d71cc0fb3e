// sizing/units.cc — see units.h.
#include "berth/sizing/units.h"

#include <algorithm>
#include <map>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/quant/row_slice.h"

namespace berth::sizing {
namespace {

using arch::Role;
using arch::TensorKind;

// Which chain unit of its layer a tensor belongs to.
enum class Part { kAttention, kMlp, kBank };

Part part_of(Role role) {
  if (role >= Role::kInputNorm && role <= Role::kAttentionOutNormBias) return Part::kAttention;
  if (role >= Role::kQ && role <= Role::kIndexKNorm) return Part::kAttention;
  if (role >= Role::kExpertsGateUp && role <= Role::kExpertsDownBias) return Part::kBank;
  return Part::kMlp;
}

// Model-level tensors that make the first layer's input: they live with the first layer's first unit, which the
// embedding's rows enter.
bool is_input(Role role) {
  switch (role) {
    case Role::kPositionEmbedding:
    case Role::kEmbeddingNorm:
    case Role::kEmbeddingNormBias:
    case Role::kProjectIn:
    case Role::kPerLayerModelProjection:
    case Role::kPerLayerProjectionNorm:
    case Role::kAltUpProjection:
      return true;
    default:
      return false;
  }
}
// Tensors of the model, not of a layer; altup's are numbered by stream.
bool is_of_model(const arch::TensorSpec& t) {
  return t.layer == -1 || t.role == Role::kAltUpProjection || t.role == Role::kAltUpUnembedProjection;
}

// The largest slice of a bank that holds one expert's matrix.
uint64_t widest_expert(const arch::TensorSpec& t, const TensorStorage& s) {
  if (s.counted_only) return ceil_div<uint64_t>(s.bytes, static_cast<uint64_t>(t.experts));
  uint64_t widest = 0;
  const bool all_alike = t.rows % quant::slice_step(s.layout.format, s.layout.cols) == 0;
  for (int64_t e = 0; e < (all_alike ? 1 : t.experts); ++e)
    widest = std::max(widest, quant::row_slice(s.layout, e * t.rows, t.rows).layout.total_bytes);
  return widest;
}

// What moves when the tensor is brought over: its planes, for a bank those of `experts` matrices.
uint64_t moved_bytes(const arch::TensorSpec& t, const TensorStorage& s, uint64_t experts) {
  if (s.counted_only) return s.bytes;
  // Altup's router is asked twice, with other matrices in between.
  const uint64_t uses = t.role == Role::kAltUpRouter ? 2 : 1;
  if (t.kind != TensorKind::kBank) return uses * quant::plane_bytes(s.layout);
  return experts * quant::plane_bytes(quant::row_slice(s.layout, 0, t.rows).layout);
}

std::string module_parent(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(0, dot);
}

class UnitMaker {
 public:
  UnitMaker(const arch::ModelSpec& spec, const std::vector<TensorStorage>& storage, const RunShape& shape,
            const UnitOptions& options)
      : spec_(spec), storage_(storage), shape_(shape), options_(options) {}

  UnitTable make() {
    CHECK(storage_.size() == spec_.tensors.size());
    for (size_t l = 0; l < spec_.layers.size(); ++l) add_layer(static_cast<int32_t>(l));
    add_head();
    link_shared_caches();
    table_.chain_size = static_cast<int32_t>(table_.units.size());
    add_tables();
    table_.logits_bytes = static_cast<uint64_t>(shape_.batch * spec_.vocab_rows) * 4;
    for (const TensorStorage& s : storage_) table_.memory_footprint_bytes += s.bytes;
    return std::move(table_);
  }

 private:
  void add_layer(int32_t layer) {
    const arch::LayerSpec& l = spec_.layers[static_cast<size_t>(layer)];
    const bool whole = options_.whole_layers || l.parallel || spec_.altup.inputs > 0;
    Unit attention, mlp, bank;
    attention.kind = whole ? UnitKind::kLayer : UnitKind::kAttention;
    mlp.kind = UnitKind::kMlp;
    bank.kind = UnitKind::kExpertBank;
    for (Unit* u : {&attention, &mlp, &bank}) u->layer = layer;
    const int64_t attention_chunk = chunk_rows(attention_rows(spec_, layer, shape_));
    const int64_t mlp_chunk = chunk_rows(mlp_rows(spec_, layer, shape_));
    std::vector<int32_t> inputs;
    for (size_t t = 0; t < spec_.tensors.size(); ++t) {
      if (spec_.tensors[t].tied_to) continue;
      if (layer == 0 && is_input(spec_.tensors[t].role)) inputs.push_back(static_cast<int32_t>(t));
      if (spec_.tensors[t].layer != layer || is_of_model(spec_.tensors[t])) continue;
      const Part part = whole ? Part::kAttention : part_of(spec_.tensors[t].role);
      add_tensor(part == Part::kAttention ? attention
                 : part == Part::kMlp     ? mlp
                                          : bank,
                 static_cast<int32_t>(t), part == Part::kAttention ? attention_chunk : mlp_chunk);
    }
    size_attention(attention, l.attention, attention_chunk);
    name(attention);
    for (const int32_t t : inputs) add_tensor(attention, t, shape_.prefill_chunk);
    attention.workspace_bytes = attention_workspace(spec_, layer, shape_).total_bytes;
    if (layer == 0)
      attention.workspace_bytes = std::max(attention.workspace_bytes, input_workspace(spec_, shape_).total_bytes);
    if (!bank.tensors.empty()) bank.workspace_bytes = bank_workspace(spec_, layer, shape_).total_bytes;
    if (whole) {
      if (l.parallel || spec_.altup.inputs > 0)
        attention.workspace_bytes =
            std::max(attention.workspace_bytes, layer_workspace(spec_, layer, shape_).total_bytes);
      else
        attention.workspace_bytes =
            std::max(attention.workspace_bytes, mlp_workspace(spec_, layer, shape_).total_bytes);
      if (l.mlp.moe)
        attention.workspace_bytes =
            std::max(attention.workspace_bytes, bank_workspace(spec_, layer, shape_).total_bytes);
      push(std::move(attention), attention_chunk);
      return;
    }
    mlp.workspace_bytes = mlp_workspace(spec_, layer, shape_).total_bytes;
    push(std::move(attention), attention_chunk);
    if (!mlp.tensors.empty()) push(std::move(mlp), mlp_chunk);
    if (!bank.tensors.empty()) push(std::move(bank), mlp_chunk);
  }

  // Of so many rows of a pass, those of a chunk of one prompt.
  int64_t chunk_rows(int64_t rows) const { return std::min(rows, shape_.prefill_chunk); }

  void size_attention(Unit& unit, const arch::AttentionSpec& a, int64_t rows) {
    const KvLayerSize kv = kv_layer_size(a, shape_);
    unit.kv_bytes = kv.total() * static_cast<uint64_t>(shape_.batch);
    if (kv.positions > 0)
      unit.kv_new_bytes =
          ceil_div<uint64_t>(kv.total(), static_cast<uint64_t>(kv.positions)) * static_cast<uint64_t>(shape_.batch);
    const int64_t keys = a.window > 0 ? std::min<int64_t>(shape_.ctx_size, a.window) : shape_.ctx_size;
    const uint64_t per_row =
        a.kind == arch::AttentionKind::kDeltaNet
            ? static_cast<uint64_t>(a.linear_value_heads) * a.linear_key_dim * a.linear_value_dim * 6
            : static_cast<uint64_t>(a.heads) * static_cast<uint64_t>(a.head_dim + a.v_head_dim) * 2 *
                  static_cast<uint64_t>(keys);
    unit.flops += per_row * static_cast<uint64_t>(shape_.batch);
    unit.prefill_flops += per_row * static_cast<uint64_t>(rows);
  }

  // `rows`: of a chunk, for which the unit runs.
  void add_tensor(Unit& unit, int32_t index, int64_t rows) {
    const arch::TensorSpec& t = spec_.tensors[static_cast<size_t>(index)];
    const TensorStorage& s = storage_[static_cast<size_t>(index)];
    unit.tensors.push_back(index);
    unit.stored_bytes += align_up<uint64_t>(s.bytes, 64);
    unit.stored_bytes_512 += align_up<uint64_t>(s.bytes, 512);
    uint64_t touched = s.bytes;
    uint64_t elements = static_cast<uint64_t>(t.rows) * static_cast<uint64_t>(t.cols);
    uint64_t moved = moved_bytes(t, s, 0), largest = s.bytes;
    if (t.kind == TensorKind::kBank) {
      const arch::MoeSpec& moe = *spec_.layers[static_cast<size_t>(t.layer)].mlp.moe;
      const uint64_t read = static_cast<uint64_t>(std::min<int64_t>(t.experts, shape_.batch * moe.experts_per_token));
      touched = std::min(s.bytes, ceil_div<uint64_t>(s.bytes * read, static_cast<uint64_t>(t.experts)));
      largest = widest_expert(t, s);
      moved = moved_bytes(t, s, read);
      elements *= static_cast<uint64_t>(moe.experts_per_token);
    }
    if (t.kind == TensorKind::kTable && t.role == Role::kPositionEmbedding) {  // a row for each token
      touched = std::min(s.bytes, static_cast<uint64_t>(shape_.batch) *
                                      ceil_div<uint64_t>(s.bytes, static_cast<uint64_t>(std::max<int64_t>(t.rows, 1))));
      elements = 0;
      moved = largest = 0;  // its rows are gathered, never the whole brought over
    }
    unit.touched_bytes += touched;
    unit.moved_bytes += moved;
    // Vectors come first and stay while the unit runs, matrices one after the other.
    const uint64_t matrices = unit.grain_bytes - unit.vector_bytes;
    if (t.kind == TensorKind::kVector) unit.vector_bytes += align_up<uint64_t>(s.bytes, 64);
    unit.grain_bytes = unit.vector_bytes + (t.kind == TensorKind::kVector ? matrices : std::max(matrices, largest));
    if (t.kind != TensorKind::kVector) {
      unit.flops += 2 * elements * static_cast<uint64_t>(shape_.batch);
      unit.prefill_flops += 2 * elements * static_cast<uint64_t>(rows);
    }
    if (!s.in_file) unit.disk_bytes += s.bytes;
    if (std::find(unit.paths.begin(), unit.paths.end(), t.module) == unit.paths.end()) unit.paths.push_back(t.module);
  }

  // The module that names the unit, where it has no name yet.
  void name(Unit& unit) const {
    if (unit.path.empty()) {
      // The deepest module that holds all of the unit's linears names it: self_attn, mlp, the layer itself.
      for (const int32_t t : unit.tensors)
        if (spec_.tensors[static_cast<size_t>(t)].kind != TensorKind::kVector) {
          const std::string parent = module_parent(spec_.tensors[static_cast<size_t>(t)].module);
          if (unit.path.empty()) unit.path = parent;
          while (unit.path != parent && parent.compare(0, unit.path.size(), unit.path) != 0)
            unit.path = module_parent(unit.path);
        }
      if (unit.path.empty() && !unit.paths.empty()) unit.path = unit.paths.front();
    }
  }

  void push(Unit unit, int64_t rows) {
    name(unit);
    const uint64_t width = static_cast<uint64_t>(spec_.hidden) * static_cast<uint64_t>(std::max(1, spec_.altup.inputs));
    unit.input_bytes = static_cast<uint64_t>(shape_.batch) * 4 * width;
    unit.prefill_input_bytes = static_cast<uint64_t>(rows) * 4 * width;
    table_.units.push_back(std::move(unit));
  }

  static bool is_input_table(Role role) { return role == Role::kEmbedding || role == Role::kPerLayerEmbedding; }

  void add_head() {
    Unit head;
    head.kind = UnitKind::kHead;
    const int64_t rows = chunk_rows(shape_.narrow_rows());
    for (size_t t = 0; t < spec_.tensors.size(); ++t) {
      const arch::TensorSpec& tensor = spec_.tensors[t];
      if (!is_of_model(tensor) || tensor.tied_to || is_input_table(tensor.role) || is_input(tensor.role)) continue;
      add_tensor(head, static_cast<int32_t>(t), rows);
      if (tensor.role == Role::kHead) head.path = tensor.module;
    }
    if (spec_.tied_head)
      for (size_t t = 0; t < spec_.tensors.size(); ++t)
        if (spec_.tensors[t].role == Role::kEmbedding) {
          add_tensor(head, static_cast<int32_t>(t), rows);
          for (const arch::TensorSpec& alias : spec_.tensors)
            if (alias.tied_to == Role::kEmbedding && alias.layer == -1) {
              head.path = alias.module;
              head.paths.push_back(alias.module);
            }
        }
    if (head.path.empty() && !head.paths.empty()) head.path = head.paths.back();
    head.workspace_bytes = head_workspace(spec_, shape_).total_bytes;
    push(std::move(head), rows);
  }

  void add_tables() {
    const int32_t head = table_.chain_size - 1;
    for (size_t t = 0; t < spec_.tensors.size(); ++t) {
      const arch::TensorSpec& tensor = spec_.tensors[t];
      if (!is_input_table(tensor.role) || tensor.tied_to) continue;
      Unit unit;
      unit.kind = UnitKind::kTable;
      unit.path = tensor.module;
      unit.consumer = 0;
      unit.row_bytes = ceil_div<uint64_t>(storage_[t].bytes, static_cast<uint64_t>(std::max<int64_t>(tensor.rows, 1)));
      unit.workspace_bytes = table_workspace(spec_, shape_).total_bytes;
      if (tensor.role == Role::kEmbedding && spec_.tied_head) {
        unit.stored_with = head;
        unit.paths = {tensor.module};
      } else {
        add_tensor(unit, static_cast<int32_t>(t), shape_.prefill_chunk);
        unit.flops = unit.prefill_flops = 0;
      }
      unit.touched_bytes = unit.row_bytes * static_cast<uint64_t>(shape_.batch);
      unit.input_bytes = unit.touched_bytes;
      table_.units.push_back(std::move(unit));
    }
  }

  void link_shared_caches() {
    std::map<int32_t, int32_t> attention_unit;  // layer -> unit
    for (size_t u = 0; u < table_.units.size(); ++u) {
      const UnitKind kind = table_.units[u].kind;
      if (kind == UnitKind::kAttention || kind == UnitKind::kLayer)
        attention_unit[table_.units[u].layer] = static_cast<int32_t>(u);
    }
    for (Unit& unit : table_.units) {
      if (unit.layer < 0 || (unit.kind != UnitKind::kAttention && unit.kind != UnitKind::kLayer)) continue;
      const int32_t source = spec_.layers[static_cast<size_t>(unit.layer)].attention.kv_source_layer;
      if (source >= 0) unit.kv_source = attention_unit.at(source);
    }
  }

  const arch::ModelSpec& spec_;
  const std::vector<TensorStorage>& storage_;
  const RunShape& shape_;
  const UnitOptions& options_;
  UnitTable table_;
};

}  // namespace

UnitTable make_units(const arch::ModelSpec& spec, const std::vector<TensorStorage>& storage, const RunShape& shape,
                     const UnitOptions& options) {
  return UnitMaker(spec, storage, shape, options).make();
}

}  // namespace berth::sizing
