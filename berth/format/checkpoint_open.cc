// format/checkpoint_open.cc — see checkpoint_open.h.
#include "berth/format/checkpoint_open.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "berth/base/strings.h"
#include "berth/format/gguf.h"
#include "berth/format/safetensors.h"

namespace berth::format {
namespace {

std::string listed(const std::vector<std::string>& paths) {
  std::string out;
  for (size_t i = 0; i < paths.size() && i < 8; ++i) out += (i ? ", " : "") + quoted(path_name(paths[i]));
  if (paths.size() > 8) out += fmt::format(" and {} more", paths.size() - 8);
  return out;
}

// The N of the first "layers.N." (or "h.N.", "blocks.N.") in a tensor's name.
std::optional<int64_t> layer_of(std::string_view name) {
  for (const std::string_view word : {"layers.", "h.", "blocks."}) {
    const size_t at = name.find(word);
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) continue;
    const std::string_view rest = name.substr(at + word.size());
    int64_t n = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), n);
    if (error == std::errc() && end != rest.data() + rest.size() && *end == '.') return n;
  }
  return std::nullopt;
}

}  // namespace

Result<Checkpoint> CheckpointOpener::open(const std::string& model) {
  TRY(c_.located_, locate_checkpoint(model, options_.hub_cache));
  for (std::string& warning : c_.located_.warnings) warn(std::move(warning));
  if (!options_.config_path.empty() && c_.kind() != CheckpointKind::kGguf && c_.kind() != CheckpointKind::kTree)
    c_.located_.config_path = options_.config_path;
  TRY_STATUS(open_config());
  switch (c_.kind()) {
    case CheckpointKind::kSafetensors:
      TRY_STATUS(open_safetensors());
      break;
    case CheckpointKind::kGguf:
      TRY_STATUS(open_gguf());
      break;
    case CheckpointKind::kConfig:
    case CheckpointKind::kTree:
      break;
  }
  find_stored_dtype();
  return std::move(c_);
}

void CheckpointOpener::find_stored_dtype() {
  uint64_t most = 0;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}) {
    uint64_t bytes = 0;
    for (const TensorEntry& t : c_.tensors_)
      if (t.dtype == dtype) bytes += t.size_bytes;
    if (bytes > most) c_.stored_dtype_ = dtype;
    most = std::max(most, bytes);
  }
  if (!c_.stored_dtype_ || !c_.config_ || !c_.config_->common().dtype) return;
  if (const DType stated = *c_.config_->common().dtype; stated != *c_.stored_dtype_)
    warn(fmt::format("{} says {}, the tensors are stored as {}: they stay as stored, 4 and 8 bit are made from {}",
                     quoted(path_name(c_.located_.config_path)), dtype_name(stated), dtype_name(*c_.stored_dtype_),
                     dtype_name(stated)));
}

void CheckpointOpener::warn(std::string message) {
  log_.warning(message);
  c_.warnings_.push_back(std::move(message));
}

Status CheckpointOpener::open_config() {
  const std::string& path = c_.located_.config_path;
  if (path.empty()) return {};
  TRY(c_.config_, HfConfig::open(path));
  for (const std::string& note : c_.config_->notes()) warn(note);
  c_.quantization_ = c_.config_->quantization();
  if (!c_.quantization_) {
    const std::string beside = path_join(c_.located_.folder, "hf_quant_config.json");
    if (path_exists(beside)) {
      TRY(const std::string text, read_file(beside, kMaxConfigBytes));
      TRY(c_.quantization_, parse_hf_quant_config(text, beside));
    }
  }
  if (c_.quantization_)
    for (const std::string& note : c_.quantization_->notes) warn(note);
  return {};
}

Result<uint32_t> CheckpointOpener::open_file(const std::string& path) {
  TRY(File file, File::open(path));
  for (uint32_t i = 0; i < c_.files_.size(); ++i)
    if (c_.files_[i].identity().inode == file.identity().inode &&
        c_.files_[i].identity().device == file.identity().device) {
      warn(fmt::format("{} and {} are one file: it is opened once", quoted(path_name(c_.files_[i].path())),
                       quoted(path_name(path))));
      return i;
    }
  c_.files_.push_back(std::move(file));
  return static_cast<uint32_t>(c_.files_.size() - 1);
}

