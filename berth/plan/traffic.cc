// plan/traffic.cc — see traffic.h.
#include "berth/plan/traffic.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "berth/quant/row_slice.h"

namespace berth::plan {
namespace {

using arch::Role;
using sizing::UnitKind;

class Counter {
 public:
  Counter(const arch::ModelSpec& spec, const std::vector<sizing::TensorStorage>& storage,
          const sizing::UnitTable& units, const Plan& plan)
      : spec_(spec), storage_(storage), units_(units), plan_(plan), batch_(static_cast<uint64_t>(plan.shape.batch)) {}

  std::vector<WayTraffic> count() {
    for (int32_t u = 0; u < units_.chain_size; ++u) add_weights(u);
    for (size_t u = static_cast<size_t>(units_.chain_size); u < units_.units.size(); ++u) add_table(u);
    add_activations();
    add_shared_caches();
    add_per_layer();
    std::vector<WayTraffic> out;
    for (const auto& [way, bytes] : ways_) out.push_back({std::get<0>(way), std::get<1>(way), std::get<2>(way), bytes});
    return out;
  }

 private:
  void add(const std::string& from, const std::string& to, const char* cargo, uint64_t bytes) {
    if (from != to && bytes > 0) ways_[{from, to, cargo}] += bytes;
  }
  // What comes from the disk comes by the host.
  void add_by_host(const std::string& from, const std::string& to, const char* cargo, uint64_t read, uint64_t sent) {
    if (from == "disk") {
      add(from, "cpu", cargo, read);
      add("cpu", to, cargo, sent);
    } else {
      add(from, to, cargo, sent);
    }
  }
  uint64_t floats(int64_t count) const { return batch_ * static_cast<uint64_t>(count) * sizeof(float); }
  const std::string& on(int32_t unit) const { return plan_.units[static_cast<size_t>(unit)].computed_on; }

  // Bytes of the planes that hold one row, wherever it is.
  uint64_t row_bytes(int32_t tensor) const {
    const quant::PackedLayout& layout = storage_[static_cast<size_t>(tensor)].layout;
    return layout.rows == 0 ? 0 : quant::plane_bytes(quant::row_slice(layout, 0, 1).layout);
  }

  void add_weights(int32_t u) {
    const PlacedUnit& placed = plan_.units[static_cast<size_t>(u)];
    if (placed.device == placed.computed_on) return;
    const sizing::Unit& unit = units_.units[static_cast<size_t>(u)];
    add_by_host(placed.device, placed.computed_on, "weights", unit.moved_bytes, unit.moved_bytes);
    for (const int32_t t : unit.tensors)
      if (spec_.tensors[static_cast<size_t>(t)].role == Role::kPositionEmbedding)
        add_by_host(placed.device, placed.computed_on, "rows", batch_ * row_bytes(t), floats(spec_.hidden));
  }

  void add_table(size_t u) {
    const sizing::Unit& unit = units_.units[u];
    const auto held = static_cast<size_t>(unit.stored_with >= 0 ? static_cast<size_t>(unit.stored_with) : u);
    int32_t table = -1;
    for (const int32_t t : units_.units[held].tensors) {
      const Role role = spec_.tensors[static_cast<size_t>(t)].role;
      if (role == Role::kEmbedding || role == Role::kPerLayerEmbedding) table = t;
    }
    if (table < 0) return;
    add_by_host(plan_.units[held].device, on(0), "rows", batch_ * row_bytes(table),
                floats(spec_.tensors[static_cast<size_t>(table)].cols));
  }

  void add_activations() {
    const int64_t width = spec_.hidden * std::max<int64_t>(1, spec_.altup.inputs);
    std::string at = on(0);
    for (int32_t u = 0; u < units_.chain_size; ++u) {
      const sizing::Unit& unit = units_.units[static_cast<size_t>(u)];
      if (unit.kind == UnitKind::kExpertBank) {  // the stream stays with the MLP before it
        const int64_t chosen = spec_.layers[static_cast<size_t>(unit.layer)].mlp.moe->experts_per_token;
        add(at, on(u), "activations", floats(spec_.hidden + 2 * chosen));
        add(on(u), at, "activations", floats(spec_.hidden));
        continue;
      }
      add(at, on(u), "activations", floats(width));
      at = on(u);
    }
  }

  // New rows of a cache to every other device that has a reader.
  void add_shared_caches() {
    std::set<std::pair<int32_t, std::string>> copies;
    for (int32_t u = 0; u < units_.chain_size; ++u) {
      const int32_t source = units_.units[static_cast<size_t>(u)].kv_source;
      if (source < 0 || on(source) == on(u) || !copies.insert({source, on(u)}).second) continue;
      const arch::AttentionSpec& a =
          spec_.layers[static_cast<size_t>(units_.units[static_cast<size_t>(source)].layer)].attention;
      add(on(source), on(u), "activations", floats(int64_t{a.kv_heads} * (a.head_dim + a.v_head_dim)));
    }
  }

  // Per-layer embeddings are made where the chain begins.
  void add_per_layer() {
    if (spec_.per_layer_embedding.dim == 0) return;
    for (int32_t u = 0; u < units_.chain_size; ++u) {
      const UnitKind kind = units_.units[static_cast<size_t>(u)].kind;
      if (kind == UnitKind::kMlp || kind == UnitKind::kLayer)
        add(on(0), on(u), "activations", floats(spec_.per_layer_embedding.dim));
    }
  }

  const arch::ModelSpec& spec_;
  const std::vector<sizing::TensorStorage>& storage_;
  const sizing::UnitTable& units_;
  const Plan& plan_;
  uint64_t batch_;
  std::map<std::tuple<std::string, std::string, std::string>, uint64_t> ways_;
};

}  // namespace

std::vector<WayTraffic> decode_traffic(const arch::ModelSpec& spec, const std::vector<sizing::TensorStorage>& storage,
                                       const sizing::UnitTable& units, const Plan& plan) {
  return Counter(spec, storage, units, plan).count();
}

}  // namespace berth::plan
