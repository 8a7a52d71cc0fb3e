// format/sharded_index.cc — see sharded_index.h.
#include "berth/format/sharded_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>

#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/format/name_index.h"
#include "berth/format/plain_scanner.h"

namespace berth::format {
namespace {

Error corrupt(std::string_view file, std::string message) {
  return Error(ErrorCode::kCorruptData, fmt::format("reading the index {}: {}", quoted(file, 400), std::move(message)),
               {"The index is damaged or its download is incomplete: fetch it again."});
}

std::string found(const JsonView& value) {
  if (!value.valid()) return "it is missing";
  return fmt::format("{} was found: {}", json_type_name(value.type()), escaped(value.text().substr(0, 60)));
}

void check_total_size(const JsonView& metadata, ShardedIndex& index) {
  const JsonView total = metadata["total_size"];
  if (!total.valid() || total.as_uint64()) return;
  const auto real = total.as_double();  // some exporters write 1.5e10
  if (real && *real >= 0) return;
  index.warnings.push_back(fmt::format("metadata.total_size is no size and is ignored ({})", found(total)));
}

}  // namespace

std::optional<std::string> clean_relative_path(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos) return std::nullopt;
  std::string out;
  while (!name.empty()) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    name.remove_prefix(slash == std::string_view::npos ? name.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    if (part == "..") return std::nullopt;
    if (!out.empty()) out += '/';
    out += part;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

namespace {

// One weight_map pair as the file states it.
struct RawItem {
  std::string_view tensor, file;
};

// The index as it is usually written: {"metadata": {flat}, "weight_map": {..}}; false where the full parser must
// decide.
bool scan_index(std::string_view json, std::vector<RawItem>& items) {
  PlainScanner s(json);
  if (!s.take('{')) return false;
  items.reserve(json.size() / 96 + 1);
  bool metadata = false, map = false;
  do {
    std::string_view key;
    if (!s.text(key) || !s.take(':') || !s.take('{')) return false;
    if (key == "metadata" && !metadata) {
      metadata = true;
      if (s.take('}')) continue;
      std::vector<std::string_view> names;
      do {
        std::string_view name;
        uint64_t number;
        if (!s.text(name) || !s.take(':') || !s.integer(number)) return false;
        if (names.size() == 16 || std::find(names.begin(), names.end(), name) != names.end()) return false;
        names.push_back(name);
      } while (s.take(','));
    } else if (key == "weight_map" && !map) {
      map = true;
      do {
        RawItem item;
        if (!s.text(item.tensor) || !s.take(':') || !s.text(item.file)) return false;
        items.push_back(item);
      } while (s.take(','));
    } else {
      return false;
    }
    if (!s.take('}')) return false;
  } while (s.take(','));
  return s.take('}') && s.at_end() && map;
}

Status walk_index(const JsonView& root, std::string_view file_name, std::vector<RawItem>& items, ShardedIndex& index) {
  if (!root.is_object()) return corrupt(file_name, fmt::format("a JSON object was expected, {}", found(root)));
  JsonView map, metadata;
  for (JsonView::Cursor c(root); c.next();) {
    JsonView* field = c.key() == "weight_map" ? &map : c.key() == "metadata" ? &metadata : nullptr;
    if (field == nullptr) continue;
    if (field->valid()) return corrupt(file_name, fmt::format("duplicate key \"{}\"", c.key()));
    *field = c.value();
  }
  if (!map.is_object())
    return corrupt(file_name,
                   fmt::format("weight_map: an object of file names by tensor name was expected, {}", found(map)));
  check_total_size(metadata, index);
  for (JsonView::Cursor c(map); c.next();) {
    const auto value = c.value().as_string();
    if (!value)
      return corrupt(file_name, fmt::format("weight_map: tensor {}: a file name was expected, {}", quoted(c.key()),
                                            found(c.value())));
    items.push_back({c.key(), *value});
  }
  return {};
}

Result<ShardedIndex> check_index(const std::vector<RawItem>& items, std::string_view file_name, ShardedIndex index) {
  if (items.empty()) return corrupt(file_name, "weight_map is empty");
  index.items.reserve(items.size());
  index.positions.reserve(items.size());
  NameIndex raw_files, files;
  std::vector<uint32_t> clean_of_raw;   // by raw_files position
  std::deque<std::string> clean_names;  // by files position; a deque, since `files` borrows them
  std::string_view last_raw;
  uint32_t last_clean = 0;
  for (const RawItem& raw : items) {
    if (raw.tensor.empty() || raw.tensor.find('\0') != std::string_view::npos)
      return corrupt(file_name,
                     fmt::format("weight_map: tensor name {} is empty or holds a NUL character", quoted(raw.tensor)));
    index.items.push_back({std::string(raw.tensor), 0});  // room was reserved: `positions` may borrow the name
    if (!index.positions.add(index.items.back().tensor).is_new)
      return corrupt(file_name, fmt::format("weight_map: duplicate tensor name {}", quoted(raw.tensor)));
    if (index.items.size() == 1 || raw.file != last_raw) {
      const auto added = raw_files.add(raw.file);
      if (added.is_new) {
        const auto clean = clean_relative_path(raw.file);
        if (!clean)
          return corrupt(file_name, fmt::format("weight_map: tensor {}: {} is no name of a file in the index's folder",
                                                quoted(raw.tensor), quoted(raw.file)));
        const auto known = files.find(*clean);
        if (!known) clean_names.push_back(*clean);
        clean_of_raw.push_back(known ? *known : files.add(clean_names.back()).position);
      }
      last_raw = raw.file;
      last_clean = clean_of_raw[added.position];
    }
    index.items.back().file = last_clean;
  }
  // Sorted, so that the order of files does not depend on the order of tensors.
  std::vector<uint32_t> order(clean_names.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return clean_names[a] < clean_names[b]; });
  std::vector<uint32_t> place(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    index.files.push_back(clean_names[order[i]]);
  }
  for (ShardedIndex::Item& item : index.items) item.file = place[item.file];
  return index;
}

}  // namespace

Result<ShardedIndex> parse_sharded_index(std::string_view json, std::string_view file_name, bool quick_scan) {
  if (json.size() > kMaxIndexBytes)
    return corrupt(file_name, fmt::format("{} bytes; at most {} are allowed", json.size(), kMaxIndexBytes));
  std::vector<RawItem> items;
  if (quick_scan && scan_index(json, items)) return check_index(items, file_name, ShardedIndex());
  items.clear();
  auto document = JsonDocument::parse(json, {.max_bytes = kMaxIndexBytes, .reject_duplicate_keys = false});
  if (!document) return corrupt(file_name, std::move(document).error().message);
  ShardedIndex index;
  TRY_STATUS(walk_index(document->root(), file_name, items, index));
  return check_index(items, file_name, std::move(index));
}

std::optional<ShardName> parse_shard_name(std::string_view file_name, std::string_view extension) {
  if (!file_name.ends_with(extension)) return std::nullopt;
  std::string_view rest = file_name.substr(0, file_name.size() - extension.size());
  const auto number = [&rest](std::string_view before, uint32_t& out) {
    const size_t at = rest.rfind(before);
    if (at == std::string_view::npos) return false;
    const std::string_view digits = rest.substr(at + before.size());
    if (digits.size() != 5) return false;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (error != std::errc() || end != digits.data() + digits.size()) return false;
    rest = rest.substr(0, at);
    return true;
  };
  ShardName name;
  if (!number("-of-", name.count) || !number("-", name.number)) return std::nullopt;
  name.stem = rest;
  return name;
}

}  // namespace berth::format
