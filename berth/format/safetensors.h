// format/safetensors.h — the header of one .safetensors file, checked in full before anyone reads a tensor.
//
//   +--------------------+------------------------------+-------------------------------------------+
//   | u64 LE: length n   | n bytes: JSON object, spaces | tensor data, every byte owned exactly once |
//   +--------------------+------------------------------+-------------------------------------------+
//   {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, .., "__metadata__": {"key": "text"}}
//
// Offsets count from the first data byte. Refused: anything the JSON standard refuses, a first byte that is not '{',
// a header over 100,000,000 bytes (the reference reader's limit), duplicate names or fields, __metadata__ that is not
// an object of texts, sizes that differ from dtype and shape, overlaps, holes, bytes after the last tensor, names that
// are empty or hold a NUL character, more than 64 dimensions. Fields of an entry that are not known are passed over.
//
// Non-goals: opening files, choosing shards (checkpoint.h). Start reading at: parse_safetensors_header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/base/result.h"
#include "berth/format/byte_source.h"
#include "berth/format/tensor_entry.h"

namespace berth::format {

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;                           // in order of their bytes; `file` is 0
  std::vector<std::pair<std::string, std::string>> metadata;  // __metadata__, in file order
  uint64_t data_offset = 0;                                   // where tensor data begins in the file
};

// Errors: kCorruptData, kUnsupported (a dtype unknown to this build), kIo; messages name the file and the tensor.
Result<SafetensorsHeader> read_safetensors_header(const ByteSource& source);

// The same from the header's text; `data_bytes` bytes follow it. `file_name` is for messages. `quick_scan` false leaves
// everything to the full JSON parser: the answer is the same (fuzz/ compares the two).
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                                   std::string_view file_name, bool quick_scan = true);

}  // namespace berth::format
