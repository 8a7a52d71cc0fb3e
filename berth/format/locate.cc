// format/locate.cc — see locate.h.
#include "berth/format/locate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/format/hub_cache.h"
#include "berth/format/sharded_index.h"

namespace berth::format {
namespace {

constexpr std::string_view kTensors = ".safetensors", kIndex = ".safetensors.index.json", kGgufEnd = ".gguf";
constexpr std::array<std::string_view, 5> kPickled = {".bin", ".pt", ".pth", ".pkl", ".ckpt"};

using Names = std::vector<std::string>;

std::string listed(const Names& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 8; ++i) out += (i ? ", " : "") + quoted(names[i]);
  if (names.size() > 8) out += fmt::format(" and {} more", names.size() - 8);
  return out;
}

Error several(const std::string& folder, const Names& candidates) {
  return Error(ErrorCode::kUnsupported,
               fmt::format("folder {} holds several checkpoints and nothing says which is meant: {}",
                           quoted(folder, 400), listed(candidates)),
               {"Name the file itself as MODEL, or leave only one in the folder."});
}

// Numbered files that belong together.
struct ShardSet {
  uint32_t count = 0;
  std::map<uint32_t, std::string> names;  // by number
  const std::string& first() const { return names.begin()->second; }
  // Numbers count from 1 to N; some exporters count from 0, to N-1 or to N.
  uint32_t first_number() const { return names.begin()->first == 0 ? 0 : 1; }
  uint32_t last_number() const { return first_number() == 1 ? count : std::max(count - 1, names.rbegin()->first); }
};
using ShardSets = std::map<std::string, ShardSet>;  // by stem and count

void add_to_sets(ShardSets& sets, const ShardName& shard, const std::string& name) {
  ShardSet& set = sets[fmt::format("{}-of-{}", shard.stem, shard.count)];
  set.count = shard.count;
  set.names.emplace(shard.number, name);
}

std::string number_name(const ShardName& shard, uint32_t number, std::string_view extension) {
  return fmt::format("{}-{:05}-of-{:05}{}", shard.stem, number, shard.count, extension);
}

void take_set(const ShardSet& set, const std::string& folder, std::string_view extension, LocatedCheckpoint& out) {
  const ShardName pattern = *parse_shard_name(set.first(), extension);
  for (const auto& [number, name] : set.names) out.weight_paths.push_back(path_join(folder, name));
  for (uint32_t n = set.first_number(); n <= set.last_number(); ++n)
    if (set.names.count(n) == 0) out.missing_paths.push_back(path_join(folder, number_name(pattern, n, extension)));
}

class FolderLocator {
 public:
  FolderLocator(std::string folder, LocatedCheckpoint out) : folder_(std::move(folder)), out_(std::move(out)) {}

  Result<LocatedCheckpoint> locate() {
    TRY(const Names names, list_folder(folder_));
    sort_names(names);
    if (!indexes_.empty()) return by_index();
    if (!single_.empty() || !shards_.empty()) return by_safetensors();
    if (!gguf_.empty() || !gguf_sets_.empty()) return by_gguf();
    return by_config();
  }

 private:
  void sort_names(const Names& names) {
    for (const std::string& name : names) {
      if (name == "config.json")
        out_.config_path = path_join(folder_, name);
      else if (name.ends_with(kIndex))
        indexes_.push_back(name);
      else if (const auto shard = parse_shard_name(name, kTensors))
        add_to_sets(shards_, *shard, name);
      else if (name.ends_with(kTensors))
        single_.push_back(name);
      else if (name.ends_with(kGgufEnd) && name.find("mmproj") != std::string::npos)
        aside_.push_back(name);
      else if (const auto part = parse_shard_name(name, kGgufEnd))
        add_to_sets(gguf_sets_, *part, name);
      else if (name.ends_with(kGgufEnd))
        gguf_.push_back(name);
      else if (name.ends_with(".tree.json"))
        trees_.push_back(name);
      else if (std::any_of(kPickled.begin(), kPickled.end(), [&](auto end) { return name.ends_with(end); }))
        pickled_.push_back(name);
    }
  }

