// arch/gguf_reader.cc — see gguf_reader.h.
#include "berth/arch/gguf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "berth/arch/config_reader.h"
#include "berth/arch/rope.h"
#include "berth/base/strings.h"

namespace berth::arch {

void GgufReader::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void GgufReader::fail_key(std::string_view key, std::string_view expected) {
  fail(metadata_.wrong(metadata_.arch_key(key), expected));
}

Status GgufReader::status() const {
  if (error_) return *error_;
  return {};
}

int64_t GgufReader::integer(std::string_view key, std::optional<int64_t> fallback, format::IntRange range) {
  const int64_t safe = std::clamp(fallback.value_or(range.min), range.min, range.max);
  const auto found = metadata_.find_int(metadata_.arch_key(key), range);
  if (!found) return fail(found.error()), safe;
  if (*found) return **found;
  if (!fallback) fail_key(key, range.text());
  return safe;
}

double GgufReader::number(std::string_view key, std::optional<double> fallback, format::DoubleRange range) {
  const auto found = metadata_.find_double(metadata_.arch_key(key), range);
  if (!found) return fail(found.error()), fallback.value_or(1);
  if (*found) return **found;
  if (!fallback) fail_key(key, range.text());
  return fallback.value_or(1);
}

bool GgufReader::boolean(std::string_view key, bool fallback) {
  const auto found = metadata_.find_bool(metadata_.arch_key(key));
  if (!found) return fail(found.error()), fallback;
  return found->value_or(fallback);
}

std::string GgufReader::text(std::string_view key, std::string_view fallback) {
  const auto found = metadata_.find_string(metadata_.arch_key(key));
  if (!found) return fail(found.error()), std::string(fallback);
  return std::string(found->value_or(fallback));
}

std::vector<int64_t> GgufReader::per_layer(std::string_view key, size_t layers, format::IntRange range) {
  const auto found = metadata_.find_ints_per_layer(metadata_.arch_key(key), layers, range);
  if (!found) return fail(found.error()), std::vector<int64_t>();
  return found->value_or(std::vector<int64_t>());
}

std::vector<bool> GgufReader::sliding_pattern(size_t layers) {
  const std::string key = metadata_.arch_key("attention.sliding_window_pattern");
  if (!metadata_.has(key)) return {};
  std::vector<bool> slides(layers);
  if (!metadata_.array_size(key) && metadata_.element_type(key) != format::GgufType::kBool) {
    const int64_t every = integer("attention.sliding_window_pattern", 0, {0, INT32_MAX});
    for (size_t i = 0; i < layers; ++i) slides[i] = every > 0 && (static_cast<int64_t>(i) + 1) % every != 0;
    return slides;
  }
  const auto found = metadata_.find_bools_per_layer(key, layers);
  if (!found) return fail(found.error()), std::vector<bool>();
  return found->value_or(std::vector<bool>());
}

std::vector<double> GgufReader::numbers_per_layer(std::string_view key, size_t layers, format::DoubleRange range) {
  if (!has(key)) return {};
  if (!metadata_.array_size(metadata_.arch_key(key))) return std::vector<double>(layers, number(key, 0, range));
  const auto found = metadata_.find_doubles(metadata_.arch_key(key), range);
  if (!found) return fail(found.error()), std::vector<double>();
  if ((*found)->size() != layers) return fail_key(key, "one number per layer"), std::vector<double>();
  return **found;
}

std::vector<float> GgufReader::rope_numbers(std::string_view tensor, int64_t pairs) {
  const auto shape = tensors_.shape(tensor);
  if (!shape) return {};
  if (*shape != Shape{pairs}) {
    fail(Error(ErrorCode::kCorruptData,
               fmt::format("tensor {} has shape {}, expected [{}]: one number per pair of turned channels",
                           quoted(tensor), shape_text(*shape), pairs)));
    return {};
  }
  auto values = tensors_.floats(tensor);
  if (!values) return fail(values.error()), std::vector<float>();
  for (const float v : *values) {
    if (std::isfinite(v) && v > 0) continue;
    fail(Error(ErrorCode::kCorruptData,
               fmt::format("tensor {} holds {}: divisors of frequencies must be positive", quoted(tensor), v)));
    return {};
  }
  return *std::move(values);
}

TextKeys gguf_text_keys() {
  TextKeys keys;
  keys.vocab = "vocab_size";
  keys.hidden = "embedding_length";
  keys.intermediate = "feed_forward_length";
  keys.layers = "block_count";
  keys.heads = "attention.head_count";
  keys.kv_heads = "attention.head_count_kv";
  keys.head_dim = "attention.key_length";
  keys.max_position = "context_length";
  keys.eps = "attention.layer_norm_rms_epsilon";
  return keys;
}

TextConfig read_gguf_text(GgufReader& gguf, std::string_view activation) {
  TextConfig t;
  t.keys = gguf_text_keys();
  // Models with LayerNorm have its eps under another key.
  if (!gguf.has(t.keys.eps)) t.keys.eps = "attention.layer_norm_epsilon";
  t.activation = std::string(activation);
  t.layers = gguf.integer(t.keys.layers, std::nullopt, kLayerRange);
  t.hidden = gguf.integer(t.keys.hidden, std::nullopt, kWidthRange);
  const auto layers = static_cast<size_t>(t.layers);
  // Lists have one entry per layer; layers that differ are the family's business.
  const auto first = [&](std::string_view key, std::optional<int64_t> fallback, format::IntRange range) {
    if (!gguf.has(key) && fallback) return *fallback;
    const std::vector<int64_t> values = gguf.per_layer(key, layers, range);
    if (!values.empty()) return values.front();
    if (gguf.ok()) gguf.fail_key(key, range.text());
    return range.min;
  };
  t.heads = first(t.keys.heads, std::nullopt, kHeadRange);
  t.kv_heads = first(t.keys.kv_heads, t.heads, kHeadRange);
  t.intermediate = first(t.keys.intermediate, std::nullopt, kWidthRange);
  t.max_position = gguf.integer(t.keys.max_position, std::nullopt, kPositionRange);
  t.eps = gguf.number(t.keys.eps, 1e-5, {0, 1, false});
  if (t.heads % t.kv_heads != 0) {
    gguf.fail_key(t.keys.kv_heads, fmt::format("a divisor of {} {}", t.keys.heads, t.heads));
    t.kv_heads = t.heads;
  }
  if (!gguf.has(t.keys.head_dim) && t.hidden % t.heads != 0)
    gguf.fail_key(t.keys.head_dim, "a head width, since the heads do not divide the width");
  t.head_dim = gguf.integer(t.keys.head_dim, std::max<int64_t>(1, t.hidden / t.heads), kHeadRange);

  const auto table = gguf.tensor_shape("token_embd.weight");
  const int64_t rows = table && !table->empty() ? table->front() : 1;
  if (!table)
    gguf.fail(Error(ErrorCode::kCorruptData, "tensor \"token_embd.weight\" is missing: this GGUF file holds no model"));
  t.vocab = gguf.integer(t.keys.vocab, rows, kVocabRange);
  t.tied = !gguf.has_tensor("output.weight");
  return t;
}

RopeSpec read_gguf_rope(GgufReader& gguf, const TextConfig& text, int64_t head_dim, double default_theta) {
  RopeSpec rope = plain_rope(head_dim, gguf.number("rope.freq_base", default_theta), text.max_position);
  const int64_t turned = gguf.integer("rope.dimension_count", head_dim, {2, head_dim < 2 ? 2 : head_dim});
  rope.rotary_dim = static_cast<int32_t>(turned);
  if (turned % 2 != 0) gguf.fail_key("rope.dimension_count", "an even number");
  rope.frequency_divisors = gguf.rope_numbers("rope_freqs.weight", turned / 2);

  const std::string type = gguf.text("rope.scaling.type", gguf.has("rope.scale_linear") ? "linear" : "none");
  if (type == "none" || type.empty()) return rope;
  rope.factor = gguf.number("rope.scaling.factor", gguf.number("rope.scale_linear", 1));
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.original_max_position =
        gguf.integer("rope.scaling.original_context_length", text.max_position, kPositionRange);
    rope.beta_fast = gguf.number("rope.scaling.yarn_beta_fast", 32);
    rope.beta_slow = gguf.number("rope.scaling.yarn_beta_slow", 1);
    rope.attention_scaling = gguf.number("rope.scaling.attn_factor", 1) * yarn_magnitude(rope.factor, 1);
  } else {
    gguf.fail(Error(ErrorCode::kUnsupported, "rope scaling " + quoted(type) + " of this GGUF file is unknown"));
  }
  return rope;
}

