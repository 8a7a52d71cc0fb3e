// model/model.cc — walking the plan's units.
#include "berth/model/model.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "berth/base/check.h"
#include "berth/base/float_environment.h"
#include "berth/base/strings.h"
#include "berth/kernel/elementwise.h"
#include "berth/kernel/rope.h"
#include "berth/model/decoder.h"

namespace berth::model {
namespace {

using arch::Role;
using sizing::UnitKind;

kernel::RopeScaling scaling_of(arch::RopeScaling scaling) {
  switch (scaling) {
    case arch::RopeScaling::kDefault: return kernel::RopeScaling::kDefault;
    case arch::RopeScaling::kLinear: return kernel::RopeScaling::kLinear;
    case arch::RopeScaling::kProportional: return kernel::RopeScaling::kProportional;
    case arch::RopeScaling::kLlama3: return kernel::RopeScaling::kLlama3;
    case arch::RopeScaling::kYarn: return kernel::RopeScaling::kYarn;
    case arch::RopeScaling::kDynamic: return kernel::RopeScaling::kDynamic;
    case arch::RopeScaling::kLongRope: return kernel::RopeScaling::kLongRope;
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

// One rope: its frequencies (kept for the last length asked) and the rows of the current pass.
struct Rope {
  kernel::RopeParameters parameters;
  double attention_scaling = 1;
  std::vector<float> inv_freq;
  int64_t length = -1;
};

// A unit of the chain, resolved: where it computes and with which buffers.
struct Step {
  UnitKind kind = UnitKind::kMlp;
  int32_t layer = -1;
  int32_t unit = -1;
  size_t on = 0;  // index into devices
  sizing::WorkspaceLayout layout;
};

bool layer_runs(const arch::LayerSpec& l) {
  const arch::AttentionKind kind = l.attention.kind;
  return !l.parallel && !l.mlp.moe && !l.per_layer_embedding && !l.layer_scalar && l.mlp.present &&
         (kind == arch::AttentionKind::kFull || kind == arch::AttentionKind::kSliding ||
          kind == arch::AttentionKind::kChunked);
}

}  // namespace

struct Model::State {
  ModelParts parts;
  std::vector<DeviceState> devices;
  std::vector<Step> steps;  // the chain
  KvCache kv;
  std::vector<Rope> ropes;
  std::vector<RopeRows> rope_rows;
  std::vector<kernel::AttentionJob> attention_jobs;
  std::vector<RowRange> ranges;
  std::vector<int32_t> ids;
  size_t table_device = 0;
  sizing::WorkspaceLayout table_layout;
  const load::HeldTensor* embedding = nullptr;
  int64_t max_rows = 0;

  const arch::ModelSpec& spec() const { return *parts.spec; }

  Status resolve();
  Result<size_t> device_state(const std::string& name);
  Status check(std::span<const BatchItem> items) const;
  void lay_rows(std::span<const BatchItem> items);
  void make_rope_rows(std::span<const BatchItem> items);
  Status embed(size_t to);
  Status move_hidden(size_t from, size_t to);
  Status run_chain(bool find_fault);
  Status head(std::span<const BatchItem> items, LogitsCallback on_logits);
  Status find_fault();
};

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

Status Model::State::resolve() {
  const arch::ModelSpec& m = spec();
  if (!m.unsupported.empty())
    return Error(ErrorCode::kUnsupported, fmt::format("running {} is not supported: {}", m.architecture, m.unsupported),
                 {"It can be planned; to run it, use another model or a later version."});
  for (size_t l = 0; l < m.layers.size(); ++l)
    if (!layer_runs(m.layers[l]))
      return Error(ErrorCode::kUnsupported, fmt::format("running {} is not supported: layer {} has a kind of block that the "
                                                        "engine lacks", m.architecture, l));
  const sizing::UnitTable& table = *parts.units;
  CHECK(parts.plan->units.size() == table.units.size());
  std::vector<uint64_t> workspace;
  const auto need_workspace = [&](size_t on, uint64_t bytes) {
    workspace.resize(std::max(workspace.size(), on + 1), 0);
    workspace[on] = std::max(workspace[on], bytes);
  };
  std::vector<device::Device*> kv_devices(m.layers.size(), nullptr);
  const sizing::RunShape& shape = parts.plan->shape;
  for (size_t u = 0; u < table.units.size(); ++u) {
    const sizing::Unit& unit = table.units[u];
    const plan::PlacedUnit& placed = parts.plan->units[u];
    const bool is_table = static_cast<int32_t>(u) >= table.chain_size;
    if (placed.access == plan::Access::kStream || (!is_table && placed.device != placed.computed_on))
      return Error(ErrorCode::kUnsupported,
                   fmt::format("the plan streams {} from {} to {}, which the engine cannot do yet", quoted(placed.path),
                               placed.device, placed.computed_on),
                   {"Plan with units computed where they are stored."});
    TRY(const size_t on, device_state(is_table ? placed.device : placed.computed_on));
    need_workspace(on, unit.workspace_bytes);
    if (is_table) {
      table_device = on;
      table_layout = sizing::table_workspace(m, shape);
      continue;
    }
    Step step;
    step.kind = unit.kind;
    step.layer = unit.layer;
    step.unit = static_cast<int32_t>(u);
    step.on = on;
    switch (unit.kind) {
      case UnitKind::kAttention:
        step.layout = sizing::attention_workspace(m, unit.layer, shape);
        kv_devices[static_cast<size_t>(unit.layer)] = devices[on].device;
        break;
      case UnitKind::kMlp: step.layout = sizing::mlp_workspace(m, unit.layer, shape); break;
      case UnitKind::kHead: step.layout = sizing::head_workspace(m, shape); break;
      default:
        if (unit.kind == UnitKind::kLayer && !m.layers[static_cast<size_t>(unit.layer)].parallel) {
          // A whole layer as one unit: its two halves, one after the other, on one device.
          step.kind = UnitKind::kAttention;
          step.layout = sizing::attention_workspace(m, unit.layer, shape);
          kv_devices[static_cast<size_t>(unit.layer)] = devices[on].device;
          steps.push_back(step);
          step.kind = UnitKind::kMlp;
          step.layout = sizing::mlp_workspace(m, unit.layer, shape);
          break;
        }
        return Error(ErrorCode::kUnsupported, fmt::format("running unit {} is not supported yet", quoted(unit.path)));
    }
    steps.push_back(step);
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    TRY(devices[i].workspace, devices[i].device->arena().allocate(workspace[i], device::Tag::kWorkspace));
  }
  TRY(kv, KvCache::create(m, shape, kv_devices));
  embedding = parts.weights->find(Role::kEmbedding, -1);
  CHECK(embedding != nullptr);
  max_rows = shape.rows();
  for (const arch::RopeSpec& r : m.ropes) {
    Rope rope;
    rope.parameters = rope_parameters(r);
    rope.attention_scaling = r.attention_scaling;
    ropes.push_back(std::move(rope));
    RopeRows rows;
    rows.cos.resize(static_cast<size_t>(max_rows * (r.rotary_dim / 2)));
    rows.sin.resize(rows.cos.size());
    rope_rows.push_back(std::move(rows));
  }
  attention_jobs.reserve(static_cast<size_t>(shape.batch));
  ranges.reserve(static_cast<size_t>(shape.batch));
  ids.reserve(static_cast<size_t>(max_rows));
  return {};
}

Status Model::State::check(std::span<const BatchItem> items) const {
  int64_t rows = 0;
  for (const BatchItem& item : items) {
    if (item.sequence < 0 || item.sequence >= kv.sequences())
      return Error(ErrorCode::kInvalidArgument, fmt::format("sequence {} was asked for; the plan has {}", item.sequence, kv.sequences()));
    for (const BatchItem& other : items)
      if (&other != &item && other.sequence == item.sequence)
        return Error(ErrorCode::kInvalidArgument, fmt::format("sequence {} occurs twice in one batch", item.sequence));
    const int64_t n = static_cast<int64_t>(item.tokens.size());
    if (n == 0) return Error(ErrorCode::kInvalidArgument, "a batch item has no tokens");
    if (kv.length(item.sequence) + n > kv.ctx_size())
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the context is full: {} positions are used, {} more are wanted, it holds {}",
                               kv.length(item.sequence), n, kv.ctx_size()),
                   {"Plan with a larger --ctx-size, or shorten the prompt."});
    for (const int32_t id : item.tokens)
      if (id < 0 || id >= spec().vocab_rows)
        return Error(ErrorCode::kInvalidArgument, fmt::format("token id {} is outside 0..{}", id, spec().vocab_rows - 1));
    rows += n;
  }
  if (rows > max_rows)
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} rows in one pass; the plan's workspace is for {}", rows, max_rows));
  return {};
}