Status CheckpointOpener::open_safetensors() {
  if (!c_.located_.index_path.empty()) return open_sharded();
  TRY_STATUS(open_numbered());
  return look_at_rivals();
}

void CheckpointOpener::note_unlisted_files(const ShardedIndex& index) {
  const auto names = list_folder(c_.located_.folder.empty() ? "." : c_.located_.folder);
  if (!names) return;
  std::vector<std::string> unlisted;
  for (const std::string& name : *names)
    if (parse_shard_name(name, ".safetensors") && !std::binary_search(index.files.begin(), index.files.end(), name))
      unlisted.push_back(name);
  if (!unlisted.empty())
    warn(fmt::format("{} of the folder are not used: {} does not name them ({})", unlisted.size(),
                     quoted(path_name(c_.located_.index_path)), listed(unlisted)));
}

std::optional<Error> CheckpointOpener::missing_shards(const ShardedIndex& index,
                                                      const std::vector<std::string>& paths) {
  std::vector<std::string> missing;
  size_t tensors = 0;
  std::vector<bool> is_missing(paths.size());
  for (size_t i = 0; i < paths.size(); ++i)
    if (!path_exists(paths[i])) {
      missing.push_back(index.files[i]);
      is_missing[i] = true;
    }
  if (missing.empty()) return std::nullopt;
  for (const auto& item : index.items) tensors += is_missing[item.file];
  // A copy of a published model's metadata: the usual names, none of the files. Good for planning.
  const bool usual_names = std::all_of(missing.begin(), missing.end(), [](const std::string& name) {
    const auto shard = parse_shard_name(name, ".safetensors");
    return shard && shard->stem == "model";
  });
  if (missing.size() == paths.size() && usual_names && c_.config_) {
    c_.located_.kind = CheckpointKind::kConfig;
    warn(fmt::format("none of the {} files that {} names is here: planning from config.json", missing.size(),
                     quoted(c_.located_.index_path, 400)));
    return std::nullopt;
  }
  return Error(ErrorCode::kCorruptData,
               fmt::format("opening {}: {} of {} files are missing: {}; they hold {} of {} tensors",
                           quoted(c_.located_.index_path, 400), missing.size(), paths.size(), listed(missing), tensors,
                           index.items.size()),
               {"The download is probably incomplete: fetch the missing files.",
                "To plan without weights, name config.json itself as MODEL."});
}

Status CheckpointOpener::open_sharded() {
  const std::string& index_path = c_.located_.index_path;
  ShardedIndex index;
  {
    TRY(const std::string text, read_file(index_path, kMaxIndexBytes));
    TRY(index, parse_sharded_index(text, index_path));
  }
  for (const std::string& warning : index.warnings) warn(fmt::format("{}: {}", quoted(index_path, 400), warning));
  std::vector<std::string> paths;
  for (const std::string& name : index.files) paths.push_back(path_join(c_.located_.folder, name));
  if (auto error = missing_shards(index, paths)) return *std::move(error);
  if (c_.kind() == CheckpointKind::kConfig) return {};
  note_unlisted_files(index);

  std::vector<uint32_t> file_of_shard;
  for (const std::string& path : paths) {
    TRY(const uint32_t file, open_file(path));
    file_of_shard.push_back(file);
  }
  std::vector<bool> seen(index.items.size());
  c_.tensors_.reserve(index.items.size());
  size_t unlisted = 0, elsewhere = 0;
  std::string first_unlisted, first_elsewhere;
  for (uint32_t f = 0; f < c_.files_.size(); ++f) {
    auto header = read_safetensors_header(FileSource(c_.files_[f]));
    if (!header) return header.error().with_context(fmt::format("file {} of {}", f + 1, c_.files_.size()));
    for (TensorEntry& t : header->tensors) {
      t.file = f;
      const auto item = index.positions.find(t.name);
      if (!item) {
        if (unlisted++ == 0) first_unlisted = t.name;
      } else if (file_of_shard[index.items[*item].file] == f) {
        seen[*item] = true;
      } else {
        if (elsewhere++ == 0) first_elsewhere = t.name;
        continue;  // the index names another file for it
      }
      c_.tensors_.push_back(std::move(t));
    }
  }
  size_t absent = 0;
  std::string first_absent;
  for (size_t i = 0; i < seen.size(); ++i)
    if (!seen[i] && absent++ == 0)
      first_absent = fmt::format("{}, which should be in {}", quoted(index.items[i].tensor),
                                 quoted(index.files[index.items[i].file]));
  if (absent > 0)
    return Error(ErrorCode::kCorruptData,
                 fmt::format("opening {}: {} of {} tensors are not in the files that it names for them, the "
                             "first is {}",
                             quoted(index_path, 400), absent, index.items.size(), first_absent),
                 {"Index and files do not belong together: fetch the model again."});
  if (unlisted > 0)
    warn(fmt::format("{} tensors of the files are not in {}, the first is {}", unlisted, quoted(path_name(index_path)),
                     quoted(first_unlisted)));
  if (elsewhere > 0)
    warn(fmt::format("{} tensors are in a second file too, the first is {}: {} decides", elsewhere,
                     quoted(first_elsewhere), quoted(path_name(index_path))));
  return index_names();
}