ModelSpec gguf_llama_spec(GgufReader& gguf, const TextConfig& text) {
  ConfigReader none{format::ConfigView()};
  ModelSpec spec = llama_spec(none, text);
  const bool q = gguf.has_tensor("blk.0.attn_q.bias"), o = gguf.has_tensor("blk.0.attn_output.bias");
  const bool mlp = gguf.has_tensor("blk.0.ffn_down.bias");
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = q;
    layer.attention.output_bias = o;
    layer.mlp.bias = mlp;
  }
  return spec;
}

std::vector<AttentionKind> set_gguf_windows(GgufReader& gguf, ModelSpec& spec,
                                            const std::function<AttentionKind(int64_t)>& rule, int64_t default_window) {
  std::vector<AttentionKind> kinds;
  const std::vector<bool> slides = gguf.sliding_pattern(spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto listed = [&] { return slides[i] ? AttentionKind::kSliding : AttentionKind::kFull; };
    kinds.push_back(slides.empty() ? rule(static_cast<int64_t>(i)) : listed());
  }
  const auto window = gguf.integer("attention.sliding_window", default_window, {0, INT32_MAX});
  set_windows(spec, kinds, static_cast<int32_t>(window));
  return kinds;
}

MoeSpec read_gguf_experts(GgufReader& gguf, RouterKind router, bool renormalizes) {
  MoeSpec moe;
  moe.experts = static_cast<int32_t>(gguf.integer("expert_count", std::nullopt, kExpertRange));
  moe.experts_per_token = static_cast<int32_t>(gguf.integer("expert_used_count", std::nullopt, {1, moe.experts}));
  moe.intermediate = static_cast<int32_t>(gguf.integer("expert_feed_forward_length", std::nullopt, kWidthRange));
  moe.renormalize = gguf.boolean("expert_weights_norm", renormalizes);
  moe.routed_scale = gguf.number("expert_weights_scale", 1, {0, 1e9, false});
  if (moe.routed_scale == 0) moe.routed_scale = 1;  // written where there is none
  constexpr std::array kGating{RouterKind::kSoftmaxThenTopK, RouterKind::kSigmoid, RouterKind::kTopKThenSoftmax};
  const int64_t gating = gguf.integer("expert_gating_func", 0, {0, static_cast<int64_t>(kGating.size())});
  moe.router = gating == 0 ? router : kGating[static_cast<size_t>(gating - 1)];
  return moe;
}

bool gguf_layer_is_sparse(const GgufReader& gguf, size_t layer) {
  return gguf.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", layer));
}

}  // namespace berth::arch
