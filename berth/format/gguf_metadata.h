// format/gguf_metadata.h — the key-value pairs of a GGUF file behind typed getters, as hf_config.h is for config.json.
//
// Keys, texts and arrays are views into one block of bytes that the metadata owns: 500,000 merges cost one offset each
// and no copies. A getter returns nothing where the key is absent and an error (kCorruptData: file, key, expected,
// found) where it has another type or lies outside the stated range. Numbers of any width are accepted where an integer
// is asked for.
//
// Non-goals: what a key means for an architecture (arch/). Start reading at: GgufMetadata::find_int.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/result.h"
#include "berth/format/name_index.h"
#include "berth/format/number_range.h"

namespace berth::format {

enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
inline constexpr uint32_t kGgufTypes = 13;
std::string_view gguf_type_name(GgufType type);  // "u32", "string", "array"
uint32_t gguf_type_bytes(GgufType type);         // 0 for strings and arrays

// The elements of an array of texts, in place. Valid as long as its GgufMetadata.
class GgufStrings {
 public:
  GgufStrings() = default;
  GgufStrings(const char* block, std::span<const uint32_t> starts) : block_(block), starts_(starts) {}
  size_t size() const { return starts_.size(); }
  std::string_view operator[](size_t i) const {
    const char* p = block_ + starts_[i];
    return {p + 8, static_cast<size_t>(load_le<uint64_t>(p))};
  }

 private:
  const char* block_ = nullptr;
  std::span<const uint32_t> starts_;  // of each text's length field
};

class GgufMetadata {
 public:
  GgufMetadata() = default;
  GgufMetadata(GgufMetadata&&) = default;  // views stay valid; copies would not
  GgufMetadata& operator=(GgufMetadata&&) = default;

  size_t size() const { return pairs_.size(); }
  std::string_view key(size_t i) const;  // in file order
  bool has(std::string_view key) const { return index_.find(key).has_value(); }
  const std::string& file_name() const { return file_name_; }

  Result<std::optional<int64_t>> find_int(std::string_view key, IntRange range = {}) const;
  Result<std::optional<double>> find_double(std::string_view key, DoubleRange range = {}) const;
  Result<std::optional<bool>> find_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> find_string(std::string_view key) const;

  // An array of integers, or one integer as an array of one. `expected_size`: any other is an error (0: any).
  Result<std::optional<std::vector<int64_t>>> find_ints(std::string_view key, IntRange range = {}) const;
  Result<std::optional<std::vector<double>>> find_doubles(std::string_view key, DoubleRange range = {}) const;
  Result<std::optional<std::vector<bool>>> find_bools(std::string_view key) const;
  Result<std::optional<GgufStrings>> find_strings(std::string_view key) const;

  // One value per layer: an integer repeated, or an array that must have `layers` elements.
  Result<std::optional<std::vector<int64_t>>> find_ints_per_layer(std::string_view key, size_t layers,
                                                                  IntRange range = {}) const;
  Result<std::optional<std::vector<bool>>> find_bools_per_layer(std::string_view key, size_t layers) const;

  // general.architecture, checked to be there when the file was read; and "ARCHITECTURE.suffix".
  std::string_view architecture() const { return architecture_; }
  std::string arch_key(std::string_view suffix) const;

  // The type of a value, of its elements where it is an array.
  std::optional<GgufType> element_type(std::string_view key) const;
  std::optional<uint64_t> array_size(std::string_view key) const;  // nothing where it is no array
  // What a value looks like in a message: "u32 5", "array of 3 string". "nothing" where the key is absent.
  std::string describe(std::string_view key) const;
  // "reading FILE: key K: EXPECTED was expected, FOUND was found" for rules of the caller's own.
  Error wrong(std::string_view key, std::string_view expected) const;

 private:
  friend class GgufHeaderParser;
  struct Pair {
    uint32_t key_offset, key_size;
    GgufType type, element;  // element: of arrays
    uint32_t value_offset;   // scalars and texts: the value; arrays: the first element
    uint32_t first_start;    // arrays of texts: into starts_
    uint64_t count;          // arrays: elements; texts: bytes
  };
  const Pair* pair(std::string_view key) const;
  std::optional<int64_t> int_at(GgufType type, const char* p) const;
  std::optional<double> double_at(GgufType type, const char* p) const;
  const char* at(uint64_t offset) const { return block_.data() + offset; }

  std::string file_name_;
  std::vector<char> block_;  // the file from its beginning to the end of the pairs
  std::vector<Pair> pairs_;
  std::vector<uint32_t> starts_;
  NameIndex index_;
  std::string_view architecture_;
};

}  // namespace berth::format
