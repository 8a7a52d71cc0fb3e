// arch/text_config.cc — see text_config.h.
#include "berth/arch/text_config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "berth/base/strings.h"

namespace berth::arch {
namespace {

struct ActivationWord {
  std::string_view word;
  Activation activation;
  std::string_view class_name;
};
constexpr std::array<ActivationWord, 11> kActivationWords{{
    {"silu", Activation::kSilu, "SiLUActivation"},
    {"swish", Activation::kSilu, "SiLUActivation"},
    {"gelu", Activation::kGeluErf, "GELUActivation"},
    {"gelu_python", Activation::kGeluErf, "GELUActivation"},
    {"gelu_new", Activation::kGeluTanh, "NewGELUActivation"},
    {"gelu_pytorch_tanh", Activation::kGeluTanh, "GELUTanh"},
    {"gelu_python_tanh", Activation::kGeluTanh, "GELUTanh"},
    {"gelu_fast", Activation::kGeluTanh, "FastGELUActivation"},
    {"gelu_accurate", Activation::kGeluTanh, "AccurateGELUActivation"},
    {"relu", Activation::kRelu, "ReLU"},
    {"swigluoai", Activation::kClampedSwiglu, ""},
}};

const ActivationWord* find_word(std::string_view word) {
  for (const ActivationWord& w : kActivationWords)
    if (w.word == word) return &w;
  return nullptr;
}

}  // namespace

TextConfig read_text_config(ConfigReader& config, const TextDefaults& d, const TextKeys& keys) {
  TextConfig t;
  t.keys = keys;
  t.vocab = config.integer(keys.vocab, d.vocab, kVocabRange);
  t.hidden = config.integer(keys.hidden, d.hidden, kWidthRange);
  t.layers = config.integer(keys.layers, d.layers, kLayerRange);
  t.heads = config.integer(keys.heads, d.heads, kHeadRange);
  t.kv_heads = config.integer(keys.kv_heads, d.kv_heads == 0 ? t.heads : d.kv_heads, kHeadRange);
  t.max_position = config.integer(keys.max_position, d.max_position, kPositionRange);
  t.eps = config.number(keys.eps, d.eps, {0, 1, false});
  t.activation = config.text(keys.activation, d.activation);
  t.tied = config.boolean("tie_word_embeddings", d.tied);
  // Per-layer lists (Gemma 3n) are the family's business; here the first entry stands for all.
  if (config.view().find(keys.intermediate).is_array()) {
    const auto list = config.integers(keys.intermediate, kWidthRange);
    t.intermediate = list.empty() ? d.intermediate : list.front();
  } else {
    t.intermediate = config.integer(keys.intermediate, d.intermediate, kWidthRange);
  }

  const bool has_head_dim = config.has(keys.head_dim);
  if (has_head_dim || d.head_dim != 0) {
    t.head_dim = config.integer(keys.head_dim, d.head_dim, kHeadRange);
  } else {
    t.head_dim = std::max<int64_t>(1, t.hidden / t.heads);
    if (t.hidden % t.heads != 0) {
      config.fail(config.view().broken(fmt::format("{} {} is no multiple of {} {} and there is no {}", keys.hidden,
                                                   t.hidden, keys.heads, t.heads, keys.head_dim)));
    }
  }
  if (t.heads % t.kv_heads != 0) {
    config.fail(config.view().broken(
        fmt::format("{} {} is no multiple of {} {}", keys.heads, t.heads, keys.kv_heads, t.kv_heads)));
    t.kv_heads = t.heads;
  }
  return t;
}

Activation read_activation(ConfigReader& config, std::string_view word) {
  if (const ActivationWord* w = find_word(word)) return w->activation;
  config.fail(Error(ErrorCode::kUnsupported, config.view().file() + ": activation " + quoted(word) + " is unknown"));
  return Activation::kSilu;
}

std::string activation_class(std::string_view word) {
  const ActivationWord* w = find_word(word);
  return std::string(w == nullptr ? word : w->class_name);
}

std::vector<AttentionKind> read_layer_kinds(ConfigReader& config, int64_t layers,
                                            const std::function<AttentionKind(int64_t)>& rule) {
  std::vector<AttentionKind> kinds;
  kinds.reserve(static_cast<size_t>(layers));
  const std::vector<std::string> words = config.texts("layer_types");
  if (words.empty()) {
    for (int64_t i = 0; i < layers; ++i) kinds.push_back(rule(i));
    return kinds;
  }
  if (words.size() != static_cast<size_t>(layers)) {
    config.fail(
        config.view().broken(fmt::format("layer_types has {} entries for num_hidden_layers {}", words.size(), layers)));
    return std::vector<AttentionKind>(static_cast<size_t>(layers), AttentionKind::kFull);
  }
  for (const std::string& word : words) {
    if (word == "full_attention") {
      kinds.push_back(AttentionKind::kFull);
    } else if (word == "sliding_attention") {
      kinds.push_back(AttentionKind::kSliding);
    } else if (word == "chunked_attention") {
      kinds.push_back(AttentionKind::kChunked);
    } else if (word == "linear_attention") {
      kinds.push_back(AttentionKind::kDeltaNet);
    } else if (word == "minimax_m3_sparse") {
      kinds.push_back(AttentionKind::kBlockSparse);
    } else {
      config.fail(
          Error(ErrorCode::kUnsupported, config.view().file() + ": layer_types entry " + quoted(word) + " is unknown"));
      kinds.push_back(AttentionKind::kFull);
    }
  }
  return kinds;
}

int32_t read_window(ConfigReader& config, int64_t fallback) {
  if (config.is_null("sliding_window")) return 0;
  return static_cast<int32_t>(config.integer("sliding_window", fallback, {0, INT32_MAX}));
}

NormSpec rms_norm(double eps) {
  NormSpec norm;
  norm.kind = NormKind::kRms;
  norm.eps = eps;
  return norm;
}

NormSpec layer_norm(double eps, bool bias) {
  NormSpec norm;
  norm.kind = NormKind::kLayer;
  norm.eps = eps;
  norm.has_bias = bias;
  return norm;
}

ModelSpec llama_spec(ConfigReader& config, const TextConfig& t) {
  ModelSpec spec;
  spec.vocab_rows = spec.vocab_size = t.vocab;
  spec.hidden = static_cast<int32_t>(t.hidden);
  spec.max_position = t.max_position;
  spec.tied_head = t.tied;
  spec.final_norm = rms_norm(t.eps);
  LayerSpec layer;
  layer.attention.heads = static_cast<int32_t>(t.heads);
  layer.attention.kv_heads = static_cast<int32_t>(t.kv_heads);
  layer.attention.head_dim = layer.attention.v_head_dim = static_cast<int32_t>(t.head_dim);
  layer.attention.scale = 1 / std::sqrt(static_cast<double>(t.head_dim));
  layer.attention.rope = 0;
  layer.mlp.intermediate = static_cast<int32_t>(t.intermediate);
  layer.mlp.activation = read_activation(config, t.activation);
  layer.input_norm = layer.mlp_norm = rms_norm(t.eps);
  spec.layers.assign(static_cast<size_t>(t.layers), layer);
  return spec;
}

void set_windows(ModelSpec& spec, const std::vector<AttentionKind>& kinds, int32_t window) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& a = spec.layers[i].attention;
    const bool slides = kinds[i] == AttentionKind::kSliding && window > 0;
    a.kind = slides ? AttentionKind::kSliding : AttentionKind::kFull;
    a.window = slides ? window : 0;
  }
}

}  // namespace berth::arch
