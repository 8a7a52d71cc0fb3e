// model/resolve.cc — a plan made runnable: devices, steps, workspaces, cache and its copies, ropes.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "berth/arch/capability.h"
#include "berth/base/strings.h"
#include "berth/kernel/delta_net.h"
#include "berth/kernel/double_math.h"
#include "berth/kernel/mixture.h"
#include "berth/kernel/streams.h"
#include "berth/model/state.h"

namespace berth::model {
namespace {

using arch::Role;
using sizing::UnitKind;

const std::string kHost = "cpu";

kernel::RopeScaling scaling_of(arch::RopeScaling scaling) {
  switch (scaling) {
    case arch::RopeScaling::kDefault:
      return kernel::RopeScaling::kDefault;
    case arch::RopeScaling::kLinear:
      return kernel::RopeScaling::kLinear;
    case arch::RopeScaling::kProportional:
      return kernel::RopeScaling::kProportional;
    case arch::RopeScaling::kLlama3:
      return kernel::RopeScaling::kLlama3;
    case arch::RopeScaling::kYarn:
      return kernel::RopeScaling::kYarn;
    case arch::RopeScaling::kDynamic:
      return kernel::RopeScaling::kDynamic;
    case arch::RopeScaling::kLongRope:
      return kernel::RopeScaling::kLongRope;
  }
  CHECK(false);
  return kernel::RopeScaling::kDefault;
}

kernel::RopeParameters rope_parameters(const arch::RopeSpec& r) {
  kernel::RopeParameters p;
  p.scaling = scaling_of(r.scaling);
  p.rotary_dim = r.rotary_dim;
  p.head_dim = r.head_dim;
  p.theta = r.theta;
  p.factor = r.factor;
  p.low_freq_factor = r.low_freq_factor;
  p.high_freq_factor = r.high_freq_factor;
  p.beta_fast = r.beta_fast;
  p.beta_slow = r.beta_slow;
  p.truncate = r.truncate;
  p.partial_rotary_factor = r.partial_rotary_factor;
  p.original_max_position = r.original_max_position;
  p.max_position = r.max_position;
  p.short_factor = r.short_factor;
  p.long_factor = r.long_factor;
  p.frequency_divisors = r.frequency_divisors;
  return p;
}

// Slopes of n heads: powers 1.. of s = 2^-(2^-(log2 P - 3)) for the largest power of two P <= n, then for the others
// the odd powers of the s made with 2P. In double by Berth's own pow, s and each power rounded to fp32.
std::vector<float> alibi_slopes_of(int32_t heads) {
  const auto whole = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(heads)));
  const auto start = [](int32_t n) {
    const int log2 = std::countr_zero(static_cast<uint32_t>(n));
    return static_cast<double>(static_cast<float>(kernel::pow_f64(2, -kernel::pow_f64(2, -(log2 - 3.0)))));
  };
  std::vector<float> slopes;
  for (int32_t i = 1; i <= whole; ++i) slopes.push_back(static_cast<float>(kernel::pow_f64(start(whole), i)));
  for (int32_t i = 1; static_cast<int32_t>(slopes.size()) < heads; i += 2)
    slopes.push_back(static_cast<float>(kernel::pow_f64(start(2 * whole), i)));
  return slopes;
}

static_assert(arch::kMostRotaryDim == kernel::kMaxRotaryDim);

// What the shapes of the kernels do not hold; "" where all is well.
std::string beyond_limits(const arch::ModelSpec& m) {
  if (m.altup.inputs > kernel::kMaxStreams) return "so many altup streams";
  for (const arch::LayerSpec& l : m.layers) {
    if (l.mlp.moe && l.mlp.moe->experts_per_token > kernel::kMaxChosenExperts) return "so many experts per token";
    if (l.attention.kind == arch::AttentionKind::kDeltaNet && l.attention.linear_value_dim > kernel::kMaxDeltaValueDim)
      return "delta net heads so wide";
    if (l.attention.kind == arch::AttentionKind::kBlockSparse && l.attention.heads % l.attention.index_heads != 0)
      return "index heads that do not divide the query heads";
    if (l.parallel && (l.mlp.moe || l.per_layer_embedding || l.layer_scalar)) return "a parallel block with experts";
    if (!l.mlp.present) return "a layer without an MLP";
    if (m.altup.inputs > 0 && (l.mlp.moe || l.parallel)) return "altup with experts or parallel blocks";
  }
  return "";
}

}  // namespace

