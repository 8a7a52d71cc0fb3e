// arch/text_config.h — the numbers every decoder has (widths, heads, layers, eps), read and checked once for all
// families.
//
// Start reading at: read_text_config.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/arch/config_reader.h"
#include "berth/arch/model_spec.h"

namespace berth::arch {

// What a class takes where the config is silent. 0 in kv_heads and head_dim: heads, and hidden / heads.
struct TextDefaults {
  int64_t vocab = 32000, hidden = 4096, intermediate = 11008, layers = 32, heads = 32, kv_heads = 0, head_dim = 0;
  int64_t max_position = 2048;
  double eps = 1e-6;
  bool tied = false;
  std::string_view activation = "silu";
};

// The spellings of the keys in one family; the first one is named in messages.
struct TextKeys {
  std::string_view vocab = "vocab_size", hidden = "hidden_size", intermediate = "intermediate_size",
                   layers = "num_hidden_layers", heads = "num_attention_heads", kv_heads = "num_key_value_heads",
                   head_dim = "head_dim", max_position = "max_position_embeddings", eps = "rms_norm_eps",
                   activation = "hidden_act";
};

struct TextConfig {
  TextKeys keys;
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, max_position = 0;
  double eps = 0;
  bool tied = false;
  std::string activation;  // the config's word
};

// Checked: everything positive and bounded, heads a multiple of kv_heads, hidden a multiple of heads where no head_dim
// is given. Failures land in `config`.
TextConfig read_text_config(ConfigReader& config, const TextDefaults& defaults, const TextKeys& keys = {});

// Config words for activations: "silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu"...
Activation read_activation(ConfigReader& config, std::string_view word);
// The class of the module Transformers builds for that word: "SiLUActivation".
std::string activation_class(std::string_view word);

// One kind per layer: `layer_types` where the config has it, else rule(layer).
std::vector<AttentionKind> read_layer_kinds(ConfigReader& config, int64_t layers,
                                            const std::function<AttentionKind(int64_t)>& rule);

// sliding_window with its documented meanings: null, absent (where `fallback` is 0) and 0 are no window.
int32_t read_window(ConfigReader& config, int64_t fallback);

NormSpec rms_norm(double eps);
NormSpec layer_norm(double eps, bool bias = true);

// A spec of `text.layers` equal Llama layers: full attention with rope 0 (none is added), gated MLP, RMS norms.
ModelSpec llama_spec(ConfigReader& config, const TextConfig& text);

// Makes layer i full or sliding as `kinds` says; a window of 0 leaves it full.
void set_windows(ModelSpec& spec, const std::vector<AttentionKind>& kinds, int32_t window);

}  // namespace berth::arch
