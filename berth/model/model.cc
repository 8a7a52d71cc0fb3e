// model/model.cc — walking the plan's units.
#include "berth/model/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "berth/base/float_environment.h"
#include "berth/base/strings.h"
#include "berth/kernel/attention.h"
#include "berth/kernel/elementwise.h"
#include "berth/model/attention.h"
#include "berth/model/families/gemma3n.h"
#include "berth/model/mlp.h"
#include "berth/model/state.h"

namespace berth::model {

ForwardState Model::State::pass() {
  return {spec(),         *parts.weights, kv,    ranges, rope_rows,   alibi_slopes, attention_jobs, linear_jobs,
          linear_weights, expert_pieces,  share, rows,   stage_stream};
}

Status Model::State::check(std::span<const BatchItem> items) const {
  int64_t total = 0, wanted = 0;
  for (const BatchItem& item : items) {
    if (item.sequence < 0 || item.sequence >= kv.sequences())
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("sequence {} was asked for; the plan has {}", item.sequence, kv.sequences()));
    for (const BatchItem& other : items)
      if (&other != &item && other.sequence == item.sequence)
        return Error(ErrorCode::kInvalidArgument, fmt::format("sequence {} occurs twice in one batch", item.sequence));
    const auto n = static_cast<int64_t>(item.tokens.size());
    if (n == 0) return Error(ErrorCode::kInvalidArgument, "a batch item has no tokens");
    const int64_t used = kv.length(item.sequence);
    if (used + n > kv.ctx_size())
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the context is full: {} positions are used, {} more are wanted, it holds {}", used, n,
                               kv.ctx_size()),
                   {"Plan with a larger --ctx-size, or shorten the prompt."});
    const int64_t positions = spec().position_rows - spec().position_offset;
    if (spec().position_rows > 0 && used + n > positions)
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("the model has learned {} positions; {} are used and {} more are wanted", positions, used, n),
          {"Shorten the prompt: this model has no more positions."});
    for (const int32_t id : item.tokens)
      if (id < 0 || id >= spec().vocab_rows)
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("token id {} is outside 0..{}", id, spec().vocab_rows - 1));
    total += n;
    wanted += item.logits == LogitRows::kAll ? n : item.logits == LogitRows::kLast ? 1 : 0;
  }
  if (total > max_rows)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} rows in one pass; the plan's workspace is for {}", total, max_rows));
  const int64_t most_wanted = parts.plan->shape.narrow_rows();
  if (wanted > most_wanted)
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("logits of {} rows in one pass are wanted; the plan's workspace is for {}", wanted, most_wanted),
        {"Plan for all rows (RunShape::wanted_rows 0), as evaluating does."});
  return {};
}

void Model::State::lay_rows(std::span<const BatchItem> items) {
  ranges.clear();
  prompt_lengths.clear();
  ids.clear();
  for (const BatchItem& item : items) {
    ranges.push_back({item.sequence, static_cast<int64_t>(ids.size()), static_cast<int64_t>(item.tokens.size()),
                      kv.length(item.sequence)});
    prompt_lengths.push_back(item.prompt_length);
    ids.insert(ids.end(), item.tokens.begin(), item.tokens.end());
  }
  rows = static_cast<int64_t>(ids.size());
}

