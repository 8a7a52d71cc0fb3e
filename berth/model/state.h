// model/state.h — what a Model holds: devices, steps, cache, and the pass in progress. Private to model.
//
// resolve.cc fills it from a plan; input.cc makes the first layer's input, model.cc walks the steps, head.cc makes
// logits.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "berth/kernel/rope.h"
#include "berth/load/table_rows.h"
#include "berth/model/forward_state.h"
#include "berth/model/model.h"

namespace berth::model {

// One rope: its frequencies (kept for the last length asked) and how long a sequence may be before they change.
struct Rope {
  kernel::RopeParameters parameters;
  double attention_scaling = 1;
  std::vector<float> inv_freq;
  int64_t length = -1;
  bool renews = false;  // passing the border computes the sequence anew
  int64_t border() const {
    return parameters.scaling == kernel::RopeScaling::kDynamic ? parameters.max_position
                                                               : parameters.original_max_position;
  }
};

enum class StepKind { kAttention, kMlp, kExpertBank, kParallel, kAltUp, kHead };

// How a pass uses the units: one token of each sequence, or rows of a prompt. What is away may compute elsewhere then.
enum Mode : size_t { kDecode, kPrefill };
inline constexpr size_t kModes = 2;

// A unit of the chain (or half of a whole layer), resolved: where it computes and with which buffers.
struct Step {
  StepKind kind = StepKind::kMlp;
  int32_t layer = -1;
  int32_t unit = -1;
  std::array<size_t, kModes> on{};  // by mode, index into devices
  sizing::WorkspaceLayout layout;
  // kExpertBank: the MLP that it belongs to.
  size_t home = 0;  // index into steps
  // By mode: its stage of the weight stream; -1: its weights are where it computes. An MLP with experts has another
  // one after them.
  std::array<int32_t, kModes> stage{-1, -1}, last_stage{-1, -1};
};

// A copy of a layer's cache: new rows are written there from `layout`'s k and v.
struct CacheCopy {
  size_t on = 0;
  sizing::WorkspaceLayout layout;
};

// What is known of a sequence beside its cache; only ropes that depend on length need it.
struct SequenceState {
  int64_t prompt = 0;         // prompt_length when position 0 was computed
  bool long_list = false;     // long rope: the cache holds keys of the long list
  std::vector<int32_t> past;  // tokens so far, reserved once
};

struct Model::State {
  ModelParts parts;
  std::vector<DeviceState> devices;
  std::vector<Step> steps;  // the chain
  // From this step on only rows whose logits are wanted are computed: none that is left writes a cache.
  size_t narrow_step = 0;
  KvCache kv;
  std::vector<std::vector<CacheCopy>> copies;  // per layer
  std::vector<float> alibi_slopes;
  // What units call for caches that are kept on other devices too.
  struct Share {
    State* state;
    Status operator()(int32_t layer, const DeviceState& from, const float* k, const float* v) const {
      return state->share_rows(layer, from, k, v);
    }
  } share{this};
  std::vector<Rope> ropes;
  std::vector<RopeRows> rope_rows;
  std::vector<SequenceState> sequences;
  std::vector<kernel::AttentionJob> attention_jobs;
  std::vector<kernel::LinearJob> linear_jobs;
  std::vector<const load::HeldTensor*> linear_weights;
  std::vector<load::StreamPiece> expert_pieces;
  std::unique_ptr<load::WeightStream> stream;  // null: everything computes where it is stored
  load::WeightStream* stage_stream = nullptr;  // the same while a streamed unit runs
  Mode mode = kDecode;                         // of the pass
  int64_t decode_steps = 0;
  std::vector<RowRange> ranges;
  std::vector<int64_t> prompt_lengths;  // per range
  std::vector<int32_t> ids;             // of the pass
  std::vector<int32_t> table_ids;       // the same as rows of another table
  std::vector<int32_t> recomputed;      // tokens of a prefix that is computed anew
  int64_t rows = 0;                     // of the current step: ids.size(), or less once narrowed

  // Tables and the first layer's input.
  size_t embedding_on = 0, per_layer_on = 0;
  sizing::WorkspaceLayout table_layout, input_layout;
  const load::HeldTensor* embedding = nullptr;
  load::TableRows table_rows;
  std::vector<bool> per_layer_here;  // per device: its copy of the per-layer embeddings is this pass's
  // By mode and device: layers [first, last) there.
  std::array<std::vector<std::vector<std::pair<int32_t, int32_t>>>, kModes> per_layer_runs;
  sizing::Slice per_layer_slice;
  int64_t max_rows = 0;

  const arch::ModelSpec& spec() const { return *parts.spec; }
  ForwardState pass();
  size_t on(const Step& step) const { return step.on[mode]; }
  int64_t streams() const { return std::max(1, spec().altup.inputs); }

  // resolve.cc
  Status resolve();
  Status check_spec() const;
  Result<size_t> device_state(const std::string& name);
  Status add_steps(size_t unit, std::array<size_t, kModes> on);
  Status resolve_stream();
  void resolve_copies();
  void resolve_ropes();
  void resolve_narrowing();
  void resolve_per_layer();
  void resolve_alibi();

  // model.cc
  Status check(std::span<const BatchItem> items) const;
  void lay_rows(std::span<const BatchItem> items);
  void make_rope_rows();
  Status move_hidden(size_t from, size_t to);
  void start_stream(std::span<const BatchItem> items);
  void begin_stage(int32_t stage);
  Status end_stage(int32_t stage);
  Status run_step(Step& step, size_t& at);
  Status run_bank(Step& step);
  Status share_rows(int32_t layer, const DeviceState& from, const float* k, const float* v);
  void narrow(std::span<const BatchItem> items, size_t at);
  Status run_chain(std::span<const BatchItem> items, bool find_fault);
  Status find_fault(std::span<const BatchItem> items);
  Status run_pass(std::span<const BatchItem> items, LogitsCallback on_logits);
  // long rope
  int64_t long_border() const;
  Status recompute_long(int32_t sequence);
  Status run_over_border(std::span<const BatchItem> items, LogitsCallback on_logits);

  // input.cc
  Status gather(const DeviceState& at, const load::HeldTensor& table, std::span<const int32_t> rows_of, float* out,
                int64_t width);
  Status make_input(size_t on);
  Status make_per_layer(size_t on);
  Status bring_per_layer(size_t on);

  // head.cc
  Status head(std::span<const BatchItem> items, LogitsCallback on_logits);
};

}  // namespace berth::model
