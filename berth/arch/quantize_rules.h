// arch/quantize_rules.h — which modules 4 and 8 bit (bitsandbytes) replace, and why the others stay wide.
//
// As Transformers 5.24 decides it: every module of exactly class Linear, or GPT-2's Conv1D, unless its path is skipped.
// The skip list is the user's (`llm_int8_skip_modules`) or, where there is none, made from the model: tied weights on
// both sides, the last parameter, the output embedding. The user's list *replaces* that one. Both are extended by the
// class's _keep_in_fp32_modules and, with `llm_int8_enable_fp32_cpu_offload`, by the map's cpu and disk entries.
// Embeddings, norms, convolutions, bare parameters and fused experts are never replaced; fused experts are listed,
// since people expect 4 bit to shrink them (Berth's own `--quantize-experts` does, compat does not).
//
// For a checkpoint that is quantized already this says nothing: there a module is quantized where its state is stored.
//
// Start reading at: quantize_rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/arch/module.h"
#include "berth/base/result.h"

namespace berth::arch {

struct QuantizeOptions {
  // Replaces the automatic list, also where empty (then nothing is protected).
  std::optional<std::vector<std::string>> skip_modules;
  // llm_int8_enable_fp32_cpu_offload with a map given by the user: its keys on "cpu" and "disk".
  std::vector<std::string> kept_off_accelerators;
  // Path of the output embedding; not set: find_output_embedding().
  std::optional<std::string> output_embedding;
};

enum class QuantizeReason {
  kReplaced,        // exactly Linear or Conv1D, and no key skips it
  kSkippedByUser,   // a key of skip_modules
  kSkippedByModel,  // a key of the automatic list, or of _keep_in_fp32_modules
  kSkippedByMap,    // a key of kept_off_accelerators
  kSubclass,        // derives from Linear: the class name ends in it, but is another
  kFusedExperts,    // owns parameters of three or more dimensions: experts stacked in one tensor
};
std::string_view quantize_reason_text(QuantizeReason reason);  // "stay wide by the skip list given"...

// One module that 4 or 8 bit concerns: replaced, or what a user may have expected to be.
struct QuantizeDecision {
  std::string path;
  std::string class_name;
  bool replaced = false;
  QuantizeReason reason = QuantizeReason::kReplaced;
  std::string key;  // the skip-list entry that matched; empty otherwise
};

struct QuantizeRules {
  std::vector<QuantizeDecision> decisions;  // in definition order
  std::vector<std::string> skip_list;       // what was matched, in the order of its making, each once
  std::vector<std::string> unmatched_keys;  // entries of the user's list that skip nothing: likely typos
};

// Errors: kInvalidArgument naming a skip-list key that is no regular expression.
Result<QuantizeRules> quantize_rules(const ModuleTree& tree, const QuantizeOptions& options = {});

// The tree with each replaced module's class turned into Linear4bit or Linear8bitLt, as the compat planners size it.
enum class QuantizedLinear { kLinear4bit, kLinear8bit };
ModuleTree with_quantized_linears(const ModuleTree& tree, const QuantizeRules& rules, QuantizedLinear kind);

// For people: how many bytes (as built) are replaced, and for each reason how many of the model's stay wide, a sentence
// each. Entries of the user's list that match nothing are named, and a head
// that only the automatic list would have protected.
std::vector<std::string> quantize_notes(const ModuleTree& tree, const QuantizeRules& rules);

// The automatic list: names of tied weights, of the last parameter and of the output embedding, ".weight" cut off (a
// trailing ".bias" stays, as there), sorted.
std::vector<std::string> automatic_skip_list(const ModuleTree& tree, std::string_view output_embedding);

// "lm_head" or "embed_out" of the root or of one of its children; "" where the tree has none.
std::string find_output_embedding(const ModuleTree& tree);

// Whether `key` skips the module at `path`: as a regular expression anchored at the start whose match ends at the end
// of the path, before a dot or after one; or as plain text at the path's end (no boundary: "proj" skips "q_proj").
Result<bool> skip_key_matches(std::string_view key, std::string_view path);

// Whether the regular expression matches at the start of `text`, as Python's re.match: compressed-tensors' "re:" targets.
Result<bool> pattern_matches_start(std::string_view pattern, std::string_view text);

}  // namespace berth::arch
