// format/gguf_metadata.cc — typed access to the pairs; reading them is gguf.cc.
#include "berth/format/gguf_metadata.h"

#include <fmt/format.h>

#include "berth/base/strings.h"

namespace berth::format {
namespace {

constexpr std::string_view kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
constexpr uint32_t kTypeBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static_assert(std::size(kTypeNames) == kGgufTypes && std::size(kTypeBytes) == kGgufTypes);

}  // namespace

std::string_view gguf_type_name(GgufType type) { return kTypeNames[static_cast<uint32_t>(type)]; }
uint32_t gguf_type_bytes(GgufType type) { return kTypeBytes[static_cast<uint32_t>(type)]; }

std::string_view GgufMetadata::key(size_t i) const { return {at(pairs_[i].key_offset), pairs_[i].key_size}; }

const GgufMetadata::Pair* GgufMetadata::pair(std::string_view name) const {
  const auto position = index_.find(name);
  return position ? &pairs_[*position] : nullptr;
}

std::string GgufMetadata::arch_key(std::string_view suffix) const {
  return std::string(architecture_) + "." + std::string(suffix);
}

std::optional<GgufType> GgufMetadata::element_type(std::string_view name) const {
  const Pair* p = pair(name);
  if (p == nullptr) return std::nullopt;
  return p->type == GgufType::kArray ? p->element : p->type;
}

std::optional<uint64_t> GgufMetadata::array_size(std::string_view name) const {
  const Pair* p = pair(name);
  if (p == nullptr || p->type != GgufType::kArray) return std::nullopt;
  return p->count;
}

std::optional<int64_t> GgufMetadata::int_at(GgufType type, const char* p) const {
  switch (type) {
    case GgufType::kU8:
      return load_le<uint8_t>(p);
    case GgufType::kI8:
      return load_le<int8_t>(p);
    case GgufType::kU16:
      return load_le<uint16_t>(p);
    case GgufType::kI16:
      return load_le<int16_t>(p);
    case GgufType::kU32:
      return load_le<uint32_t>(p);
    case GgufType::kI32:
      return load_le<int32_t>(p);
    case GgufType::kI64:
      return load_le<int64_t>(p);
    case GgufType::kU64: {
      const auto v = load_le<uint64_t>(p);
      if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(v);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufMetadata::double_at(GgufType type, const char* p) const {
  if (type == GgufType::kF32) return load_le<float>(p);
  if (type == GgufType::kF64) return load_le<double>(p);
  if (type == GgufType::kU64) return static_cast<double>(load_le<uint64_t>(p));
  const auto n = int_at(type, p);
  if (!n) return std::nullopt;
  return static_cast<double>(*n);
}

std::string GgufMetadata::describe(std::string_view name) const {
  const Pair* p = pair(name);
  if (p == nullptr) return "nothing";
  switch (p->type) {
    case GgufType::kString:
      return fmt::format("string {}", quoted({at(p->value_offset), p->count}, 60));
    case GgufType::kArray:
      return fmt::format("array of {} {}", p->count, gguf_type_name(p->element));
    case GgufType::kBool:
      return fmt::format("bool {}", *at(p->value_offset) != 0);
    case GgufType::kF32:
    case GgufType::kF64:
      return fmt::format("{} {}", gguf_type_name(p->type), *double_at(p->type, at(p->value_offset)));
    case GgufType::kU64:
      return fmt::format("u64 {}", load_le<uint64_t>(at(p->value_offset)));
    default:
      return fmt::format("{} {}", gguf_type_name(p->type), *int_at(p->type, at(p->value_offset)));
  }
}

Error GgufMetadata::wrong(std::string_view name, std::string_view expected) const {
  return Error(ErrorCode::kCorruptData,
               fmt::format("reading {}: key {}: {} was expected, {} was found", quoted(file_name_, 400), quoted(name),
                           expected, describe(name)),
               {"The file is damaged or was written wrongly: fetch or convert it again."});
}

Result<std::optional<int64_t>> GgufMetadata::find_int(std::string_view name, IntRange range) const {
  const Pair* p = pair(name);
  if (p == nullptr) return std::optional<int64_t>();
  const auto value = int_at(p->type, at(p->value_offset));
  if (!value || !range.contains(*value)) return wrong(name, range.text());
  return value;
}

Result<std::optional<double>> GgufMetadata::find_double(std::string_view name, DoubleRange range) const {
  const Pair* p = pair(name);
  if (p == nullptr) return std::optional<double>();
  const auto value = double_at(p->type, at(p->value_offset));
  if (!value || !range.contains(*value)) return wrong(name, range.text());
  return value;
}

Result<std::optional<bool>> GgufMetadata::find_bool(std::string_view name) const {
  const Pair* p = pair(name);
  if (p == nullptr) return std::optional<bool>();
  if (p->type != GgufType::kBool) return wrong(name, "a bool");
  return std::optional<bool>(*at(p->value_offset) != 0);
}

Result<std::optional<std::string_view>> GgufMetadata::find_string(std::string_view name) const {
  const Pair* p = pair(name);
  if (p == nullptr) return std::optional<std::string_view>();
  if (p->type != GgufType::kString) return wrong(name, "a string");
  return std::optional<std::string_view>({at(p->value_offset), p->count});
}

Result<std::optional<std::vector<int64_t>>> GgufMetadata::find_ints(std::string_view name, IntRange range) const {
  const Pair* p = pair(name);
  if (p == nullptr) return std::optional<std::vector<int64_t>>();
  const bool array = p->type == GgufType::kArray;
  const GgufType type = array ? p->element : p->type;
  const std::string expected = fmt::format("{} or an array of such", range.text());
  std::vector<int64_t> values(array ? p->count : 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = int_at(type, at(p->value_offset + i * gguf_type_bytes(type)));
    if (!value || !range.contains(*value))
      return wrong(name, value ? fmt::format("{} (element {} is {})", expected, i, *value) : expected);
    values[i] = *value;
  }
  return std::optional(std::move(values));
}

Result<std::optional<std::vector<double>>> GgufMetadata::find_doubles(std::string_view name, DoubleRange range) const {
  const Pair* p = pair(name);
  if (p == nullptr) return std::optional<std::vector<double>>();
  const bool array = p->type == GgufType::kArray;
  const GgufType type = array ? p->element : p->type;
  const std::string expected = fmt::format("{} or an array of such", range.text());
  std::vector<double> values(array ? p->count : 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = double_at(type, at(p->value_offset + i * gguf_type_bytes(type)));
    if (!value || !range.contains(*value))
      return wrong(name, value ? fmt::format("{} (element {} is {})", expected, i, *value) : expected);
    values[i] = *value;
  }
  return std::optional(std::move(values));
}

Result<std::optional<std::vector<bool>>> GgufMetadata::find_bools(std::string_view name) const {
  const Pair* p = pair(name);
  if (p == nullptr) return std::optional<std::vector<bool>>();
  const bool array = p->type == GgufType::kArray;
  if ((array ? p->element : p->type) != GgufType::kBool) return wrong(name, "a bool or an array of bool");
  std::vector<bool> values(array ? p->count : 1);
  for (size_t i = 0; i < values.size(); ++i) values[i] = *at(p->value_offset + i) != 0;
  return std::optional(std::move(values));
}

Result<std::optional<GgufStrings>> GgufMetadata::find_strings(std::string_view name) const {
  const Pair* p = pair(name);
  if (p == nullptr) return std::optional<GgufStrings>();
  if (p->type != GgufType::kArray || p->element != GgufType::kString) return wrong(name, "an array of string");
  return std::optional(GgufStrings(block_.data(), std::span(starts_).subspan(p->first_start, p->count)));
}

Result<std::optional<std::vector<int64_t>>> GgufMetadata::find_ints_per_layer(std::string_view name, size_t layers,
                                                                              IntRange range) const {
  TRY(auto values, find_ints(name, range));
  if (!values) return values;
  if (pair(name)->type != GgufType::kArray) return std::optional(std::vector<int64_t>(layers, values->front()));
  if (values->size() != layers) return wrong(name, fmt::format("one integer, or one for each of {} layers", layers));
  return values;
}

Result<std::optional<std::vector<bool>>> GgufMetadata::find_bools_per_layer(std::string_view name,
                                                                            size_t layers) const {
  TRY(auto values, find_bools(name));
  if (!values) return values;
  if (pair(name)->type != GgufType::kArray) return std::optional(std::vector<bool>(layers, values->front()));
  if (values->size() != layers) return wrong(name, fmt::format("one bool, or one for each of {} layers", layers));
  return values;
}

}  // namespace berth::format
