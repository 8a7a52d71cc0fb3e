// model/input.cc — the first layer's input: rows of the tables gathered where those live, and what the model makes of
// them (docs/architectures.md): a projection, positions, a norm, per-layer embeddings, further streams.
#include <algorithm>

#include "berth/kernel/elementwise.h"
#include "berth/kernel/norm.h"
#include "berth/model/families/gemma3n.h"
#include "berth/model/state.h"

namespace berth::model {

using arch::Role;

Status Model::State::gather(const DeviceState& at, const load::HeldTensor& table, std::span<const int32_t> rows_of,
                            float* out, int64_t width) {
  uint64_t read_bytes = 0;
  TRY_STATUS(table_rows.gather(at.context, table, rows_of, out, width, read_bytes));
  if (read_bytes > 0) parts.devices->count("disk", "cpu", device::Cargo::kRows, read_bytes);
  return {};
}

Status Model::State::make_input(size_t on_index) {
  const arch::ModelSpec& m = spec();
  const ForwardState p = pass();
  DeviceState& at = devices[embedding_on];
  DeviceState& on = devices[on_index];
  const bool projected = m.embedding_dim > 0;
  const int64_t width = projected ? m.embedding_dim : m.hidden, n = m.hidden;
  float* hidden = on.at(input_layout.hidden);

  // Gathered where the table is; the rows enter `hidden`, or `embedded` where they are narrower.
  const sizing::Slice& entry = projected ? input_layout.embedded : input_layout.hidden;
  float* gathered = embedding_on == on_index ? on.at(entry) : at.at(table_layout.hidden);
  TRY_STATUS(gather(at, *embedding, ids, gathered, width));
  if (m.embedding_scale != 1)
    kernel::scale(at.context, gathered, width, static_cast<float>(m.embedding_scale), rows, width);
  if (embedding_on != on_index)
    TRY_STATUS(parts.devices->copy(*on.device, reinterpret_cast<std::byte*>(on.at(entry)), *at.device,
                                   reinterpret_cast<const std::byte*>(gathered),
                                   static_cast<uint64_t>(rows * width) * sizeof(float), device::Cargo::kRows));
  if (projected) {
    Linears in(p);
    in.add(p.need(Role::kProjectIn, -1), nullptr, hidden, n);
    in.run(on, input_layout, on.at(input_layout.embedded), rows, width);
  }
  if (m.position_rows > 0) {
    table_ids.clear();
    for (const RowRange& range : ranges)
      for (int64_t r = 0; r < range.rows; ++r)
        table_ids.push_back(static_cast<int32_t>(range.position + r + m.position_offset));
    float* positions = on.at(input_layout.positions);
    const load::HeldTensor& table = p.need(Role::kPositionEmbedding, -1);
    TRY_STATUS(gather(on, table, table_ids, positions, n));
    if (table.device != on.device && on.device->kind() != machine::DeviceKind::kCpu)  // only the rows cross over
      parts.devices->count("cpu", on.device->map_name(), device::Cargo::kRows,
                           static_cast<uint64_t>(rows * n) * sizeof(float));
    kernel::add_residual(on.context, hidden, n, positions, n, 1, rows, n);
  }
  if (m.embedding_norm.present())
    apply_norm(p, on, m.embedding_norm, Role::kEmbeddingNorm, Role::kEmbeddingNormBias, -1, hidden, hidden);
  if (m.per_layer_embedding.dim > 0) TRY_STATUS(make_per_layer(on_index));
  if (m.altup.inputs > 0) split_streams(p, on, input_layout);
  return {};
}

// Per layer: (norm(projection(x) * H^-0.5) + table row * sqrt(P)) * 2^-0.5, [layers, rows, P].
Status Model::State::make_per_layer(size_t on_index) {
  const arch::ModelSpec& m = spec();
  const arch::PerLayerEmbeddingSpec& ple = m.per_layer_embedding;
  const ForwardState p = pass();
  DeviceState& on = devices[on_index];
  DeviceState& at = devices[per_layer_on];
  const auto layers = static_cast<int64_t>(m.layers.size());
  const int64_t width = ple.dim, all = layers * width, n = m.hidden;
  float* out = on.at(input_layout.per_layer);

  const load::HeldTensor& projection = p.need(Role::kPerLayerModelProjection, -1);
  Linears in(p);
  for (int64_t l = 0; l < layers; ++l)
    in.add_rows(projection, nullptr, l * width, width, out + l * rows * width, width);
  in.run(on, input_layout, on.at(input_layout.hidden), rows, n);
  kernel::scale(on.context, out, width, static_cast<float>(ple.projection_scale), layers * rows, width);
  kernel::rms_norm(on.context, out, width, p.vector(Role::kPerLayerProjectionNorm, -1),
                   static_cast<float>(ple.norm.eps), layers * rows, width, out, width);

  const load::HeldTensor& table = p.need(Role::kPerLayerEmbedding, -1);
  const auto row_of = [&](int32_t id) { return id < table.matrix.rows ? id : 0; };  // a smaller table: row 0
  float* gathered = per_layer_on == on_index ? on.at(input_layout.per_layer_rows) : at.at(table_layout.per_layer_rows);
  float* arrived = on.at(input_layout.per_layer_rows);
  for (int64_t first = 0; first < rows; first += sizing::kPerLayerRows) {
    const int64_t count = std::min(sizing::kPerLayerRows, rows - first);
    table_ids.clear();
    for (int64_t r = 0; r < count; ++r) table_ids.push_back(row_of(ids[static_cast<size_t>(first + r)]));
    TRY_STATUS(gather(at, table, table_ids, gathered, all));
    kernel::scale(at.context, gathered, all, static_cast<float>(ple.table_scale), count, all);
    if (gathered != arrived)
      TRY_STATUS(parts.devices->copy(*on.device, reinterpret_cast<std::byte*>(arrived), *at.device,
                                     reinterpret_cast<const std::byte*>(gathered),
                                     static_cast<uint64_t>(count * all) * sizeof(float), device::Cargo::kRows));
    for (int64_t l = 0; l < layers; ++l)
      kernel::add_residual(on.context, out + (l * rows + first) * width, width, arrived + l * width, all, 1, count,
                           width);
  }
  kernel::scale(on.context, out, width, static_cast<float>(ple.combine_scale), layers * rows, width);
  per_layer_here.assign(devices.size(), false);
  per_layer_here[on_index] = true;
  return {};
}

// The layers of `to` get theirs from where all were made: the first step's device.
Status Model::State::bring_per_layer(size_t to) {
  const size_t from = on(steps.front());
  if (per_layer_here[to]) return {};
  const uint64_t plane = static_cast<uint64_t>(rows * spec().per_layer_embedding.dim) * sizeof(float);
  for (const auto& [first, last] : per_layer_runs[mode][to]) {
    const uint64_t at = per_layer_slice.offset + static_cast<uint64_t>(first) * plane;
    TRY_STATUS(parts.devices->copy(*devices[to].device, devices[to].workspace.data() + at, *devices[from].device,
                                   devices[from].workspace.data() + at, static_cast<uint64_t>(last - first) * plane));
  }
  per_layer_here[to] = true;
  return {};
}

}  // namespace berth::model