void Model::State::make_rope_rows() {
  for (size_t r = 0; r < ropes.size(); ++r) {
    Rope& rope = ropes[r];
    const auto half = static_cast<size_t>(rope.parameters.rotary_dim / 2);
    const bool by_length = kernel::depends_on_length(rope.parameters.scaling);
    for (size_t i = 0; i < ranges.size(); ++i) {
      const bool long_list = sequences[static_cast<size_t>(ranges[i].sequence)].long_list;
      for (int64_t k = 0; k < ranges[i].rows; ++k) {
        const int64_t position = ranges[i].position + k;
        int64_t length = by_length ? std::max(prompt_lengths[i], position + 1) : 0;
        if (rope.renews && long_list) length = std::max(length, rope.border() + 1);
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
  const uint64_t bytes = static_cast<uint64_t>(streams() * rows * spec().hidden) * sizeof(float);
  // `hidden` is the first slice of every layout.
  return parts.devices->copy(*devices[to].device, devices[to].workspace.data(), *devices[from].device,
                             devices[from].workspace.data(), bytes);
}

// New rows of a layer's cache to the devices that keep a copy of it.
Status Model::State::share_rows(int32_t layer, const DeviceState& from, const float* k, const float* v) {
  const arch::AttentionSpec& a = spec().layers[static_cast<size_t>(layer)].attention;
  const int64_t k_width = int64_t{a.kv_heads} * a.head_dim, v_width = int64_t{a.kv_heads} * a.v_head_dim;
  for (const CacheCopy& copy : copies[static_cast<size_t>(layer)]) {
    DeviceState& to = devices[copy.on];
    float* to_k = to.at(copy.layout.k);
    float* to_v = to.at(copy.layout.v);
    const auto send = [&](float* there, const float* here, int64_t width) {
      return parts.devices->copy(*to.device, reinterpret_cast<std::byte*>(there), *from.device,
                                 reinterpret_cast<const std::byte*>(here),
                                 static_cast<uint64_t>(rows * width) * sizeof(float));
    };
    TRY_STATUS(send(to_k, k, k_width));
    TRY_STATUS(send(to_v, v, v_width));
    for (const RowRange& range : ranges)
      kernel::kv_write(to.context, kv.view(layer, range.sequence, *to.device), range.position, range.rows,
                       to_k + range.first_row * k_width, k_width, to_v + range.first_row * v_width, v_width);
  }
  return {};
}

// --- streamed units

void Model::State::start_stream(std::span<const BatchItem> items) {
  stage_stream = nullptr;
  if (stream == nullptr) return;
  // Without wanted logits nothing runs from where only their rows do.
  const bool wanted =
      std::any_of(items.begin(), items.end(), [](const BatchItem& i) { return i.logits != LogitRows::kNone; });
  const size_t end = wanted ? steps.size() : std::min(narrow_step, steps.size() - 1);
  size_t stages = 0;
  for (size_t s = 0; s < end; ++s)
    stages = std::max(stages, static_cast<size_t>(std::max(steps[s].stage[mode], steps[s].last_stage[mode]) + 1));
  stream->start(mode, stages);
}

void Model::State::begin_stage(int32_t stage) {
  if (stage < 0) return;
  stage_stream = stream.get();
  stream->begin(static_cast<size_t>(stage));
}

Status Model::State::end_stage(int32_t stage) {
  stage_stream = nullptr;
  if (stage < 0) return {};
  stream->end(static_cast<size_t>(stage));
  return stream->status();
}

// The bank's input goes to where it lives, the weighted sum comes back.
Status Model::State::run_bank(Step& step) {
  const Step& mlp = steps[step.home];
  const size_t on_index = this->on(step), home_index = this->on(mlp);
  DeviceState& on = devices[on_index];
  DeviceState& home = devices[home_index];
  const arch::MoeSpec& moe = *spec().layers[static_cast<size_t>(step.layer)].mlp.moe;
  const int64_t n = spec().hidden;
  const auto copy = [&](DeviceState& to, DeviceState& from, const sizing::Slice& slice, int64_t width) {
    return parts.devices->copy(*to.device, reinterpret_cast<std::byte*>(to.at(slice)), *from.device,
                               reinterpret_cast<const std::byte*>(from.at(slice)),
                               static_cast<uint64_t>(rows * width) * sizeof(float));
  };
  const bool away = on_index != home_index;
  if (away) {
    TRY_STATUS(copy(on, home, step.layout.expert_input, n));
    TRY_STATUS(copy(on, home, step.layout.expert_ids, moe.experts_per_token));
    TRY_STATUS(copy(on, home, step.layout.expert_weights, moe.experts_per_token));
  }
  begin_stage(step.stage[mode]);
  run_experts(pass(), on, step.layout, step.layer);
  TRY_STATUS(end_stage(step.stage[mode]));
  if (away) TRY_STATUS(copy(home, on, step.layout.expert_sum, n));
  begin_stage(mlp.last_stage[mode]);
  finish_experts(pass(), home, mlp.layout, step.layer);
  return end_stage(mlp.last_stage[mode]);
}

Status Model::State::run_step(Step& step, size_t& at) {
  if (step.kind == StepKind::kExpertBank) return run_bank(step);  // the stream stays with its MLP
  TRY_STATUS(move_hidden(at, this->on(step)));
  at = this->on(step);
  DeviceState& on = devices[at];
  const int32_t stage = step.stage[mode];
  if (step.kind == StepKind::kHead) return {};      // head() computes, if logits are wanted
  if (&step != &steps.front()) begin_stage(stage);  // the first one began with the input
  const ForwardState p = pass();
  if (spec().per_layer_embedding.dim > 0) TRY_STATUS(bring_per_layer(at));
  switch (step.kind) {
    case StepKind::kAttention:
      TRY_STATUS(run_attention(p, on, step.layout, step.layer));
      break;
    case StepKind::kMlp:
      run_mlp(p, on, step.layout, step.layer);
      break;
    case StepKind::kParallel:
      TRY_STATUS(run_parallel(p, on, step.layout, step.layer));
      break;
    case StepKind::kAltUp:
      TRY_STATUS(run_altup_layer(p, on, step.layout, step.layer));
      break;
    case StepKind::kExpertBank:
    case StepKind::kHead:
      break;
  }
  return end_stage(stage);
}

// Keeps the rows whose logits are wanted, at the front: no later layer writes a cache.
void Model::State::narrow(std::span<const BatchItem> items, size_t at) {
  const int64_t n = spec().hidden, width = spec().per_layer_embedding.dim, old_rows = rows;
  int64_t kept = 0;
  const auto first_kept = [&](size_t i) {
    if (items[i].logits == LogitRows::kAll) return int64_t{0};
    return ranges[i].rows - (items[i].logits == LogitRows::kLast ? 1 : 0);
  };
  for (size_t i = 0; i < ranges.size(); ++i) kept += ranges[i].rows - first_kept(i);
  if (kept == old_rows) return;
  // Planes of [old_rows, width] become planes of [kept, width], in place: every row moves forward.
  const auto compact = [&](float* base, int64_t plane, int64_t row_width) {
    float* to = base + plane * kept * row_width;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const int64_t skip = first_kept(i), count = ranges[i].rows - skip;
      std::memmove(to, base + (plane * old_rows + ranges[i].first_row + skip) * row_width,
                   static_cast<size_t>(count * row_width) * sizeof(float));
      to += count * row_width;
    }
  };
  for (int64_t s = 0; s < streams(); ++s) compact(devices[at].at(steps.front().layout.hidden), s, n);
  for (size_t d = 0; d < devices.size(); ++d)
    if (width > 0 && per_layer_here[d])
      for (int64_t l = 0; l < static_cast<int64_t>(spec().layers.size()); ++l)
        compact(devices[d].at(per_layer_slice), l, width);
  int64_t next = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t skip = first_kept(i);
    ranges[i].first_row = next;
    ranges[i].position += skip;
    ranges[i].rows -= skip;
    next += ranges[i].rows;
  }
  rows = kept;
  make_rope_rows();
}

Status Model::State::run_chain(std::span<const BatchItem> items, bool faults) {
  lay_rows(items);
  make_rope_rows();
  start_stream(items);
  size_t at = on(steps.front());
  begin_stage(steps.front().stage[mode]);
  TRY_STATUS(make_input(at));
  for (size_t s = 0; s < steps.size(); ++s) {
    if (s == narrow_step) narrow(items, at);
    if (rows == 0) return {};
    Step& step = steps[s];
    TRY_STATUS(run_step(step, at));
    if (!faults) continue;
    const DeviceState& on = devices[at];
    for (const RowRange& range : ranges)
      for (int64_t k = 0; k < range.rows; ++k)
        for (int64_t i = 0; i < streams(); ++i)
          if (!kernel::all_finite(on.at(step.layout.hidden) + (i * rows + range.first_row + k) * spec().hidden,
                                  spec().hidden))
            return Error(ErrorCode::kCorruptData,
                         fmt::format("values are not finite from {} on, at position {} of sequence {}",
                                     quoted(parts.units->units[static_cast<size_t>(step.unit)].path),
                                     range.position + k, range.sequence),
                         {"A weight or scale there is NaN, infinite or far too large: check the checkpoint (berth "
                          "inspect)."});
  }
  return {};
}

// Runs the pass again, looking at every unit's output; cache rows are written with the same values.
Status Model::State::find_fault(std::span<const BatchItem> items) {
  TRY_STATUS(run_chain(items, true));
  return Error(ErrorCode::kCorruptData, "logits are not finite: the final norm or the head makes them so",
               {"A weight or scale there is NaN, infinite or far too large: check the checkpoint (berth inspect)."});
}

Status Model::State::run_pass(std::span<const BatchItem> items, LogitsCallback on_logits) {
  for (const BatchItem& item : items) {
    if (kv.length(item.sequence) > 0) continue;
    SequenceState& s = sequences[static_cast<size_t>(item.sequence)];
    s.prompt = item.prompt_length;
    s.long_list = long_border() > 0 && std::max<int64_t>(item.prompt_length, 1) > long_border();
  }
  int64_t tokens = 0;
  for (const BatchItem& item : items) tokens += static_cast<int64_t>(item.tokens.size());
  mode = tokens > static_cast<int64_t>(items.size()) ? kPrefill : kDecode;
  parts.devices->set_decoding(mode == kDecode);
  if (mode == kDecode) ++decode_steps;
  Status status = run_chain(items, false);
  if (status) status = parts.weights->check_mapped();  // before anybody sees logits
  if (status) status = head(items, on_logits);
  if (!status) {
    // A recurrent state has moved on and cannot go back: those sequences begin anew.
    if (kv.recurrent())
      for (const BatchItem& item : items) kv.set_length(item.sequence, 0);
    return status;
  }
  for (const BatchItem& item : items) {
    const int64_t before = kv.length(item.sequence);
    kv.set_length(item.sequence, before + static_cast<int64_t>(item.tokens.size()));
    if (long_border() == 0) continue;
    std::vector<int32_t>& past = sequences[static_cast<size_t>(item.sequence)].past;
    past.resize(static_cast<size_t>(before));
    past.insert(past.end(), item.tokens.begin(), item.tokens.end());
  }
  return {};
}

// --- long rope: on passing its border the prefix is computed anew with the long list, as Transformers generates.

int64_t Model::State::long_border() const {
  for (const Rope& rope : ropes)
    if (rope.renews) return rope.border();
  return 0;
}

Status Model::State::recompute_long(int32_t sequence) {
  SequenceState& s = sequences[static_cast<size_t>(sequence)];
  const int64_t length = kv.length(sequence);
  const auto ignore = [](size_t, int64_t, std::span<const float>) { return Status(); };
  kv.set_length(sequence, 0);
  recomputed.assign(s.past.begin(), s.past.begin() + length);
  for (int64_t done = 0; done < length;) {
    const int64_t n = std::min(max_rows, length - done);
    BatchItem item;
    item.sequence = sequence;
    item.tokens = std::span<const int32_t>(recomputed).subspan(static_cast<size_t>(done), static_cast<size_t>(n));
    item.logits = LogitRows::kNone;
    item.prompt_length = std::max(length, long_border() + 1);
    TRY_STATUS(run_pass(std::span(&item, 1), ignore));
    done += n;
  }
  return {};
}

// Items whose rows lie on both sides of the border are cut there.
Status Model::State::run_over_border(std::span<const BatchItem> items, LogitsCallback on_logits) {
  const int64_t border = long_border();
  const auto cut = [&](const BatchItem& item) {  // rows before the border
    const int64_t at = kv.length(item.sequence), n = static_cast<int64_t>(item.tokens.size());
    const bool long_list = sequences[static_cast<size_t>(item.sequence)].long_list && at > 0;
    return long_list || item.prompt_length > border ? 0 : std::clamp<int64_t>(border - at, 0, n);
  };
  const auto ready = [&](const BatchItem& item) {
    const bool crosses =
        kv.length(item.sequence) > 0 && cut(item) == 0 && !sequences[static_cast<size_t>(item.sequence)].long_list;
    return crosses ? recompute_long(item.sequence) : Status();
  };
  const bool straddles = std::any_of(items.begin(), items.end(), [&](const BatchItem& item) {
    const int64_t before = cut(item);
    return before > 0 && before < static_cast<int64_t>(item.tokens.size());
  });
  if (!straddles) {
    for (const BatchItem& item : items) TRY_STATUS(ready(item));
    return run_pass(items, on_logits);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const auto as_item = [&](size_t, int64_t position, std::span<const float> row) {
      return on_logits(i, position, row);
    };
    const auto before = static_cast<size_t>(cut(items[i]));
    BatchItem part = items[i];
    if (before > 0) {
      part.tokens = items[i].tokens.subspan(0, before);
      if (before < items[i].tokens.size() && part.logits == LogitRows::kLast) part.logits = LogitRows::kNone;
      TRY_STATUS(run_pass(std::span(&part, 1), as_item));
    }
    if (before == items[i].tokens.size()) continue;
    part = items[i];
    part.tokens = items[i].tokens.subspan(before);
    TRY_STATUS(ready(part));
    TRY_STATUS(run_pass(std::span(&part, 1), as_item));
  }
  return {};
}

// --- the public class

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
  TRY_STATUS(state_->check(items));
  if (state_->long_border() > 0) return state_->run_over_border(items, on_logits);
  return state_->run_pass(items, on_logits);
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
  const SequenceState& s = state_->sequences[static_cast<size_t>(sequence)];
  for (const Rope& rope : state_->ropes) {
    if (!kernel::depends_on_length(rope.parameters.scaling)) continue;
    // Keys are turned by the length they were computed with: past the border of this rope, by another one.
    if (prompt_length > rope.border() || s.prompt > rope.border() || s.long_list) return 0;
  }
  return state_->kv.keepable(sequence, common);
}

int64_t Model::max_rows() const { return state_->max_rows; }
int64_t Model::decode_steps() const { return state_->decode_steps; }
KvCache& Model::kv() { return state_->kv; }
std::span<std::byte> Model::workspace(const device::Device& on) {
  for (const DeviceState& d : state_->devices)
    if (d.device == &on) return d.workspace.bytes();
  return {};
}
const arch::ModelSpec& Model::spec() const { return state_->spec(); }

}  // namespace berth::model
