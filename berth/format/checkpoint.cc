// format/checkpoint.cc — what an open checkpoint answers; checkpoint_open.cc opens it.
#include "berth/format/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "berth/base/read_once.h"
#include "berth/base/bytes.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/format/checkpoint_open.h"

namespace berth::format {
namespace {

constexpr uint64_t kMaxTokenizerBytes = 256ull << 20, kMaxSmallTextBytes = 16ull << 20;

// The template called `name` in a JSON object's "chat_template": a text, or a list of {"name", "template"}.
Result<std::optional<std::string>> template_in(const std::string& json, const std::string& file,
                                               std::string_view name) {
  auto document = JsonDocument::parse(json, {.large_integers_as_text = true});
  if (!document) return document.error().with_context("reading " + quoted(file, 400));
  const ConfigView view(document->root(), file, "");
  const JsonView value = view.find("chat_template");
  const bool is_default = name.empty() || name == "default";
  if (!value.valid()) return std::optional<std::string>();
  if (const auto text = value.as_string()) return is_default ? std::optional(std::string(*text)) : std::nullopt;
  const char* expected = "a text, or a list of objects with texts \"name\" and \"template\"";
  if (value.is_object()) {  // {"default": text, "tool_use": text}
    const JsonView v = value[is_default ? "default" : name];
    if (!v.valid()) return std::optional<std::string>();
    if (const auto text = v.as_string()) return std::optional(std::string(*text));
    return view.wrong("chat_template", expected);
  }
  if (!value.is_array()) return view.wrong("chat_template", expected);
  for (JsonView::Cursor c(value); c.next();) {
    const auto its_name = c.value()["name"].as_string();
    const auto text = c.value()["template"].as_string();
    if (!its_name || !text) return view.wrong("chat_template", expected);
    if (*its_name == (is_default ? "default" : name)) return std::optional(std::string(*text));
  }
  return std::optional<std::string>();
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& model, const Log& log, const OpenOptions& options) {
  return CheckpointOpener(log, options).open(model);
}

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto position = names_.find(name);
  return position ? &tensors_[*position] : nullptr;
}

Status Checkpoint::read(const TensorEntry& tensor, uint64_t offset, std::span<std::byte> out) const {
  if (tensor.file >= files_.size() || offset > tensor.size_bytes || out.size() > tensor.size_bytes - offset)
    return Error(ErrorCode::kInvalidArgument, fmt::format("reading {} bytes at {} of tensor {}: it has {} bytes",
                                                          out.size(), offset, quoted(tensor.name), tensor.size_bytes));
  const File& file = files_[tensor.file];
  Status status = file.check_unchanged();
  if (status) status = read_once_at(file, tensor.offset + offset, out);
  if (!status) return status.error().with_context("reading tensor " + quoted(tensor.name));
  return {};
}

Status Checkpoint::check_unchanged() const {
  for (const File& file : files_) {
    TRY_STATUS(file.check_unchanged());
    // Another file under the same name: ours is still whole, but not what the name means now.
    if (!path_exists(file.path())) continue;
    TRY(const File now, File::open(file.path()));
    if (now.identity().inode != file.identity().inode || now.identity().device != file.identity().device)
      return Error(ErrorCode::kIo,
                   fmt::format("{} was replaced by another file since it was opened", quoted(file.path(), 400)),
                   {"Open the checkpoint again."});
  }
  return {};
}

Result<std::optional<std::string>> Checkpoint::optional_text(std::string_view name, uint64_t max_bytes) const {
  const std::string path = path_join(located_.folder, name);
  if (kind() == CheckpointKind::kGguf || !path_exists(path)) return std::optional<std::string>();
  TRY(std::string text, read_file(path, max_bytes));
  return std::optional(std::move(text));
}

Result<GenerationConfig> Checkpoint::generation_config() const {
  if (gguf_) return generation_config_from(*gguf_);
  TRY(const auto text, optional_text("generation_config.json", kMaxSmallTextBytes));
  if (text) return parse_generation_config(*text, path_join(located_.folder, "generation_config.json"));
  if (config_) return generation_config_from(*config_);
  return GenerationConfig();
}

Result<std::optional<std::string>> Checkpoint::tokenizer_json() const {
  return optional_text("tokenizer.json", kMaxTokenizerBytes);
}
Result<std::optional<std::string>> Checkpoint::tokenizer_config_json() const {
  return optional_text("tokenizer_config.json", kMaxSmallTextBytes);
}
Result<std::optional<std::string>> Checkpoint::special_tokens_map_json() const {
  return optional_text("special_tokens_map.json", kMaxSmallTextBytes);
}

Result<std::optional<std::string>> Checkpoint::chat_template(std::string_view name) const {
  const bool is_default = name.empty() || name == "default";
  if (gguf_) {
    const std::string key = is_default ? "tokenizer.chat_template" : fmt::format("tokenizer.chat_template.{}", name);
    TRY(const auto text, gguf_->find_string(key));
    return text ? std::optional(std::string(*text)) : std::nullopt;
  }
  const std::string file = is_default ? "chat_template.jinja" : fmt::format("additional_chat_templates/{}.jinja", name);
  if (clean_relative_path(file) == file) {
    TRY(auto text, optional_text(file, kMaxSmallTextBytes));
    if (text) return text;
  }
  for (const char* json_file : {"chat_template.json", "tokenizer_config.json"}) {
    TRY(const auto text, optional_text(json_file, kMaxSmallTextBytes));
    if (!text) continue;
    TRY(auto found, template_in(*text, path_join(located_.folder, json_file), name));
    if (found) return found;
  }
  return std::optional<std::string>();
}

std::string Checkpoint::fingerprint() const {
  std::string bytes;
  const auto number = [&bytes](uint64_t n) { bytes.append(reinterpret_cast<const char*>(&n), sizeof n); };
  if (tensors_.empty() && config_) bytes = config_->root().json().text();
  for (const TensorEntry& t : tensors_) {
    number(t.name.size());
    bytes += t.name;
    bytes += dtype_name(t.dtype);
    number(t.shape.size());
    for (const int64_t extent : t.shape) number(static_cast<uint64_t>(extent));
    number(t.file);
    number(t.offset);
  }
  return xxh3_128_hex(bytes.data(), bytes.size());
}

}  // namespace berth::format