Result<size_t> Model::State::device_state(const std::string& name) {
  device::Device* d = parts.devices->find(name);
  if (d == nullptr)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the plan computes on device {}, which this machine does not have", quoted(name)),
                 {"Plan again for this machine (--replan)."});
  if (!d->host_addressable())
    return Error(ErrorCode::kUnsupported, fmt::format("running on {} is not supported by this build", quoted(d->id())),
                 {"Plan for it, or run on the cpu or on emulated devices."});
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].device == d) return i;
  DeviceState s;
  s.device = d;
  s.context.isa = d->isa();
  s.context.numerics = parts.numerics;
  s.context.pool = parts.pool;
  devices.push_back(std::move(s));
  return devices.size() - 1;
}

Status Model::State::check_spec() const {
  const arch::ModelSpec& m = spec();
  const std::string what = !m.unsupported.empty() ? m.unsupported : beyond_limits(m);
  if (what.empty()) return {};
  return Error(ErrorCode::kUnsupported, fmt::format("running {} is not supported: {}", m.architecture, what),
               {"It can be planned; to run it, use another model or a later version."});
}

Status Model::State::add_steps(size_t unit_index, std::array<size_t, kModes> on) {
  const arch::ModelSpec& m = spec();
  const sizing::Unit& unit = parts.units->units[unit_index];
  const sizing::RunShape& shape = parts.plan->shape;
  Step step;
  step.layer = unit.layer;
  step.unit = static_cast<int32_t>(unit_index);
  step.on = on;
  const auto add = [&](StepKind kind, sizing::WorkspaceLayout layout) {
    step.kind = kind;
    step.layout = layout;
    steps.push_back(step);
  };
  const auto add_bank = [&] {
    CHECK(!steps.empty() && steps.back().kind == StepKind::kMlp && steps.back().layer == unit.layer);
    step.home = steps.size() - 1;
    add(StepKind::kExpertBank, sizing::bank_workspace(m, unit.layer, shape));
  };
  switch (unit.kind) {
    case UnitKind::kAttention:
      add(StepKind::kAttention, sizing::attention_workspace(m, unit.layer, shape));
      return {};
    case UnitKind::kMlp:
      add(StepKind::kMlp, sizing::mlp_workspace(m, unit.layer, shape));
      return {};
    case UnitKind::kExpertBank:
      add_bank();
      return {};
    case UnitKind::kHead:
      add(StepKind::kHead, sizing::head_workspace(m, shape));
      return {};
    case UnitKind::kLayer: {
      const arch::LayerSpec& l = m.layers[static_cast<size_t>(unit.layer)];
      if (m.altup.inputs > 0 || l.parallel) {
        add(l.parallel ? StepKind::kParallel : StepKind::kAltUp, sizing::layer_workspace(m, unit.layer, shape));
        return {};
      }
      // A whole layer as one unit: its parts, one after the other, on one device.
      add(StepKind::kAttention, sizing::attention_workspace(m, unit.layer, shape));
      add(StepKind::kMlp, sizing::mlp_workspace(m, unit.layer, shape));
      if (l.mlp.moe) add_bank();
      return {};
    }
    case UnitKind::kTable:
      break;
  }
  return Error(ErrorCode::kInternal, fmt::format("unit {} is in the chain but cannot run", quoted(unit.path)));
}