  Result<LocatedCheckpoint> by_index() {
    const bool usual = std::find(indexes_.begin(), indexes_.end(), "model.safetensors.index.json") != indexes_.end();
    if (!usual && indexes_.size() > 1) return several(folder_, indexes_);
    out_.kind = CheckpointKind::kSafetensors;
    out_.index_path = path_join(folder_, usual ? "model.safetensors.index.json" : indexes_.front());
    // Shards may lie beside the index under any name; the rest is not looked at.
    note_aside(single_, "the index decides");
    note_aside(gguf_, "the index decides");
    return std::move(out_);
  }

  Result<LocatedCheckpoint> by_safetensors() {
    out_.kind = CheckpointKind::kSafetensors;
    Names candidates = single_;
    for (const auto& [key, set] : shards_) candidates.push_back(set.first());
    Names model_sets;
    for (const auto& [key, set] : shards_)
      if (key.starts_with("model-of-")) model_sets.push_back(set.first());
    const bool single_model = std::find(single_.begin(), single_.end(), "model.safetensors") != single_.end();
    if (single_model && !model_sets.empty()) {
      model_sets.insert(model_sets.begin(), "model.safetensors");
      return several(folder_, model_sets);
    }
    if (model_sets.size() > 1) return several(folder_, model_sets);
    if (!single_model && model_sets.empty() && candidates.size() > 1) return several(folder_, candidates);
    const std::string chosen = single_model          ? "model.safetensors"
                               : !model_sets.empty() ? model_sets.front()
                                                     : candidates.front();
    if (const auto shard = parse_shard_name(chosen, kTensors))
      take_set(shards_.at(fmt::format("{}-of-{}", shard->stem, shard->count)), folder_, kTensors, out_);
    else
      out_.weight_paths.push_back(path_join(folder_, chosen));
    for (const std::string& name : single_)
      if (name != chosen) out_.rival_paths.push_back(path_join(folder_, name));
    note_aside(gguf_, "the safetensors files decide");
    return std::move(out_);
  }

  Result<LocatedCheckpoint> by_gguf() {
    out_.kind = CheckpointKind::kGguf;
    out_.config_path.clear();
    Names candidates = gguf_;
    for (const auto& [key, set] : gguf_sets_) candidates.push_back(set.first());
    if (candidates.size() > 1) return several(folder_, candidates);
    if (!gguf_.empty())
      out_.weight_paths.push_back(path_join(folder_, gguf_.front()));
    else
      take_set(gguf_sets_.begin()->second, folder_, kGgufEnd, out_);
    note_aside(aside_, "a projector is not needed for text");
    return std::move(out_);
  }

  Result<LocatedCheckpoint> by_config() {
    if (out_.config_path.empty() && trees_.size() == 1) {
      out_.kind = CheckpointKind::kTree;
      out_.tree_path = path_join(folder_, trees_.front());
      return std::move(out_);
    }
    if (out_.config_path.empty()) {
      if (!pickled_.empty())
        return Error(ErrorCode::kUnsupported,
                     fmt::format("folder {} holds pickled weights only ({}), which Berth does not read",
                                 quoted(folder_, 400), listed(pickled_)),
                     {"Use the model's safetensors files, or convert it to safetensors."});
      return Error(ErrorCode::kNotFound,
                   fmt::format("folder {} holds no checkpoint: *.safetensors, *.gguf or config.json was expected",
                               quoted(folder_, 400)));
    }
    out_.kind = CheckpointKind::kConfig;
    out_.warnings.push_back(
        pickled_.empty()
            ? fmt::format("folder {} holds no weights: planning from its config.json", quoted(folder_, 400))
            : fmt::format("folder {} holds pickled weights only ({}), which Berth does not read: planning from "
                          "its config.json",
                          quoted(folder_, 400), listed(pickled_)));
    return std::move(out_);
  }