Error CheckpointOpener::incomplete_numbering() const {
  const auto& missing = c_.located_.missing_paths;
  const size_t files = c_.located_.weight_paths.size();
  std::string message = fmt::format(
      "opening {}: {} tensors in {} files were read, the numbering says that there are {} files; missing: {}",
      quoted(c_.located_.folder, 400), c_.tensors_.size(), files, files + missing.size(), listed(missing));
  std::set<int64_t> layers;
  bool final_norm = false;
  for (const TensorEntry& t : c_.tensors_) {
    if (const auto layer = layer_of(t.name))
      layers.insert(*layer);
    else if (t.name.ends_with("norm.weight") || t.name.ends_with("ln_f.weight"))
      final_norm = true;
  }
  std::string groups;
  if (c_.config_ && c_.config_->common().num_hidden_layers) {
    const int64_t count = *c_.config_->common().num_hidden_layers;
    int64_t absent = 0, first = -1;
    for (int64_t i = 0; i < count; ++i)
      if (layers.count(i) == 0 && absent++ == 0) first = i;
    if (absent > 0) groups = fmt::format("{} of {} layers (the first is {})", absent, count, first);
  }
  if (!final_norm) groups += (groups.empty() ? "" : ", ") + std::string("the final norm");
  if (!groups.empty()) message += fmt::format("; not found: {}", groups);
  return Error(ErrorCode::kCorruptData, std::move(message),
               {"The download is probably incomplete: fetch the missing files."});
}

Status CheckpointOpener::open_numbered() {
  for (const std::string& path : c_.located_.weight_paths) {
    const size_t open_before = c_.files_.size();
    TRY(const uint32_t file, open_file(path));
    if (file < open_before) continue;
    TRY(auto header, read_safetensors_header(FileSource(c_.files_[file])));
    for (TensorEntry& t : header.tensors) {
      t.file = file;
      c_.tensors_.push_back(std::move(t));
    }
  }
  if (!c_.located_.missing_paths.empty()) return incomplete_numbering();
  return index_names();
}

// Without an index nothing says which of two files with the same tensors is the model. model.VARIANT.safetensors is a
// naming of the hub's own for other precisions; the plain name is the default one.
Status CheckpointOpener::look_at_rivals() {
  std::vector<std::string> aside;
  for (const std::string& path : c_.located_.rival_paths) {
    const std::string name = path_name(path);
    aside.push_back(name);
    const bool variant =
        name.starts_with("model.") && path_name(c_.located_.weight_paths.front()) == "model.safetensors";
    if (variant) continue;
    auto file = File::open(path);
    if (!file) continue;
    const auto header = read_safetensors_header(FileSource(*file));
    if (!header) continue;
    for (const TensorEntry& t : header->tensors)
      if (c_.find(t.name) != nullptr)
        return Error(
            ErrorCode::kUnsupported,
            fmt::format("folder {} holds several checkpoints and no index says which is meant: {} and {} both hold {}",
                        quoted(c_.located_.folder, 400), quoted(path_name(c_.located_.weight_paths.front())),
                        quoted(name), quoted(t.name)),
            {"Name the file itself as MODEL, or leave only one in the folder."});
  }
  if (!aside.empty()) warn(fmt::format("{} beside the checkpoint is not used: no index names it", listed(aside)));
  return {};
}

