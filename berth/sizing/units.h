// sizing/units.h — the units a planner places, in execution order, with their bytes and costs (planner.md 1).
//
// Units are the smallest things that may be placed: per layer attention and MLP (or router and shared experts, then the
// expert bank), a whole layer where both run from one norm (parallel blocks) or the target cannot cut it, final norm
// and head, and the tables (embedding, per-layer embeddings). Tied tensors are one unit.
//
// Start reading at: UnitTable, then make_units.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/base/result.h"
#include "berth/sizing/kv_cache.h"
#include "berth/sizing/run_shape.h"
#include "berth/sizing/storage.h"
#include "berth/sizing/workspace.h"

namespace berth::sizing {

enum class UnitKind : uint8_t { kAttention, kMlp, kExpertBank, kLayer, kHead, kTable };

struct Unit {
  UnitKind kind = UnitKind::kMlp;
  int32_t layer = -1;
  std::string path;                  // the module that names it: "model.layers.3.self_attn"
  std::vector<std::string> paths;    // all module paths it holds, the least set that covers its tensors
  std::vector<int32_t> tensors;      // indices into spec.tensors, aliases left out
  uint64_t stored_bytes = 0;         // w: each tensor as held in memory, rounded up to 64 bytes
  uint64_t stored_bytes_512 = 0;     // w with tensors rounded up to 512 bytes (CUDA)
  uint64_t touched_bytes = 0;        // t: weight bytes one decode step reads
  uint64_t kv_bytes = 0;             // v: for the context and batch; also read once a step
  uint64_t kv_new_bytes = 0;         // of those, what one decode step writes: one position of every sequence
  int32_t kv_source = -1;            // unit whose cache it reads (KV sharing), -1: its own or none
  uint64_t flops = 0;                // f: of one decode step
  uint64_t input_bytes = 0;          // a: what enters, one decode step
  uint64_t prefill_input_bytes = 0;  // the same for one chunk, of which some units run for the wanted rows alone
  uint64_t prefill_flops = 0;        // of one chunk at full context
  uint64_t workspace_bytes = 0;      // s
  uint64_t grain_bytes = 0;          // g: the largest matrix (one expert's in a bank) and all of the unit's vectors
  uint64_t vector_bytes = 0;         // of those, its vectors: norms, biases
  uint64_t moved_bytes = 0;          // weight bytes that one decode step moves where the unit is streamed
  uint64_t disk_bytes = 0;  // what living on disk costs beyond the checkpoint: 0 where its file is used as it is
  // tables only
  int32_t consumer = -1;     // unit that its rows enter
  uint64_t row_bytes = 0;    // as stored, per row
  int32_t stored_with = -1;  // >= 0: the table is this unit's matrix (tied head); no bytes of its own
};

struct UnitTable {
  std::vector<Unit> units;              // chain in execution order, then tables
  int32_t chain_size = 0;               // units[0 .. chain_size) run; the rest are tables
  uint64_t logits_bytes = 0;            // b * 4 * V: from the head to the host, one decode step
  uint64_t memory_footprint_bytes = 0;  // parameters as stored, each once
};

struct UnitOptions {
  bool whole_layers = false;  // --target transformers: blocks are not cut
};

UnitTable make_units(const arch::ModelSpec& spec, const std::vector<TensorStorage>& storage, const RunShape& shape,
                     const UnitOptions& options = {});

}  // namespace berth::sizing
