// arch/rope.cc — see rope.h.
#include "berth/arch/rope.h"

#include <cmath>
#include <string>

#include "berth/base/strings.h"
#include "berth/format/rope_parameters.h"

namespace berth::arch {
namespace {

using format::RopeParameters;

std::optional<RopeScaling> scaling_from_name(std::string_view name, bool longrope_aliases) {
  if (longrope_aliases && (name == "su" || name == "yarn")) return RopeScaling::kLongRope;
  if (name == "default" || name == "mrope") return RopeScaling::kDefault;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "proportional") return RopeScaling::kProportional;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "yarn") return RopeScaling::kYarn;
  if (name == "dynamic") return RopeScaling::kDynamic;
  if (name == "longrope") return RopeScaling::kLongRope;
  return std::nullopt;
}

// A number that this kind of scaling cannot do without.
double needed(ConfigReader& config, const std::optional<double>& number, std::string_view key) {
  if (!number) config.fail(config.view().broken("the rope's parameter " + std::string(key) + " is missing"));
  return number.value_or(1);
}

void yarn(const RopeParameters& p, RopeSpec& spec) {
  spec.beta_fast = p.beta_fast.value_or(32);
  spec.beta_slow = p.beta_slow.value_or(1);
  spec.truncate = p.truncate.value_or(true);
  const double mscale = p.mscale.value_or(0), all = p.mscale_all_dim.value_or(0);
  spec.attention_scaling = p.attention_factor.value_or(mscale > 0 && all > 0 ? yarn_magnitude(spec.factor, mscale) /
                                                                                   yarn_magnitude(spec.factor, all)
                                                                             : yarn_magnitude(spec.factor, 1));
}

void longrope(ConfigReader& config, const RopeParameters& p, RopeSpec& spec) {
  const size_t pairs = static_cast<size_t>(spec.rotary_dim) / 2;
  if (p.short_factor.size() != pairs || p.long_factor.size() != pairs) {
    config.fail(config.view().broken("longrope needs short_factor and long_factor of " + std::to_string(pairs) +
                                     " numbers (half of the channels that turn), found " +
                                     std::to_string(p.short_factor.size()) + " and " +
                                     std::to_string(p.long_factor.size())));
  }
  spec.short_factor = p.short_factor;
  spec.long_factor = p.long_factor;
  const auto original = static_cast<double>(spec.original_max_position);
  const bool stretched = spec.factor > 1 && original > 1;
  spec.attention_scaling =
      p.attention_factor.value_or(stretched ? std::sqrt(1 + std::log(spec.factor) / std::log(original)) : 1);
}

// Parameters that only some kinds have; the others keep their defaults, so that equal ropes compare equal.
void scale(ConfigReader& config, const RopeParameters& p, RopeSpec& spec) {
  switch (spec.scaling) {
    case RopeScaling::kDefault:
      return;
    case RopeScaling::kLinear:
    case RopeScaling::kDynamic:
      spec.factor = needed(config, p.factor, "factor");
      return;
    case RopeScaling::kProportional:
      spec.factor = p.factor.value_or(1);
      return;
    case RopeScaling::kLlama3:
      spec.factor = needed(config, p.factor, "factor");
      spec.low_freq_factor = needed(config, p.low_freq_factor, "low_freq_factor");
      spec.high_freq_factor = needed(config, p.high_freq_factor, "high_freq_factor");
      spec.original_max_position = p.original_max_position_embeddings.value_or(spec.max_position);
      if (spec.high_freq_factor < spec.low_freq_factor)
        config.fail(config.view().broken("the rope's high_freq_factor is less than its low_freq_factor"));
      return;
    case RopeScaling::kYarn:
    case RopeScaling::kLongRope:
      spec.original_max_position = p.original_max_position_embeddings.value_or(spec.max_position);
      spec.factor =
          p.factor.value_or(static_cast<double>(spec.max_position) / static_cast<double>(spec.original_max_position));
      if (spec.scaling == RopeScaling::kYarn) {
        yarn(p, spec);
      } else {
        longrope(config, p, spec);
      }
      return;
  }
}

// The set of a layer type, by the rules of the classes that keep two. A rope_scaling that says "type" instead of
// "rope_type" scales nothing there, and yarn's "truncate" is looked for outside the sets: it always rounds.
RopeParameters own_set(ConfigReader& config, const format::RopeConfig& read, std::string_view layer_type) {
  const bool sliding = layer_type == "sliding_attention";
  const std::string_view theta = sliding ? "rope_local_base_freq" : "rope_theta";
  RopeParameters p;
  const auto found = read.by_layer_type.find(layer_type);
  if (config.has("rope_parameters")) {
    if (found != read.by_layer_type.end()) p = found->second;
    p.truncate.reset();
    const ConfigReader own = config.nested("rope_parameters").nested(std::string(layer_type));
    if (own.has("rope_theta")) return p;
  } else if (!sliding) {
    p = found != read.by_layer_type.end() ? found->second : read.all;
    if (!config.nested("rope_scaling").has("rope_type")) p.rope_type = "default";
    p.truncate.reset();
  }
  p.rope_theta.reset();
  if (config.has(theta)) p.rope_theta = config.number(theta, std::nullopt);
  return p;
}

}  // namespace

double yarn_magnitude(double factor, double weight) { return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1; }

RopeSpec plain_rope(int64_t head_dim, double theta, int64_t max_position) {
  RopeSpec spec;
  spec.rotary_dim = spec.head_dim = static_cast<int32_t>(head_dim);
  spec.theta = theta;
  spec.max_position = max_position;
  return spec;
}

RopeSpec read_rope(ConfigReader& config, const RopeRules& rules, int64_t head_dim, int64_t max_position,
                   std::string_view layer_type) {
  RopeSpec spec = plain_rope(head_dim, rules.theta, max_position);
  spec.layout = rules.layout;
  const auto read = format::read_rope_config(config.view());
  if (!read) {
    config.fail(read.error());
    return spec;
  }
  RopeParameters p = rules.per_layer_type ? own_set(config, *read, layer_type) : read->of(layer_type);
  const auto scaling = scaling_from_name(p.rope_type, rules.longrope_aliases);
  if (!scaling) {
    config.fail(Error(ErrorCode::kUnsupported,
                      config.view().file() + ": rope_type " + quoted(p.rope_type) +
                          " is unknown; known are default, linear, proportional, llama3, yarn, dynamic, longrope"));
    return spec;
  }
  spec.scaling = *scaling;
  spec.theta = p.rope_theta.value_or(rules.theta);
  if (rules.part) {  // int(head_dim * part), computed in doubles as the library does
    const double part = p.partial_rotary_factor.value_or(*rules.part);
    spec.rotary_dim = static_cast<int32_t>(static_cast<double>(head_dim) * part);
  }
  if (spec.scaling == RopeScaling::kProportional) {
    spec.partial_rotary_factor = p.partial_rotary_factor.value_or(1);
    spec.rotary_dim = static_cast<int32_t>(head_dim);  // all pairs; the last ones have frequency 0
  }
  if (spec.rotary_dim < 2 || spec.rotary_dim % 2 != 0) {
    config.fail(config.view().broken("an even number of at least 2 channels of a head must turn, found " +
                                     std::to_string(spec.rotary_dim) + " of " + std::to_string(head_dim)));
  }
  if (rules.original_max_position > 0 && !config.has("original_max_position_embeddings"))
    p.original_max_position_embeddings = rules.original_max_position;
  scale(config, p, spec);
  spec.renews = rules.longrope_renews && spec.scaling == RopeScaling::kLongRope;
  return spec;
}

}  // namespace berth::arch
