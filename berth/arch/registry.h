// arch/registry.h — from a checkpoint (or a bare config) to its module tree and its ModelSpec.
//
// One Family per model_type, grouped in the files of families/. A family knows two things: the module tree as
// Transformers 5 builds it, and the ModelSpec with the recipe of every tensor. GGUF architectures map onto the same
// families.
//
// Start reading at: describe_model.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/arch/module.h"
#include "berth/base/result.h"

namespace berth::format {
class Checkpoint;
class HfConfig;
}  // namespace berth::format

namespace berth::arch {

struct ModelDescription {
  ModuleTree tree;
  ModelSpec spec;  // spec.unsupported tells whether it can run
  // What the config says weights are, where nothing is quantized yet: Transformers casts to it before it quantizes.
  std::optional<DType> stated_dtype;
  // bitsandbytes made it: 4 and 8 bit asked for on load change nothing, as in Transformers.
  bool bitsandbytes = false;
  // Ties of the config (as in ModuleTree) that the checkpoint contradicts: both tensors are there and differ.
  std::vector<std::pair<std::string, std::string>> untied;
};

struct DescribeOptions {
  DType dtype = DType::kBF16;  // what --dtype asks for; only meaningful with has_dtype
  bool has_dtype = false;      // false: the checkpoint's own
};

// A checkpoint of kind kConfig is described as by describe_config().
// Errors: kUnsupported naming an unknown model_type / GGUF architecture (with the nearest known), kCorruptData where
// config and tensors disagree (names config key, tensor, expected and found shapes) or needed tensors are missing.
// Tensors in the checkpoint that nothing reads are counted in spec.notes, by prefix.
Result<ModelDescription> describe_model(const format::Checkpoint& checkpoint, const DescribeOptions& options);

// From a config alone: recipes name the tensors and storage such a model would be published with.
Result<ModelDescription> describe_config(const format::HfConfig& config, const DescribeOptions& options);

// The tree alone, from a config: planning needs no weights.
Result<ModuleTree> module_tree(const format::HfConfig& config, const DescribeOptions& options);

// Sorted.
std::vector<std::string> known_model_types();
std::vector<std::string> known_gguf_architectures();

}  // namespace berth::arch
