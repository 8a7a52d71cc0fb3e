// format/rope_parameters.h — the rotary embedding's numbers out of a config, the same from old and new field names.
//
// New: `rope_parameters`, one object or one per layer type. Old: `rope_theta` + `rope_scaling` (null or an object whose
// `type` is an alias of `rope_type`) + `partial_rotary_factor`, in other families `rotary_pct`, `rotary_emb_base`,
// `rotary_dim`; Gemma 3's `rope_local_base_freq` for its sliding layers, where `rope_scaling` is for full layers only.
// A number that neither form states stays empty: class defaults are the family's business (arch/).
// `rope_type` is kept as written ("su" is Phi-3's old name of "longrope").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"
#include "berth/format/config_view.h"

namespace berth::format {

struct RopeParameters {
  std::string rope_type = "default";
  std::optional<double> rope_theta;
  std::optional<double> partial_rotary_factor;  // share of a head's channels that turn; also from rotary_dim / head_dim
  std::optional<double> factor;
  std::optional<double> low_freq_factor, high_freq_factor;                               // llama3
  std::optional<double> beta_fast, beta_slow, attention_factor, mscale, mscale_all_dim;  // yarn
  std::optional<bool> truncate;
  // For llama3, yarn and longrope; max_position_embeddings where the config names no other.
  std::optional<int64_t> original_max_position_embeddings;
  std::vector<double> short_factor, long_factor;  // longrope
  std::vector<int64_t> mrope_section;
  std::optional<bool> mrope_interleaved;
  bool operator==(const RopeParameters&) const = default;
};

struct RopeConfig {
  RopeParameters all;                                                // where there is one set for every layer
  std::map<std::string, RopeParameters, std::less<>> by_layer_type;  // otherwise: "full_attention", "sliding_attention"
  // The set of a layer type: its own, else the common one.
  const RopeParameters& of(std::string_view layer_type) const {
    const auto it = by_layer_type.find(layer_type);
    return it == by_layer_type.end() ? all : it->second;
  }
  bool operator==(const RopeConfig&) const = default;
};

// `text` is the language model's config object. Errors: kCorruptData naming file and key (theta and factors that are 0,
// negative, no numbers; fractions over 1).
Result<RopeConfig> read_rope_config(const ConfigView& text);

}  // namespace berth::format
