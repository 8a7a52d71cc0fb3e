// format/hf_config.h — config.json: where the language model's keys are, and those that every family shares in one
// form.
//
// root() is the file's object. text() is the part that describes the language model: root() itself, or the object
// nested in it by wrappers (text_config, language_config, llm_config; inside thinker_config too). Families read their
// own keys from text() with typed getters (config_view.h); what has had several spellings over the years is in
// common(), equal for an old and a new file that mean the same. Class defaults are not filled in: a key that the file
// does not state stays empty.
//
// Every number in common() was checked when the file was read: counts are at least 1 and below 2^31, layers and heads
// at most 65,536, heads are a multiple of key/value heads, a head's width is whole. auto_map and custom_code names are
// ignored with a note: nothing from a checkpoint is executed.
//
// Start reading at: HfConfig::parse.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"
#include "berth/format/config_view.h"
#include "berth/format/quantization_config.h"
#include "berth/format/rope_parameters.h"
#include "berth/tensor/dtype.h"

namespace berth::format {

inline constexpr uint64_t kMaxConfigBytes = 16ull << 20;

// A class default that is not None makes "absent" and "null" differ: Mistral's window is 4096 where the key is absent.
struct SlidingWindow {
  bool stated = false;            // the file has the key
  std::optional<int64_t> tokens;  // nothing: no window (null, 0, or use_sliding_window is false)
  bool operator==(const SlidingWindow&) const = default;
};

struct CommonConfig {
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> hidden_size;               // n_embd, n_embed
  std::optional<int64_t> intermediate_size;         // ffn_dim, n_inner, ffn_hidden_size
  std::vector<int64_t> intermediate_size_by_layer;  // where the file has a list (Gemma 3n)
  std::optional<int64_t> num_hidden_layers;         // n_layer, num_layers
  std::optional<int64_t> num_attention_heads;       // n_head
  std::optional<int64_t> num_key_value_heads;       // num_kv_heads, n_head_kv; where absent it is the heads
  std::optional<int64_t> head_dim;                  // where absent it is hidden / heads, or a class default
  std::optional<int64_t> max_position_embeddings;   // n_positions
  std::optional<int64_t> num_experts;               // num_local_experts, n_routed_experts
  std::optional<int64_t> num_experts_per_tok;       // experts_per_token, top_k_experts
  std::optional<double> norm_eps;                   // rms_norm_eps, layer_norm_eps, layer_norm_epsilon, norm_eps
  std::optional<std::string> activation;            // hidden_activation, hidden_act, activation_function
  std::optional<bool> tie_word_embeddings;
  std::optional<DType> dtype;  // dtype, torch_dtype; of the text part where it has its own
  SlidingWindow sliding_window;
  // From layer_types, sliding_window_pattern, full_attention_interval or use_sliding_window + max_window_layers; empty
  // where the file states none of them. One per layer.
  std::vector<std::string> layer_types;
  std::vector<int64_t> bos_token_id, eos_token_id, pad_token_id;  // each empty where not stated
  RopeConfig rope;
};

class HfConfig {
 public:
  // `file_name` is for messages. Errors: kCorruptData naming file, key, expected and found.
  static Result<HfConfig> parse(std::string_view json, std::string file_name);
  static Result<HfConfig> open(const std::string& path);

  const ConfigView& root() const { return root_; }
  const ConfigView& text() const { return text_; }
  const std::string& model_type() const { return model_type_; }            // of the root, "" where absent
  const std::string& text_model_type() const { return text_model_type_; }  // of text(), else the root's
  const std::vector<std::string>& architectures() const { return architectures_; }
  const CommonConfig& common() const { return common_; }
  const std::optional<QuantizationConfig>& quantization() const { return quantization_; }
  const std::vector<std::string>& notes() const { return notes_; }

  // The key's value for one layer: per_layer_config's, else (full-attention layers) global_head_dim for "head_dim" and,
  // with attention_k_eq_v, num_global_key_value_heads for "num_key_value_heads", else the key itself.
  Result<std::optional<int64_t>> find_int_for_layer(std::string_view key, size_t layer, IntRange range = {}) const;

 private:
  HfConfig() = default;
  Status read_names();
  Status read_common();
  Status read_layer_types();
  Status read_sliding_window();
  Status check_heads() const;

  std::shared_ptr<const JsonDocument> document_;
  ConfigView root_, text_;
  std::string model_type_, text_model_type_;
  std::vector<std::string> architectures_;
  CommonConfig common_;
  std::optional<QuantizationConfig> quantization_;
  std::vector<std::string> notes_;
};

}  // namespace berth::format