Status CheckpointOpener::index_names() {
  c_.names_.reserve(c_.tensors_.size());
  for (const TensorEntry& t : c_.tensors_)
    if (const auto added = c_.names_.add(t.name); !added.is_new)
      return Error(ErrorCode::kCorruptData,
                   fmt::format("duplicate tensor name {}: it is in {} and in {}", quoted(t.name),
                               quoted(path_name(c_.files_[c_.tensors_[added.position].file].path())),
                               quoted(path_name(c_.files_[t.file].path()))),
                   {"The files do not belong together: fetch the model again."});
  return {};
}

Status CheckpointOpener::open_gguf() {
  const auto& paths = c_.located_.weight_paths;
  const auto wrong_part = [&](const std::string& path, std::string message) {
    return Error(ErrorCode::kCorruptData, fmt::format("opening {}: {}", quoted(path, 400), std::move(message)),
                 {"The parts do not belong together or one is missing: fetch the set again."});
  };
  if (!c_.located_.missing_paths.empty())
    return wrong_part(paths.front(),
                      fmt::format("{} of {} parts are missing: {}", c_.located_.missing_paths.size(),
                                  paths.size() + c_.located_.missing_paths.size(), listed(c_.located_.missing_paths)));
  std::optional<int64_t> all_tensors;
  for (size_t i = 0; i < paths.size(); ++i) {
    const size_t open_before = c_.files_.size();
    TRY(const uint32_t file, open_file(paths[i]));
    if (file < open_before) return wrong_part(paths[i], "it is the same file as an earlier part");
    TRY(GgufFile part, read_gguf(FileSource(c_.files_[file])));
    for (std::string& warning : part.warnings) warn(std::move(warning));
    TRY(const auto count, part.metadata.find_int("split.count"));
    TRY(const auto number, part.metadata.find_int("split.no"));
    TRY(const auto tensors, part.metadata.find_int("split.tensors.count"));
    if (count.value_or(1) > 1 && paths.size() == 1)
      return wrong_part(paths[i], fmt::format("split.count says {} parts; the file's name is not of the form "
                                              "NAME-00001-of-{:05}.gguf, so the others cannot be found",
                                              *count, *count));
    if (paths.size() > 1) {
      if (count != static_cast<int64_t>(paths.size()))
        return wrong_part(paths[i], fmt::format("split.count is {}; {} parts were expected from the name",
                                                part.metadata.describe("split.count"), paths.size()));
      if (number != static_cast<int64_t>(i))
        return wrong_part(paths[i], fmt::format("split.no is {}; {} was expected from the name",
                                                part.metadata.describe("split.no"), i));
      if (i == 0)
        all_tensors = tensors;
      else if (tensors != all_tensors)
        return wrong_part(
            paths[i],
            fmt::format("split.tensors.count is {}, the first part says {}: a part of another model",
                        part.metadata.describe("split.tensors.count"), c_.gguf_->describe("split.tensors.count")));
      for (const char* key : {"general.architecture", "general.name"})
        if (i > 0 && part.metadata.has(key) && part.metadata.describe(key) != c_.gguf_->describe(key))
          return wrong_part(paths[i], fmt::format("{} is {}, the first part says {}: a part of another model", key,
                                                  part.metadata.describe(key), c_.gguf_->describe(key)));
    }
    if (i == 0) c_.gguf_ = std::move(part.metadata);
    for (TensorEntry& t : part.tensors) {
      t.file = file;
      c_.tensors_.push_back(std::move(t));
    }
  }
  if (all_tensors && *all_tensors != static_cast<int64_t>(c_.tensors_.size()))
    return wrong_part(paths.front(), fmt::format("split.tensors.count is {}; the parts hold {} tensors", *all_tensors,
                                                 c_.tensors_.size()));
  TRY_STATUS(index_names());
  return check_gguf_model(*c_.gguf_, c_.tensors_);
}

}  // namespace berth::format
