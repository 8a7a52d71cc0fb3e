// format/generation_config.h — generation_config.json, or what config.json or GGUF metadata say in its place.
//
// Only what the file states is filled in; the defaults of Transformers 5 are the value_or()s named below, so that a
// caller can tell "50 because the file says so" from "50 because nobody said". temperature 0 means greedy, top_p 0 the
// best token alone. Limits such as max_new_tokens are as written: the caller cuts them to the context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"
#include "berth/format/config_view.h"
#include "berth/format/gguf_metadata.h"

namespace berth::format {

class HfConfig;

struct GenerationConfig {
  // Where Transformers 5 has a default for an absent key.
  static constexpr bool kDefaultDoSample = false;
  static constexpr double kDefaultTemperature = 1.0, kDefaultTopP = 1.0, kDefaultRepetitionPenalty = 1.0;
  static constexpr int64_t kDefaultTopK = 50;
  static constexpr int64_t kDefaultMaxLength = 20;  // only where max_new_tokens is absent too

  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, typical_p, repetition_penalty;
  std::optional<int64_t> top_k;  // 0: no limit
  std::optional<int64_t> max_length, max_new_tokens, min_length, min_new_tokens, no_repeat_ngram_size;
  std::vector<int64_t> eos_token_id;  // any of them ends; empty where not stated
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::vector<int64_t> suppress_tokens, begin_suppress_tokens;
  std::vector<std::vector<int64_t>> bad_words_ids;
  std::vector<std::string> stop_strings;
  std::vector<std::string> warnings;  // pad among the ends, settings that are not honoured

  // Whether tokens are drawn: do_sample without temperature 0.
  bool samples() const { return do_sample.value_or(kDefaultDoSample) && temperature.value_or(1.0) > 0; }
};

// Errors: kCorruptData naming file, key, expected and found.
Result<GenerationConfig> parse_generation_config(std::string_view json, std::string file_name);
// The ids that config.json states, for checkpoints without generation_config.json.
GenerationConfig generation_config_from(const HfConfig& config);
// The ids that GGUF metadata states: eos, eot and eom all end.
Result<GenerationConfig> generation_config_from(const GgufMetadata& metadata);

}  // namespace berth::format
