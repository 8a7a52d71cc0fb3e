// model/model.h — the forward pass of a placed model: tokens in, logits out, for several sequences at once.
//
// A Model owns workspaces and KV cache on the devices of its plan, borrows the weights, and walks the plan's units in
// order; where the next unit computes elsewhere the residual stream is copied there. Every buffer comes from
// sizing's workspace layout and is allocated once; a forward pass allocates nothing.
//
// Logits do not depend on placement, threads, instruction set, chunking or batch neighbours (docs/numerics.md).
//
// Non-goals: sampling, stopping (generate/), tokenizing (text/). Start reading at: Model::forward.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/base/function_ref.h"
#include "berth/base/thread_pool.h"
#include "berth/device/device.h"
#include "berth/kernel/context.h"
#include "berth/load/weight_store.h"
#include "berth/model/kv_cache.h"
#include "berth/plan/plan.h"
#include "berth/sizing/units.h"

namespace berth::model {

// Which positions' logits are wanted.
enum class LogitRows { kNone, kLast, kAll };

// New tokens of one sequence; they continue at the sequence's length. One item per sequence in a batch.
struct BatchItem {
  int32_t sequence = 0;
  std::span<const int32_t> tokens;
  LogitRows logits = LogitRows::kLast;
  // Length of the prompt these tokens belong to, known before its first chunk runs; 0: they are not a prompt's. Only
  // rope kinds that depend on length read it (position p counts with max(prompt, p + 1), whatever the chunks).
  int64_t prompt_length = 0;
};

// Called for each wanted row in order: item index, position in the sequence, logits [vocab_size] in host memory.
using LogitsCallback = FunctionRef<Status(size_t item, int64_t position, std::span<const float> logits)>;

struct ModelParts {
  const arch::ModelSpec* spec = nullptr;
  const sizing::UnitTable* units = nullptr;
  const plan::Plan* plan = nullptr;
  const load::WeightStore* weights = nullptr;
  device::DeviceSet* devices = nullptr;
  ThreadPool* pool = nullptr;
  kernel::Numerics numerics = kernel::Numerics::kExact;
};

class Model {
 public:
  // All parts must outlive the model. Errors: kUnsupported where the spec or the plan needs what the engine lacks
  // (named), kDoesNotFit from an arena.
  static Result<Model> create(const ModelParts& parts);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  // Runs the items' tokens, at most max_rows() altogether, with logits of at most the plan's wanted rows. Errors:
  // kInvalidArgument (token id out of range, context full: names both numbers), kCorruptData (logits not finite: names
  // the unit and position where it began).
  Status forward(std::span<const BatchItem> items, LogitsCallback on_logits);

  // The same in chunks of the plan's prefill chunk, one sequence.
  Status prefill(int32_t sequence, std::span<const int32_t> tokens, LogitRows logits, LogitsCallback on_logits);

  // How many cached positions of `sequence` a prompt of `prompt_length` tokens that begins with `common` of them may
  // keep: less than `common` where rings have forgotten or a rope kind counts with the new length.
  int64_t keepable(int32_t sequence, int64_t common, int64_t prompt_length) const;

  int64_t max_rows() const;
  // Passes so far that were one token of each item: what DeviceSet counted as decoding belongs to them.
  int64_t decode_steps() const;
  KvCache& kv();
  // The workspace on a device, empty where nothing is computed there; its content means nothing between passes. For
  // tests that measure how much of it a run touches.
  std::span<std::byte> workspace(const device::Device& on);
  const arch::ModelSpec& spec() const;

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace berth::model
