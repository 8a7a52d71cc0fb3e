// format/rope_parameters.cc — see rope_parameters.h.
#include "berth/format/rope_parameters.h"

#include <fmt/format.h>

#include <algorithm>

namespace berth::format {
namespace {

// Reads one set from an object of either form. `top` is the config around it, whose old keys fill what is missing.
Result<RopeParameters> read_set(const ConfigView& set, const ConfigView& top) {
  RopeParameters p;
  TRY(p.rope_type, set.string_or({"rope_type", "type"}, "default"));
  TRY(p.rope_theta, set.find_double("rope_theta", kPositive));
  TRY(p.partial_rotary_factor, set.find_double("partial_rotary_factor", kFraction));
  TRY(p.factor, set.find_double("factor", kPositive));
  TRY(p.low_freq_factor, set.find_double("low_freq_factor", kPositive));
  TRY(p.high_freq_factor, set.find_double("high_freq_factor", kPositive));
  TRY(p.beta_fast, set.find_double("beta_fast", kPositive));
  TRY(p.beta_slow, set.find_double("beta_slow", kPositive));
  TRY(p.attention_factor, set.find_double("attention_factor", kPositive));
  TRY(p.mscale, set.find_double("mscale", {0}));
  TRY(p.mscale_all_dim, set.find_double("mscale_all_dim", {0}));
  TRY(p.truncate, set.find_bool("truncate"));
  TRY(p.original_max_position_embeddings, set.find_int("original_max_position_embeddings", kCount));
  TRY(auto short_factor, set.find_doubles("short_factor", kPositive));
  TRY(auto long_factor, set.find_doubles("long_factor", kPositive));
  if (short_factor) p.short_factor = std::move(*short_factor);
  if (long_factor) p.long_factor = std::move(*long_factor);
  TRY(auto section, set.find_ints("mrope_section", kCountOrZero));
  if (section) p.mrope_section = std::move(*section);
  TRY(p.mrope_interleaved, set.find_bool("mrope_interleaved"));

  if (p.rope_type == "llama3" || p.rope_type == "yarn" || p.rope_type == "longrope" || p.rope_type == "su") {
    // A top-level key wins (Phi-3); the context length stands in where nothing is said.
    TRY(const auto own, top.find_int("original_max_position_embeddings", kCount));
    if (own) p.original_max_position_embeddings = own;
    if (!p.original_max_position_embeddings) {
      TRY(p.original_max_position_embeddings, top.find_int({"max_position_embeddings", "n_positions"}, kCount));
    }
  }
  return p;
}

// rotary_dim / head_dim, where both are known.
Result<std::optional<double>> fraction_from_rotary_dim(const ConfigView& text) {
  TRY(const auto rotary, text.find_int("rotary_dim", kCountOrZero));
  if (!rotary || *rotary == 0) return std::optional<double>();
  TRY(auto head, text.find_int("head_dim", kCount));
  if (!head) {
    TRY(const auto hidden, text.find_int({"hidden_size", "n_embd", "n_embed"}, kCount));
    TRY(const auto heads, text.find_int({"num_attention_heads", "n_head"}, kHeads));
    if (!hidden || !heads || *hidden % *heads != 0) return std::optional<double>();
    head = *hidden / *heads;
  }
  if (*rotary > *head) return text.wrong("rotary_dim", fmt::format("at most the head's width of {}", *head));
  return std::optional(static_cast<double>(*rotary) / static_cast<double>(*head));
}

bool is_set_per_layer_type(const JsonView& parameters) {
  bool any = false;
  for (JsonView::Cursor c(parameters); c.next();) {
    if (!c.value().is_object()) return false;
    any = true;
  }
  return any;
}

}  // namespace

Result<RopeConfig> read_rope_config(const ConfigView& text) {
  TRY(const auto top_theta, text.find_double({"rope_theta", "rotary_emb_base"}, kPositive));
  TRY(auto top_fraction, text.find_double({"partial_rotary_factor", "rotary_pct"}, kFraction));
  if (!top_fraction) {
    TRY(top_fraction, fraction_from_rotary_dim(text));
  }
  const auto complete = [&](RopeParameters& p) {
    if (!p.rope_theta) p.rope_theta = top_theta;
    if (!p.partial_rotary_factor) p.partial_rotary_factor = top_fraction;
  };

  RopeConfig rope;
  TRY(const auto parameters, text.find_object("rope_parameters"));
  if (parameters && is_set_per_layer_type(parameters->json())) {
    for (JsonView::Cursor c(parameters->json()); c.next();) {
      const ConfigView set(c.value(), text.file(), parameters->full_name(c.key()));
      TRY(auto p, read_set(set, text));
      if (!p.rope_theta) p.rope_theta = top_theta;
      rope.by_layer_type.emplace(c.key(), std::move(p));
    }
    return rope;
  }
  TRY(const auto scaling, text.find_object("rope_scaling"));
  const ConfigView nothing(JsonView(), text.file(), "rope_scaling");
  TRY(rope.all, read_set(parameters ? *parameters : scaling ? *scaling : nothing, text));
  complete(rope.all);
  TRY(const auto local_theta, text.find_double("rope_local_base_freq", kPositive));
  if (local_theta && !parameters) {
    RopeParameters sliding;
    sliding.rope_theta = local_theta;
    sliding.partial_rotary_factor = rope.all.partial_rotary_factor;
    rope.by_layer_type.emplace("full_attention", rope.all);
    rope.by_layer_type.emplace("sliding_attention", std::move(sliding));
    rope.all = RopeParameters();
  }
  return rope;
}

}  // namespace berth::format