void Model::State::lay_rows(std::span<const BatchItem> items) {
  ranges.clear();
  ids.clear();
  for (const BatchItem& item : items) {
    ranges.push_back({item.sequence, static_cast<int64_t>(ids.size()), static_cast<int64_t>(item.tokens.size()),
                      kv.length(item.sequence)});
    ids.insert(ids.end(), item.tokens.begin(), item.tokens.end());
  }
}

void Model::State::make_rope_rows(std::span<const BatchItem> items) {
  for (size_t r = 0; r < ropes.size(); ++r) {
    Rope& rope = ropes[r];
    const size_t half = static_cast<size_t>(rope.parameters.rotary_dim / 2);
    const bool by_length = kernel::depends_on_length(rope.parameters.scaling);
    for (size_t i = 0; i < items.size(); ++i) {
      for (int64_t k = 0; k < ranges[i].rows; ++k) {
        const int64_t position = ranges[i].position + k;
        const int64_t length = by_length ? std::max(items[i].prompt_length, position + 1) : 0;
        if (rope.length != length) {
          rope.inv_freq = kernel::inverse_frequencies(rope.parameters, length);
          rope.length = length;
        }
        const size_t row = static_cast<size_t>(ranges[i].first_row + k) * half;
        kernel::rope_row(rope.inv_freq, position, rope.attention_scaling, rope_rows[r].cos.data() + row,
                         rope_rows[r].sin.data() + row);
      }
    }
  }
}