  void note_aside(const Names& names, std::string_view why) {
    if (!names.empty())
      out_.warnings.push_back(fmt::format("{} beside the checkpoint is not used: {}", listed(names), why));
  }

  std::string folder_;
  LocatedCheckpoint out_;
  Names indexes_, single_, gguf_, trees_, pickled_, aside_;
  ShardSets shards_, gguf_sets_;
};

std::string sibling_config(const std::string& folder) {
  const std::string path = path_join(folder, "config.json");
  return path_exists(path) ? path : "";
}

std::string without(std::string_view name, std::string_view end) {
  return std::string(name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name);
}

Result<LocatedCheckpoint> locate_gguf(const std::string& path, LocatedCheckpoint out) {
  out.kind = CheckpointKind::kGguf;
  out.display_name = without(path_name(path), kGgufEnd);
  const auto part = parse_shard_name(path_name(path), kGgufEnd);
  if (!part || part->count <= 1) {
    out.weight_paths.push_back(path);
    return out;
  }
  out.display_name = part->stem;
  if (part->number != 1)
    out.warnings.push_back(fmt::format("{} is part {} of {}: the whole set is opened", quoted(path_name(path)),
                                       part->number, part->count));
  ShardSet set;
  set.count = part->count;
  set.names.emplace(part->number, path_name(path));
  for (uint32_t n = 1; n <= part->count; ++n) {
    const std::string name = number_name(*part, n, kGgufEnd);
    if (path_exists(path_join(out.folder, name))) set.names.emplace(n, name);
  }
  take_set(set, out.folder, kGgufEnd, out);
  return out;
}

// For names without a telling ending (blobs of the hub cache): the first bytes.
Result<CheckpointKind> kind_by_content(const std::string& path) {
  TRY(const File file, File::open(path));
  std::array<std::byte, 9> head{};
  const size_t n = std::min<uint64_t>(head.size(), file.size_bytes());
  TRY_STATUS(file.read_at(0, std::span(head).first(n)));
  const std::string_view text(reinterpret_cast<const char*>(head.data()), n);
  if (text.starts_with("GGUF")) return CheckpointKind::kGguf;
  if (n == 9 && text[8] == '{') return CheckpointKind::kSafetensors;
  if (text.starts_with("{")) return CheckpointKind::kConfig;
  return Error(ErrorCode::kUnsupported,
               fmt::format("{} is no checkpoint: safetensors, GGUF or JSON was expected", quoted(path, 400)));
}

Result<LocatedCheckpoint> locate_file(const std::string& path) {
  LocatedCheckpoint out;
  const std::string name = path_name(path);
  out.folder = path_folder(path);
  out.display_name = name;
  const auto as = [&](CheckpointKind kind) -> Result<LocatedCheckpoint> {
    out.kind = kind;
    if (kind == CheckpointKind::kGguf) return locate_gguf(path, std::move(out));
    if (kind == CheckpointKind::kConfig) out.config_path = path;
    if (kind == CheckpointKind::kTree) out.tree_path = path;
    if (kind == CheckpointKind::kSafetensors) {
      out.config_path = sibling_config(out.folder);
      out.display_name = without(name, kTensors);
      out.weight_paths.push_back(path);
      if (const auto shard = parse_shard_name(name, kTensors); shard && shard->count > 1)
        out.warnings.push_back(
            fmt::format("{} is file {} of {}: the others are not opened; name the folder or the index "
                        "for the whole model",
                        quoted(name), shard->number, shard->count));
    }
    return std::move(out);
  };
  if (name.ends_with(".index.json")) {
    if (!name.ends_with(kIndex))
      return Error(ErrorCode::kUnsupported,
                   fmt::format("{} is an index of pickled weights, which Berth does not read", quoted(path, 400)),
                   {"Use the model's safetensors files, or convert it to safetensors."});
    out.kind = CheckpointKind::kSafetensors;
    out.index_path = path;
    out.config_path = sibling_config(out.folder);
    out.display_name = out.folder.empty() ? without(name, kIndex) : path_name(out.folder);
    return out;
  }
  if (name.ends_with(kTensors)) return as(CheckpointKind::kSafetensors);
  if (name.ends_with(kGgufEnd)) return as(CheckpointKind::kGguf);
  if (name.ends_with(".tree.json")) return as(CheckpointKind::kTree);
  if (name.ends_with(".json")) {
    auto located = as(CheckpointKind::kConfig);
    if (located && !located->folder.empty() && path_name(located->folder) != "..")
      located->display_name = path_name(located->folder);
    return located;
  }
  for (const std::string_view end : kPickled)
    if (name.ends_with(end))
      return Error(ErrorCode::kUnsupported,
                   fmt::format("{} holds pickled weights, which Berth does not read", quoted(path, 400)),
                   {"Use the model's safetensors files, or convert it to safetensors."});
  TRY(const CheckpointKind kind, kind_by_content(path));
  return as(kind);
}

Result<LocatedCheckpoint> locate_folder(std::string folder, std::string display_name) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  LocatedCheckpoint out;
  out.display_name = display_name.empty() ? path_name(folder) : std::move(display_name);
  if (!path_exists(path_join(folder, "config.json")) && is_directory(path_join(folder, "snapshots"))) {
    TRY(auto snapshot, find_snapshot(folder));
    // "models--org--name" is org/name.
    if (out.display_name.starts_with("models--")) {
      out.display_name.erase(0, 8);
      if (const size_t dashes = out.display_name.find("--"); dashes != std::string::npos)
        out.display_name.replace(dashes, 2, "/");
    }
    folder = snapshot.folder;
    out.warnings = std::move(snapshot.warnings);
  }
  out.folder = folder;
  return FolderLocator(folder, std::move(out)).locate();
}

}  // namespace

