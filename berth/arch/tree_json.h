// arch/tree_json.h — reads a module tree that somebody wrote down: *.tree.json, one object, any torch.nn.Module.
//
//   {"format": "berth-tree-1", "tree": T, "no_split": [class..], "ties": [[target, source]..], "no_placement": [..]}
//   T = {"c": class, "p": [[name, [shape], dtype]..], "b": [[name, [shape], dtype, persistent]..], "m": [[name, T]..]}
//   {"same_as": path} in place of T: that module object under a second name (the path may come later in the file)
//
// So a model for which Berth has no architecture can be planned. The same reader takes the lines of bulk checks
// (plan/strategies/compat_jsonl.h), which have no "format". Keys it does not know are ignored.
//
// Start reading at: read_tree_json.
#pragma once

#include <string>
#include <string_view>

#include "berth/arch/module.h"
#include "berth/base/json.h"
#include "berth/base/result.h"

namespace berth::arch {

inline constexpr std::string_view kTreeFormat = "berth-tree-1";

struct TreeJsonOptions {
  bool require_format = true;  // false: "format" may be absent (but not another one)
};

// Errors, all kCorruptData naming the module or tensor: a key of the wrong type, an unknown dtype (with the nearest), a
// name that is empty, has a dot or occurs twice in one module, a shape or total whose bytes overflow, a tie between
// things that are not parameters, `same_as` to a path that does not exist or into itself.
// Paths in `same_as` and ties come out in their first spelling: never through another `same_as`.
Result<ModuleTree> read_tree_json(JsonView object, const TreeJsonOptions& options = {});
Result<ModuleTree> parse_tree_json(std::string_view text, const TreeJsonOptions& options = {});
Result<ModuleTree> read_tree_json_file(const std::string& path);

// The tree as such an object, one line; read_tree_json gives an equal tree back.
std::string tree_json(const ModuleTree& tree);

}  // namespace berth::arch
