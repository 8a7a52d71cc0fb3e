// format/sharded_index.h — *.safetensors.index.json: which file holds which tensor; and the numbering of shard names.
//
//   {"metadata": {"total_size": 123}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors", ..}}
//
// File names are relative to the index's folder. "./" and doubled slashes are taken out; absolute names, ".." and NUL
// characters are refused; everything else (also "%2e%2e%2f") is a literal name. metadata.total_size is never used for
// sizing: published ones are off by a factor of two where weights are tied.
//
// Non-goals: opening shards (checkpoint.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"
#include "berth/format/name_index.h"

namespace berth::format {

inline constexpr uint64_t kMaxIndexBytes = 256ull << 20;

struct ShardedIndex {
  struct Item {
    std::string tensor;
    uint32_t file;  // into `files`
  };
  std::vector<Item> items;         // in file order
  NameIndex positions;             // of tensors in `items`
  std::vector<std::string> files;  // each once, cleaned, sorted
  std::vector<std::string> warnings;
};

// Errors: kCorruptData naming the file, the tensor and, where the JSON is malformed, line and column. `quick_scan`
// false leaves everything to the full JSON parser: the answer is the same (fuzz/ compares the two).
Result<ShardedIndex> parse_sharded_index(std::string_view json, std::string_view file_name, bool quick_scan = true);

// A relative file name from a checkpoint without "." parts; nothing where it is absolute, empty, leaves its folder or
// holds a NUL character.
std::optional<std::string> clean_relative_path(std::string_view name);

// "model-00002-of-00005.safetensors": stem "model", number 2, count 5. For `extension` ".safetensors" or ".gguf".
struct ShardName {
  std::string stem;
  uint32_t number = 0, count = 0;
};
std::optional<ShardName> parse_shard_name(std::string_view file_name, std::string_view extension);

}  // namespace berth::format