Status Model::State::move_hidden(size_t from, size_t to) {
  if (from == to) return {};
  const uint64_t bytes = static_cast<uint64_t>(ids.size()) * static_cast<uint64_t>(spec().hidden) * sizeof(float);
  // `hidden` is the first slice of every layout.
  return parts.devices->copy(*devices[to].device, devices[to].workspace.data(), *devices[from].device,
                             devices[from].workspace.data(), bytes);
}

Status Model::State::embed(size_t to) {
  DeviceState& at = devices[table_device];
  float* rows = at.at(table_layout.hidden);
  kernel::gather_rows(at.context, embedding->matrix, ids, rows, spec().hidden);
  const auto n = static_cast<int64_t>(ids.size());
  if (spec().embedding_scale != 1)
    kernel::scale(at.context, rows, spec().hidden, static_cast<float>(spec().embedding_scale), n, spec().hidden);
  return move_hidden(table_device, to);
}

Status Model::State::run_chain(bool faults) {
  const ForwardState pass{spec(), *parts.weights, kv, ranges, rope_rows, attention_jobs, static_cast<int64_t>(ids.size())};
  size_t at = steps.front().on;
  TRY_STATUS(embed(at));
  for (Step& step : steps) {
    TRY_STATUS(move_hidden(at, step.on));
    at = step.on;
    DeviceState& on = devices[at];
    if (step.kind == UnitKind::kAttention) run_attention(pass, on, step.layout, step.layer);
    if (step.kind == UnitKind::kMlp) run_mlp(pass, on, step.layout, step.layer);
    if (!faults) continue;
    for (const RowRange& range : ranges)
      for (int64_t k = 0; k < range.rows; ++k)
        if (!kernel::all_finite(on.at(step.layout.hidden) + (range.first_row + k) * spec().hidden, spec().hidden))
          return Error(ErrorCode::kCorruptData,
                       fmt::format("values are not finite from {} on, at position {} of sequence {}",
                                   quoted(parts.units->units[static_cast<size_t>(step.unit)].path), range.position + k,
                                   range.sequence),
                       {"A weight or scale there is NaN, infinite or far too large: check the checkpoint (berth inspect)."});
  }
  return {};
}

// Runs the pass again, looking at every unit's output; cache rows are written with the same values.
Status Model::State::find_fault() {
  TRY_STATUS(run_chain(true));
  return Error(ErrorCode::kCorruptData, "logits are not finite: the final norm or the head makes them so",
               {"A weight or scale there is NaN, infinite or far too large: check the checkpoint (berth inspect)."});
}

