// format/locate.h — what MODEL on a command line is: which files, and of which kind. Looks at names only.
//
// A folder's weights are, in this order: model.safetensors.index.json (or the only *.safetensors.index.json),
// model.safetensors, the numbered shards model-0000I-of-0000N.safetensors, the only other *.safetensors or set of
// shards, the only *.gguf or split set; without any of these its config.json, for planning. What is left aside is
// noted; several candidates of equal rank are an error that lists them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"

namespace berth::format {

enum class CheckpointKind {
  kSafetensors,  // one or more .safetensors files, usually with config.json
  kGguf,         // one GGUF file or a split set
  kConfig,       // config.json without weights: planning only
  kTree,         // *.tree.json: planning only
};
std::string_view checkpoint_kind_name(CheckpointKind kind);

struct LocatedCheckpoint {
  CheckpointKind kind = CheckpointKind::kConfig;
  std::string display_name;                // "org/name", or the folder's or file's name
  std::string folder;                      // where configs and tokenizer files are, "" for the current one
  std::string config_path;                 // "" where there is none
  std::string index_path;                  // of safetensors, "" without index
  std::vector<std::string> weight_paths;   // without index: the files; shards and split parts in order
  std::vector<std::string> missing_paths;  // numbered files that the numbering says should be there
  std::vector<std::string> rival_paths;    // other *.safetensors of the folder where it has no index
  std::string tree_path;
  std::vector<std::string> warnings;
};

// `hub_cache`: the cache for repo ids ("org/name", "org/name@revision"); "" takes hub_cache_folder().
// Errors: kNotFound, kUnsupported (pickled weights, several candidates), kInvalidArgument (a NUL character), kIo.
Result<LocatedCheckpoint> locate_checkpoint(const std::string& model, const std::string& hub_cache = "");

}  // namespace berth::format
