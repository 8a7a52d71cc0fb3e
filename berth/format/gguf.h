// format/gguf.h — one GGUF file's header: metadata and tensor list, checked in full before anyone reads a tensor.
//
//   "GGUF"  u32 version  u64 tensors  u64 pairs | pairs | tensor infos | padding | data
//   pair:   string key, u32 type, value            string: u64 length, bytes       array: u32 type, u64 count, elements
//   info:   string name, u32 n, n x u64 extents (row length first), u32 ggml type, u64 offset from the data's beginning
//
// Versions 2 and 3, little endian. Data and every tensor begin at multiples of general.alignment (32 where absent).
// Refused: other versions and byte orders, counts and lengths beyond the file, empty, doubled or malformed keys, arrays
// of arrays, bools other than 0 and 1, 0 or more than 4 dimensions, extents of 0, rows that are no whole number of
// blocks, unknown types, tensors that overlap, leave holes or reach past the end. Bytes after the last tensor are
// passed over with a warning.
//
// Non-goals: splits over several files (checkpoint.h). Start reading at: read_gguf.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "berth/base/result.h"
#include "berth/format/byte_source.h"
#include "berth/format/gguf_metadata.h"
#include "berth/format/tensor_entry.h"

namespace berth::format {

inline constexpr uint64_t kMaxGgufHeaderBytes = 1ull << 30;
inline constexpr uint64_t kMaxGgufStringBytes = 64ull << 20;
inline constexpr uint64_t kMaxGgufKeyBytes = 65535;

struct GgufFile {
  uint32_t version = 0;
  uint64_t alignment = 32;
  uint64_t data_offset = 0;
  GgufMetadata metadata;
  std::vector<TensorEntry> tensors;  // in order of their bytes; shapes outermost first; `file` is 0
  std::vector<std::string> warnings;
};

// Errors: kCorruptData, kUnsupported (version, tensor type), kIo; messages name the file and the key or tensor.
Result<GgufFile> read_gguf(const ByteSource& source);

// Rules between keys that hold for every architecture: block_count and head counts, lengths of the token arrays, ids
// inside the vocabulary; and that at least one tensor has a GGUF name. read_gguf leaves them to the caller since the
// later files of a split set lack these keys.
Status check_gguf_model(const GgufMetadata& metadata, const std::vector<TensorEntry>& tensors);

}  // namespace berth::format
