// format/gguf_check.cc — rules between the keys of a GGUF model (check_gguf_model in gguf.h).
#include <fmt/format.h>

#include <array>

#include "berth/base/strings.h"
#include "berth/format/gguf.h"

namespace berth::format {
namespace {

// Names that GGUF tensors begin with (docs/formats): anything else is no model of llama.cpp's naming.
constexpr std::array<std::string_view, 16> kKnownNames = {
    "blk.", "token_embd", "output", "rope_", "per_layer_", "altup_", "position_embd", "token_types",
    "cls",  "enc.",       "dec.",   "v.",    "mm.",        "a.",     "embd_norm",     "conv1d"};

Status check_layers(const GgufMetadata& m) {
  const std::string blocks_key = m.arch_key("block_count");
  TRY(const auto blocks, m.find_int(blocks_key, kLayers));
  for (const char* suffix : {"attention.head_count", "attention.head_count_kv"}) {
    const std::string key = m.arch_key(suffix);
    // A layer without attention has 0 heads in an array of several; a single 0 cannot be.
    TRY(const auto values, blocks ? m.find_ints_per_layer(key, static_cast<size_t>(*blocks), {0, kHeads.max})
                                  : m.find_ints(key, {0, kHeads.max}));
    if (!values) continue;
    bool any = false;
    for (const int64_t v : *values) any = any || v > 0;
    if (!any) return m.wrong(key, kHeads.text());
  }
  for (const char* suffix : {"embedding_length", "context_length", "vocab_size"})
    if (auto value = m.find_int(m.arch_key(suffix), kCount); !value) return std::move(value).error();
  return {};
}

Status check_tokens(const GgufMetadata& m) {
  TRY(const auto tokens, m.find_strings("tokenizer.ggml.tokens"));
  if (!tokens) return {};
  const std::string expected = fmt::format("one number for each of {} tokens", tokens->size());
  // Scores are floats and types integers: other elements are some other array under this name.
  const auto parallel = [&](std::string_view key, std::string_view what, bool floats) -> Status {
    const auto type = m.element_type(key);
    if (!type) return {};
    const bool is_float = type == GgufType::kF32 || type == GgufType::kF64;
    if (!m.array_size(key) || is_float != floats || (!floats && (type == GgufType::kString || type == GgufType::kBool)))
      return m.wrong(key, what);
    if (m.array_size(key) != tokens->size()) return m.wrong(key, expected);
    return {};
  };
  TRY_STATUS(parallel("tokenizer.ggml.token_type", "an array of i32", false));
  TRY_STATUS(parallel("tokenizer.ggml.scores", "an array of f32", true));
  if (auto merges = m.find_strings("tokenizer.ggml.merges"); !merges) return std::move(merges).error();
  const IntRange id{0, static_cast<int64_t>(tokens->size()) - 1};
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown", "padding", "separator", "cls", "mask"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    TRY(const auto value, m.find_int(key));
    // Writers put -1 or 2^32-1 for "none".
    if (value && *value != -1 && *value != 0xFFFFFFFFll && !id.contains(*value))
      return m.wrong(key, fmt::format("an id below the {} tokens of the vocabulary", tokens->size()));
  }
  return {};
}

}  // namespace

Status check_gguf_model(const GgufMetadata& m, const std::vector<TensorEntry>& tensors) {
  if (m.architecture().empty()) return m.wrong("general.architecture", "the name of an architecture");
  TRY_STATUS(check_layers(m));
  TRY_STATUS(check_tokens(m));
  size_t known = 0;
  for (const TensorEntry& t : tensors)
    for (const std::string_view name : kKnownNames)
      if (t.name.starts_with(name)) {
        ++known;
        break;
      }
  if (known == 0 && !tensors.empty())
    return Error(ErrorCode::kUnsupported,
                 fmt::format("reading {}: 0 of its {} tensors have names that GGUF files use (the first is {})",
                             quoted(m.file_name(), 400), tensors.size(), quoted(tensors.front().name)),
                 {"The file was not written by llama.cpp's converter: convert the model again."});
  return {};
}

}  // namespace berth::format