Status Model::State::head(std::span<const BatchItem> items, LogitsCallback on_logits) {
  const Step& step = steps.back();
  DeviceState& on = devices[step.on];
  const arch::ModelSpec& m = spec();
  const int64_t turn = parts.plan->shape.logit_rows;
  struct Row {
    size_t item;
    int64_t row, position;
  };
  const load::HeldTensor* weight = parts.weights->find(Role::kHead, -1);
  if (weight == nullptr) weight = embedding;
  const load::HeldTensor* bias = parts.weights->find(Role::kHeadBias, -1);
  size_t item = 0;
  int64_t next = 0;  // row within the item
  for (;;) {
    // The next `turn` wanted rows, normed one by one into consecutive rows.
    Row rows[64];
    int64_t count = 0;
    while (item < items.size() && count < std::min<int64_t>(turn, 64)) {
      const LogitRows want = items[item].logits;
      const int64_t n = ranges[item].rows;
      if (want == LogitRows::kNone || next >= n) {
        ++item;
        next = 0;
        continue;
      }
      if (want == LogitRows::kLast) next = n - 1;
      rows[count] = {item, ranges[item].first_row + next, ranges[item].position + next};
      apply_norm(on.context, m.final_norm, parts.weights->find(Role::kFinalNorm, -1),
                 parts.weights->find(Role::kFinalNormBias, -1), on.at(step.layout.hidden) + rows[count].row * m.hidden, 1,
                 m.hidden, on.at(step.layout.normed) + count * m.hidden);
      ++count;
      ++next;
    }
    if (count == 0) return {};
    float* logits = on.at(step.layout.logits);
    kernel::LinearJob job;
    job.weight = &weight->matrix;
    job.row_count = m.vocab_size;
    job.bias = bias == nullptr ? nullptr : bias->as_vector();
    job.y = logits;
    job.y_stride = m.vocab_size;
    kernel::linear(on.context, {on.at(step.layout.normed), count, m.hidden, m.hidden}, std::span(&job, 1),
                   on.scratch(step.layout));
    if (m.logits_multiplier != 1)
      kernel::scale(on.context, logits, m.vocab_size, static_cast<float>(m.logits_multiplier), count, m.vocab_size);
    if (m.logits_divisor != 1)
      kernel::divide(on.context, logits, m.vocab_size, static_cast<float>(m.logits_divisor), count, m.vocab_size);
    if (m.final_softcap != 0)
      kernel::softcap(on.context, logits, m.vocab_size, static_cast<float>(m.final_softcap), count, m.vocab_size);
    for (int64_t i = 0; i < count; ++i) {
      const std::span<const float> row(logits + i * m.vocab_size, static_cast<size_t>(m.vocab_size));
      if (!kernel::all_finite(row.data(), m.vocab_size)) return find_fault();
      TRY_STATUS(on_logits(rows[i].item, rows[i].position, row));
    }
  }
}

Result<Model> Model::create(const ModelParts& parts) {
  auto state = std::make_unique<State>();
  state->parts = parts;
  TRY_STATUS(state->resolve());
  return Model(std::move(state));
}

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Status Model::forward(std::span<const BatchItem> items, LogitsCallback on_logits) {
  const FloatEnvironmentScope exact_floats;
  State& s = *state_;
  TRY_STATUS(s.check(items));
  s.lay_rows(items);
  s.make_rope_rows(items);
  TRY_STATUS(s.run_chain(false));
  TRY_STATUS(s.head(items, on_logits));
  for (const RowRange& range : s.ranges) s.kv.set_length(range.sequence, range.position + range.rows);
  return {};
}

Status Model::prefill(int32_t sequence, std::span<const int32_t> tokens, LogitRows logits, LogitsCallback on_logits) {
  const int64_t chunk = std::min(state_->parts.plan->shape.prefill_chunk, max_rows());
  const auto total = static_cast<int64_t>(tokens.size());
  const int64_t prompt = (sequence >= 0 && sequence < kv().sequences() ? kv().length(sequence) : 0) + total;
  for (int64_t done = 0; done < total; done += chunk) {
    const int64_t n = std::min(chunk, total - done);
    BatchItem item;
    item.sequence = sequence;
    item.tokens = tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(n));
    item.prompt_length = prompt;
    item.logits = logits == LogitRows::kLast && done + n < total ? LogitRows::kNone : logits;
    TRY_STATUS(forward(std::span(&item, 1), on_logits));
  }
  return {};
}

int64_t Model::keepable(int32_t sequence, int64_t common, int64_t prompt_length) const {
  for (const Rope& rope : state_->ropes) {
    const kernel::RopeParameters& p = rope.parameters;
    if (!kernel::depends_on_length(p.scaling)) continue;
    const int64_t border = p.scaling == kernel::RopeScaling::kDynamic ? p.max_position : p.original_max_position;
    if (prompt_length > border) return 0;
  }
  return state_->kv.keepable(sequence, common);
}

int64_t Model::max_rows() const { return state_->max_rows; }
KvCache& Model::kv() { return state_->kv; }
const arch::ModelSpec& Model::spec() const { return state_->spec(); }

}  // namespace berth::model