std::string_view checkpoint_kind_name(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kSafetensors:
      return "safetensors";
    case CheckpointKind::kGguf:
      return "gguf";
    case CheckpointKind::kConfig:
      return "config";
    case CheckpointKind::kTree:
      return "tree";
  }
  return "unknown";
}

Result<LocatedCheckpoint> locate_checkpoint(const std::string& model, const std::string& hub_cache) {
  if (model.empty() || model.find('\0') != std::string::npos)
    return Error(ErrorCode::kInvalidArgument, fmt::format("MODEL {} is empty or holds a NUL character", quoted(model)));
  if (is_directory(model)) return locate_folder(model, "");
  if (path_exists(model)) return locate_file(model);
  const size_t at = model.find('@');
  const std::string repo = model.substr(0, at);
  const std::string revision = at == std::string::npos ? "main" : model.substr(at + 1);
  const std::string cache = hub_cache.empty() ? hub_cache_folder() : hub_cache;
  if (is_repo_id(repo) && !cache.empty()) {
    const std::string repo_folder = path_join(cache, hub_repo_folder(repo));
    if (is_directory(repo_folder)) {
      TRY(auto snapshot, find_snapshot(repo_folder, revision));
      auto located = locate_folder(snapshot.folder, repo);
      if (located)
        located->warnings.insert(located->warnings.begin(), snapshot.warnings.begin(), snapshot.warnings.end());
      return located;
    }
  }
  Error error(ErrorCode::kNotFound,
              fmt::format("MODEL {} is neither a file or folder nor a repository in the hub cache {}",
                          quoted(model, 400), quoted(cache, 400)));
  if (is_repo_id(repo)) error.hints.push_back(fmt::format("Give the path of its folder, or download it into the cache with Hugging Face's own tool: hf download {}.", repo));
  return error;
}

}  // namespace berth::format