Status Model::State::resolve() {
  TRY_STATUS(check_spec());
  const arch::ModelSpec& m = spec();
  const sizing::UnitTable& table = *parts.units;
  CHECK(parts.plan->units.size() == table.units.size());
  const sizing::RunShape& shape = parts.plan->shape;
  const auto is_accelerator = [&](size_t d) { return devices[d].device->kind() != machine::DeviceKind::kCpu; };
  std::optional<size_t> visited;  // before any was, the first one
  for (size_t u = 0; u < static_cast<size_t>(table.chain_size) && !visited; ++u) {
    TRY(const size_t d, device_state(parts.plan->units[u].computed_on));
    if (is_accelerator(d)) visited = d;
  }
  std::vector<uint64_t> workspace;
  for (size_t u = 0; u < table.units.size(); ++u) {
    const sizing::Unit& unit = table.units[u];
    const plan::PlacedUnit& placed = parts.plan->units[u];
    const bool is_table = static_cast<int32_t>(u) >= table.chain_size;
    // Rows of a table on the disk are gathered by the host.
    const std::string& gathers = placed.device == "disk" ? kHost : placed.device;
    TRY(const size_t on, device_state(is_table ? gathers : placed.computed_on));
    workspace.resize(devices.size(), 0);
    workspace[on] = std::max(workspace[on], unit.workspace_bytes);
    if (!is_table) {
      // For a prompt, what computes where it is stored may go to the accelerator visited last (plan/prefill.h).
      const bool goes = placed.access_prefill == plan::Access::kStream && placed.device == placed.computed_on;
      const size_t on_prefill = goes && visited ? *visited : on;
      if (is_accelerator(on_prefill)) visited = on_prefill;
      workspace[on_prefill] = std::max(workspace[on_prefill], unit.workspace_bytes);
      TRY_STATUS(add_steps(u, {on, on_prefill}));
    } else {
      const int32_t first = unit.tensors.empty() ? -1 : unit.tensors.front();
      const bool per_layer = first >= 0 && m.tensors[static_cast<size_t>(first)].role == Role::kPerLayerEmbedding;
      (per_layer ? per_layer_on : embedding_on) = on;
    }
  }
  table_layout = sizing::table_workspace(m, shape);
  input_layout = sizing::input_workspace(m, shape);
  per_layer_slice = input_layout.per_layer;
  for (size_t i = 0; i < devices.size(); ++i) {
    TRY(devices[i].workspace, devices[i].device->arena().allocate(workspace[i], device::Tag::kWorkspace));
  }
  std::vector<device::Device*> kv_devices(m.layers.size(), nullptr);
  for (const Step& step : steps)
    if (step.layer >= 0 && step.kind != StepKind::kMlp && step.kind != StepKind::kExpertBank)
      kv_devices[static_cast<size_t>(step.layer)] = devices[step.on[kDecode]].device;
  TRY(kv, KvCache::create(m, shape, kv_devices));
  embedding = parts.weights->find(Role::kEmbedding, -1);
  CHECK(embedding != nullptr);
  max_rows = shape.rows();
  TRY_STATUS(resolve_stream());
  resolve_copies();
  resolve_ropes();
  resolve_narrowing();
  resolve_per_layer();
  resolve_alibi();
  int64_t most_jobs = 2 + static_cast<int64_t>(m.layers.size()), most_experts = 0;
  for (const arch::LayerSpec& l : m.layers)
    if (l.mlp.moe) most_experts = std::max<int64_t>(most_experts, l.mlp.moe->experts);
  for (const arch::LayerSpec& l : m.layers)
    most_jobs =
        std::max<int64_t>({most_jobs, 3 * int64_t{l.attention.heads} + 3, 6 * int64_t{l.attention.linear_key_heads},
                           l.mlp.moe ? l.mlp.moe->experts_per_token : 0});
  linear_jobs.reserve(static_cast<size_t>(most_jobs));
  linear_weights.reserve(static_cast<size_t>(most_jobs));
  expert_pieces.reserve(static_cast<size_t>(2 * most_experts));
  attention_jobs.reserve(static_cast<size_t>(shape.batch));
  ranges.reserve(static_cast<size_t>(shape.batch));
  prompt_lengths.reserve(static_cast<size_t>(shape.batch));
  ids.reserve(static_cast<size_t>(max_rows));
  table_ids.reserve(static_cast<size_t>(max_rows));
  return {};
}

// Stages of the weight stream: every part of a unit that computes elsewhere than its weights are stored.
Status Model::State::resolve_stream() {
  load::StreamParts stream_parts;
  stream_parts.weights = parts.weights;
  stream_parts.devices = parts.devices;
  stream_parts.tensor_count = spec().tensors.size();
  stream_parts.modes.resize(kModes);
  for (const Mode m : {kDecode, kPrefill}) {
    std::vector<load::StreamStage>& stages = stream_parts.modes[m];
    const auto add = [&](Step& step) -> Result<int32_t> {
      const auto u = static_cast<size_t>(step.unit);
      const plan::PlacedUnit& placed = parts.plan->units[u];
      device::Device* on = devices[step.on[m]].device;
      if (placed.device == on->map_name()) return -1;
      const auto add_pool = [&](device::Device* d) -> Status {
        const plan::DeviceUse* use = parts.plan->device(d->map_name());
        const uint64_t staging = use == nullptr ? 0 : use->staging_bytes,
                       needed = 2 * parts.units->units[u].grain_bytes;
        if (needed > staging)
          return Error(ErrorCode::kInvalidArgument,
                       fmt::format("the plan streams {} to device {} and keeps {} bytes for that there; {} are needed",
                                   quoted(placed.path), d->map_name(), staging, needed),
                       {"Plan again (--replan)."});
        if (std::none_of(stream_parts.pools.begin(), stream_parts.pools.end(),
                         [&](const auto& p) { return p.on == d; }))
          stream_parts.pools.push_back({d, staging});
        return {};
      };
      TRY_STATUS(add_pool(on));
      if (placed.device == "disk") TRY_STATUS(add_pool(&parts.devices->cpu()));
      load::StreamStage stage;
      stage.unit = step.unit;
      stage.on = on;
      for (const int32_t t : parts.units->units[u].tensors)
        if (spec().tensors[static_cast<size_t>(t)].kind == arch::TensorKind::kVector) stage.vectors.push_back(t);
      stage.routed = step.kind == StepKind::kExpertBank;
      stages.push_back(std::move(stage));
      return static_cast<int32_t>(stages.size()) - 1;
    };
    for (size_t s = 0; s < steps.size(); ++s) {
      TRY(steps[s].stage[m], add(steps[s]));
      const bool experts_follow = s + 1 < steps.size() && steps[s + 1].kind == StepKind::kExpertBank;
      if (!experts_follow) continue;
      TRY(steps[s + 1].stage[m], add(steps[s + 1]));
      TRY(steps[s].last_stage[m], add(steps[s]));
      ++s;
    }
    for (size_t i = 0; i < stages.size(); ++i) {
      const auto same = [&](const load::StreamStage& other) { return other.unit == stages[i].unit; };
      const auto at = stages.begin() + static_cast<std::ptrdiff_t>(i);
      stages[i].opens = std::none_of(stages.begin(), at, same);
      stages[i].closes = std::none_of(at + 1, stages.end(), same);
    }
  }
  if (stream_parts.pools.empty()) return {};
  TRY(stream, load::WeightStream::create(std::move(stream_parts)));
  return {};
}

