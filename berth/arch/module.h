// arch/module.h — the module tree of a model, as the real library builds it: paths, order, classes, shapes, ties.
//
// Names are those of named_modules() in Transformers 5. Lists are in definition order; compat planning depends on it.
// A tree comes from an architecture (registry.h) or from a *.tree.json (tree_json.h); the planner does not care which.
//
// Start reading at: ModuleTree.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/tensor/shape.h"

namespace berth::arch {

struct Parameter {
  std::string name;  // local: "weight"
  Shape shape;
  DType dtype = DType::kBF16;     // as built in the requested dtype
  DType dtype_f32 = DType::kF32;  // as built when float32 is requested (some tensors do not follow)
};

struct Buffer {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  DType dtype_f32 = DType::kF32;
  bool persistent = false;
};

// One module. `same_as`, where not empty, is the path of the module object this is a second name of.
struct Module {
  std::string name;        // local: "self_attn"; empty for the root
  std::string class_name;  // "LlamaAttention"
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  std::vector<Module> children;
  std::string same_as;

  Module* child(std::string_view child_name);
  const Module* child(std::string_view child_name) const;
};

struct ModuleTree {
  Module root;
  std::vector<std::string> no_split_classes;
  std::vector<std::pair<std::string, std::string>>
      ties;                               // {target, source} parameter paths: target shares source's tensor
  std::vector<std::string> no_placement;  // parameter paths that placing leaves out
  std::vector<std::string> keep_in_fp32;  // last path parts kept in fp32 where fp16 is asked for
  std::vector<std::string>
      keep_in_fp32_strict;  // the same where fp16 or bf16 is asked for; may span parts: "gate.weight"

  const Module* find(std::string_view path) const;  // "" is the root
};

// Calls visit(path, module) for the root, then depth first in definition order.
void for_each_module(const ModuleTree& tree, const std::function<void(const std::string&, const Module&)>& visit);

// "a.b" from "a" and "b"; "b" where a is empty.
std::string join_path(std::string_view parent, std::string_view name);

}  // namespace berth::arch
