// format/hf_config.cc — see hf_config.h.
#include "berth/format/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "berth/base/file.h"
#include "berth/base/strings.h"

namespace berth::format {
namespace {

constexpr std::array<std::string_view, 3> kTextKeys = {"text_config", "language_config", "llm_config"};
constexpr std::array<std::string_view, 2> kOuterKeys = {"thinker_config", "model_config"};

// The object that describes the language model, at most one wrapper deep inside another.
ConfigView text_of(const ConfigView& root) {
  for (const std::string_view key : kTextKeys)
    if (const JsonView v = root.json()[key]; v.is_object()) return ConfigView(v, root.file(), root.full_name(key));
  if (root.has("num_hidden_layers")) return root;
  for (const std::string_view outer : kOuterKeys)
    if (const JsonView v = root.json()[outer]; v.is_object()) {
      const ConfigView inner(v, root.file(), root.full_name(outer));
      for (const std::string_view key : kTextKeys)
        if (const JsonView w = v[key]; w.is_object()) return ConfigView(w, root.file(), inner.full_name(key));
      if (inner.has("num_hidden_layers")) return inner;
    }
  return root;
}

// One value under several spellings; two that are present and differ are an error.
Result<std::optional<int64_t>> one_int(const ConfigView& view, std::initializer_list<std::string_view> names,
                                       IntRange range) {
  std::optional<int64_t> value;
  std::string_view from;
  for (const std::string_view name : names) {
    TRY(const auto v, view.find_int(name, range));
    if (!v) continue;
    if (value && *value != *v)
      return view.broken(
          fmt::format("{} is {} but {} is {}", quoted(view.full_name(from)), *value, quoted(view.full_name(name)), *v));
    value = v;
    from = name;
  }
  return value;
}

Result<std::optional<DType>> read_dtype(const ConfigView& view) {
  const ConfigKey key{"dtype", "torch_dtype"};
  if (const JsonView v = view.find(key); v.valid() && v.is_object()) return std::optional<DType>();  // one per module
  TRY(const auto name, view.find_string(key));
  if (!name || *name == "auto") return std::optional<DType>();
  const auto dtype = dtype_from_name(*name);
  if (!dtype) return view.wrong(key, "a torch dtype such as \"bfloat16\"");
  return dtype;
}

}  // namespace

Result<HfConfig> HfConfig::open(const std::string& path) {
  TRY(const std::string text, read_file(path, kMaxConfigBytes));
  return parse(text, path);
}

Result<HfConfig> HfConfig::parse(std::string_view json, std::string file_name) {
  auto document = JsonDocument::parse(json, {.max_bytes = kMaxConfigBytes});
  if (!document) return document.error().with_context("reading " + quoted(file_name, 400));
  HfConfig config;
  config.document_ = std::make_shared<const JsonDocument>(std::move(document).value());
  config.root_ = ConfigView(config.document_->root(), std::move(file_name), "");
  if (!config.root_.json().is_object())
    return config.root_.broken(
        fmt::format("a JSON object was expected, {} was found", json_type_name(config.root_.json().type())));
  config.text_ = text_of(config.root_);
  TRY_STATUS(config.read_names());
  TRY_STATUS(config.read_common());
  TRY_STATUS(config.read_sliding_window());
  TRY_STATUS(config.check_heads());
  TRY_STATUS(config.read_layer_types());
  TRY(config.common_.rope, read_rope_config(config.text_));
  TRY(config.quantization_, read_quantization_config(config.root_, config.text_));
  return config;
}

Status HfConfig::read_names() {
  TRY(model_type_, root_.string_or("model_type", ""));
  TRY(text_model_type_, text_.string_or("model_type", model_type_));
  TRY(auto architectures, root_.find_strings("architectures"));
  if (architectures) architectures_ = std::move(*architectures);
  for (const char* key : {"auto_map", "custom_pipelines"})
    if (root_.has(key))
      notes_.push_back(fmt::format("{}: {} names Python code of the checkpoint; it is ignored, nothing is executed",
                                   quoted(root_.file(), 400), quoted(key)));
  return {};
}

Status HfConfig::read_common() {
  CommonConfig& c = common_;
  TRY(c.vocab_size, text_.find_int("vocab_size", kCount));
  TRY(c.hidden_size, one_int(text_, {"hidden_size", "n_embd", "n_embed"}, kCount));
  TRY(c.num_hidden_layers, one_int(text_, {"num_hidden_layers", "n_layer", "num_layers"}, kLayers));
  TRY(c.num_attention_heads, one_int(text_, {"num_attention_heads", "n_head"}, kHeads));
  TRY(c.num_key_value_heads, text_.find_int({"num_key_value_heads", "num_kv_heads", "n_head_kv"}, kHeads));
  TRY(c.head_dim, text_.find_int("head_dim", kCount));
  TRY(c.max_position_embeddings, text_.find_int({"max_position_embeddings", "n_positions"}, kCount));
  TRY(c.num_experts, one_int(text_, {"num_local_experts", "num_experts", "n_routed_experts"}, kCountOrZero));
  TRY(c.num_experts_per_tok,
      one_int(text_, {"num_experts_per_tok", "experts_per_token", "top_k_experts"}, kCountOrZero));
  TRY(c.norm_eps, text_.find_double({"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"}, {0}));
  TRY(c.activation, text_.find_string({"hidden_activation", "hidden_act", "activation_function", "activation"}));
  const ConfigKey width{"intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"};
  TRY(auto widths, text_.find_int_or_ints(width, kCountOrZero));
  if (widths && text_.find(width).is_array())
    c.intermediate_size_by_layer = std::move(*widths);
  else if (widths)
    c.intermediate_size = widths->front();
  if (!c.intermediate_size_by_layer.empty() && c.num_hidden_layers &&
      c.intermediate_size_by_layer.size() != static_cast<size_t>(*c.num_hidden_layers))
    return text_.wrong(width, fmt::format("one number for each of {} layers", *c.num_hidden_layers));
  // The wrapper class ties its head, so its own key decides.
  TRY(c.tie_word_embeddings, root_.find_bool("tie_word_embeddings"));
  if (!c.tie_word_embeddings) {
    TRY(c.tie_word_embeddings, text_.find_bool("tie_word_embeddings"));
  }
  TRY(c.dtype, read_dtype(text_));
  if (!c.dtype) {
    TRY(c.dtype, read_dtype(root_));
  }
  for (auto [key, ids] : {std::pair{"bos_token_id", &c.bos_token_id}, std::pair{"eos_token_id", &c.eos_token_id},
                          std::pair{"pad_token_id", &c.pad_token_id}}) {
    const IntRange id{-1, kCount.max};  // -1 is written for "none"
    TRY(auto found, root_.find_int_or_ints(key, id));
    if (!found) {
      TRY(found, text_.find_int_or_ints(key, id));
    }
    if (!found) continue;
    for (const int64_t n : *found)
      if (n >= 0) ids->push_back(n);
  }
  return {};
}

Status HfConfig::read_sliding_window() {
  SlidingWindow& window = common_.sliding_window;
  window.stated = text_.json().contains("sliding_window");
  TRY(window.tokens, text_.find_int("sliding_window", kCountOrZero));
  TRY(const auto use, text_.find_bool("use_sliding_window"));
  if (window.tokens == 0 || use == false) window.tokens.reset();
  return {};
}

Status HfConfig::check_heads() const {
  const CommonConfig& c = common_;
  if (!c.num_attention_heads) return {};
  const int64_t heads = *c.num_attention_heads;
  if (c.num_key_value_heads && heads % *c.num_key_value_heads != 0)
    return text_.wrong({"num_key_value_heads", "num_kv_heads", "n_head_kv"},
                       fmt::format("a divisor of the {} attention heads", heads));
  const bool width_stated = c.head_dim || text_.has("qk_rope_head_dim");
  if (!width_stated && c.hidden_size && *c.hidden_size % heads != 0)
    return text_.broken(fmt::format("{} {} is no multiple of the {} attention heads and there is no \"head_dim\"",
                                    quoted(text_.full_name("hidden_size")), *c.hidden_size, heads));
  return {};
}

Status HfConfig::read_layer_types() {
  std::vector<std::string>& types = common_.layer_types;
  TRY(auto stated, text_.find_strings("layer_types"));
  if (stated) {
    if (common_.num_hidden_layers && stated->size() != static_cast<size_t>(*common_.num_hidden_layers))
      return text_.wrong("layer_types", fmt::format("one text for each of {} layers", *common_.num_hidden_layers));
    types = std::move(*stated);
    return {};
  }
  if (!common_.num_hidden_layers) return {};
  const int64_t layers = *common_.num_hidden_layers;
  const auto fill = [&](auto&& type_of) {
    for (int64_t i = 0; i < layers; ++i) types.emplace_back(type_of(i));
  };
  const ConfigKey pattern_key{"sliding_window_pattern", "_sliding_window_pattern"};
  if (const JsonView pattern = text_.find(pattern_key); pattern.is_string()) {
    const std::string_view letters = *pattern.as_string();  // "LLLG": local, local, local, global, again
    if (letters.empty() || letters.find_first_not_of("LG") != std::string_view::npos)
      return text_.wrong(pattern_key, "an integer of at least 1, or letters L and G");
    fill([&](int64_t i) {
      return letters[static_cast<size_t>(i) % letters.size()] == 'L' ? "sliding_attention" : "full_attention";
    });
    return {};
  }
  TRY(const auto pattern, text_.find_int(pattern_key, kCount));
  TRY(const auto interval, text_.find_int("full_attention_interval", kCount));
  TRY(const auto use_sliding, text_.find_bool("use_sliding_window"));
  TRY(const auto max_window_layers, text_.find_int("max_window_layers", kCountOrZero));
  if (pattern)
    fill([&](int64_t i) { return (i + 1) % *pattern != 0 ? "sliding_attention" : "full_attention"; });
  else if (interval)
    fill([&](int64_t i) { return (i + 1) % *interval != 0 ? "linear_attention" : "full_attention"; });
  else if (use_sliding && (max_window_layers || !*use_sliding))
    fill([&](int64_t i) {
      return common_.sliding_window.tokens && i >= *max_window_layers ? "sliding_attention" : "full_attention";
    });
  return {};
}

Result<std::optional<int64_t>> HfConfig::find_int_for_layer(std::string_view key, size_t layer, IntRange range) const {
  TRY(const auto by_layer, text_.find_object("per_layer_config"));
  if (by_layer) {
    TRY(const auto own, by_layer->find_object(std::to_string(layer)));
    if (own && own->has(key)) return own->find_int(key, range);
  }
  const bool full = layer < common_.layer_types.size() && common_.layer_types[layer] == "full_attention";
  if (full && key == "head_dim" && text_.has("global_head_dim")) return text_.find_int("global_head_dim", range);
  if (full && key == "num_key_value_heads" && text_.has("num_global_key_value_heads")) {
    TRY(const bool shared, text_.bool_or("attention_k_eq_v", false));
    if (shared) return text_.find_int("num_global_key_value_heads", range);
  }
  return text_.find_int(key, range);
}

}  // namespace berth::format
