// arch/gguf_reader.h — look-ups in GGUF metadata that keep the first failure, as config_reader.h does for config.json.
//
// Keys are given without the architecture: "block_count" is "llama.block_count" in a file of architecture llama.
//
// Start reading at: read_gguf_text.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/arch/text_config.h"
#include "berth/base/result.h"
#include "berth/format/gguf_metadata.h"

namespace berth::arch {

// What else of the file is needed: shapes of tensors (biases show only there) and the few values of rope_freqs.
struct GgufTensors {
  std::function<std::optional<Shape>(std::string_view name)> shape;
  std::function<Result<std::vector<float>>(std::string_view name)> floats;
};

class GgufReader {
 public:
  GgufReader(const format::GgufMetadata& metadata, GgufTensors tensors)
      : metadata_(metadata), tensors_(std::move(tensors)) {}

  std::string_view architecture() const { return metadata_.architecture(); }
  bool has(std::string_view key) const { return metadata_.has(metadata_.arch_key(key)); }
  bool has_tensor(std::string_view name) const { return tensors_.shape(name).has_value(); }
  std::optional<Shape> tensor_shape(std::string_view name) const { return tensors_.shape(name); }

  int64_t integer(std::string_view key, std::optional<int64_t> fallback, format::IntRange range);
  double number(std::string_view key, std::optional<double> fallback, format::DoubleRange range = format::kPositive);
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  // One value per layer, or one for all; empty where absent.
  std::vector<int64_t> per_layer(std::string_view key, size_t layers, format::IntRange range);
  std::vector<double> numbers_per_layer(std::string_view key, size_t layers, format::DoubleRange range);
  // attention.sliding_window_pattern: a list of bools (true: sliding), or n: every n-th layer is full. Empty: absent.
  std::vector<bool> sliding_pattern(size_t layers);
  // Positive numbers, one per pair of turned channels, from a tensor: rope_freqs.weight divides frequencies,
  // rope_factors_short.weight and _long are longrope's lists. Empty where there is none.
  std::vector<float> rope_numbers(std::string_view tensor, int64_t pairs);

  void fail(Error error);
  void fail_key(std::string_view key, std::string_view expected);
  bool ok() const { return !error_.has_value(); }
  Status status() const;

 private:
  const format::GgufMetadata& metadata_;
  GgufTensors tensors_;
  std::optional<Error> error_;
};

// The spellings of TextConfig's numbers in GGUF, for messages.
TextKeys gguf_text_keys();

// widths, heads, layers, eps; `tied` is whether output.weight is missing. `head_dim_from_width` false: key_length is
// required. kv_heads may be a list: its first entry stands for all here (gguf.per_layer() has them all).
TextConfig read_gguf_text(GgufReader& gguf, std::string_view activation);

// rope.freq_base, rope.dimension_count, rope.scaling.*, over heads of `head_dim`.
RopeSpec read_gguf_rope(GgufReader& gguf, const TextConfig& text, int64_t head_dim, double default_theta);

// llama_spec() for GGUF: all layers the same, biases where the first layer's tensors have them.
ModelSpec gguf_llama_spec(GgufReader& gguf, const TextConfig& text);

// Windows of attention.sliding_window on the layers of attention.sliding_window_pattern, where the file has none on
// those of `rule`; the kind of every layer.
std::vector<AttentionKind> set_gguf_windows(GgufReader& gguf, ModelSpec& spec,
                                            const std::function<AttentionKind(int64_t)>& rule, int64_t default_window);

// expert_*: how many, how many are chosen, how wide, how they are weighed. expert_gating_func 1 is softmax over all, 2
// sigmoid, 3 softmax over the chosen ones; `router` where it is absent.
MoeSpec read_gguf_experts(GgufReader& gguf, RouterKind router, bool renormalizes);
// Whether a layer's MLP is a router and experts: seen from its tensors.
bool gguf_layer_is_sparse(const GgufReader& gguf, size_t layer);

}  // namespace berth::arch