void Model::State::resolve_copies() {
  copies.resize(spec().layers.size());
  for (size_t l = 0; l < copies.size(); ++l) {
    for (const device::Device* d : kv.copies(static_cast<int32_t>(l))) {
      // The first reader there has room for new rows in its k and v.
      for (const Step& step : steps) {
        if (step.layer < 0 ||
            spec().layers[static_cast<size_t>(step.layer)].attention.kv_source_layer != static_cast<int32_t>(l))
          continue;
        if (devices[step.on[kDecode]].device != d || step.kind == StepKind::kMlp || step.kind == StepKind::kExpertBank)
          continue;
        copies[l].push_back({step.on[kDecode], step.layout});
        break;
      }
    }
  }
}

void Model::State::resolve_ropes() {
  for (const arch::RopeSpec& r : spec().ropes) {
    Rope rope;
    rope.parameters = rope_parameters(r);
    rope.attention_scaling = r.attention_scaling;
    rope.renews = r.renews;
    ropes.push_back(std::move(rope));
    RopeRows values;
    values.cos.resize(static_cast<size_t>(max_rows * (r.rotary_dim / 2)));
    values.sin.resize(values.cos.size());
    rope_rows.push_back(std::move(values));
  }
  sequences.resize(static_cast<size_t>(kv.sequences()));
  if (long_border() > 0) recomputed.reserve(static_cast<size_t>(kv.ctx_size()));
  if (long_border() > 0)
    for (SequenceState& s : sequences) s.past.reserve(static_cast<size_t>(kv.ctx_size()));
}

void Model::State::resolve_narrowing() {
  narrow_step = steps.size() - 1;  // the head
  const int32_t first = sizing::first_narrow_layer(spec());
  while (narrow_step > 0) {
    const Step& before = steps[narrow_step - 1];
    const bool is_mlp = before.kind == StepKind::kMlp || before.kind == StepKind::kExpertBank;
    if (before.layer + (is_mlp ? 1 : 0) < first) break;
    --narrow_step;
  }
}

void Model::State::resolve_per_layer() {
  per_layer_here.assign(devices.size(), false);
  for (auto& runs : per_layer_runs) runs.resize(devices.size());
  if (spec().per_layer_embedding.dim == 0) return;
  for (const Step& step : steps) {
    if (step.kind != StepKind::kMlp && step.kind != StepKind::kAltUp && step.kind != StepKind::kParallel) continue;
    for (const Mode m : {kDecode, kPrefill}) {
      auto& runs = per_layer_runs[m][step.on[m]];
      if (!runs.empty() && runs.back().second == step.layer) {
        ++runs.back().second;
      } else {
        runs.emplace_back(step.layer, step.layer + 1);
      }
    }
  }
}

void Model::State::resolve_alibi() {
  for (const arch::LayerSpec& l : spec().layers)
    if (l.attention.alibi && static_cast<size_t>(l.attention.heads) > alibi_slopes.size())
      alibi_slopes = alibi_slopes_of(l.attention.heads);
}

}  // namespace berth::model
