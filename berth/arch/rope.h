// arch/rope.h — RopeSpec from a config's rope parameters, by the rules of one class.
//
// format/rope_parameters.h has made one form of old and new field names; here come the class's defaults, which channels
// turn, and the derived factors (yarn's and longrope's scale of cos and sin). docs/architectures.md, "Rope".
//
// Non-goals: the frequencies themselves (kernel/rope.h). Start reading at: read_rope.
#pragma once

#include <optional>
#include <string_view>

#include "berth/arch/config_reader.h"
#include "berth/arch/model_spec.h"

namespace berth::arch {

// How one class reads its rope.
struct RopeRules {
  double theta = 10000;        // where the config names none
  std::optional<double> part;  // default of the share of a head that turns; nothing: the class turns all of it,
                               // whatever the config says
  RopeLayout layout = RopeLayout::kHalves;
  // Gemma 3, 3n: full and sliding layers have a rope each. In the older form rope_theta and rope_scaling are the full
  // layers' alone, whether or not rope_local_base_freq names the others' theta.
  bool per_layer_type = false;
  // Where the config's outer object has none; 0: what is among the rope's parameters counts.
  int64_t original_max_position = 0;
  bool longrope_renews = false;   // Phi-3: a sequence that passes long rope's border is computed anew
  bool longrope_aliases = false;  // Phi-3: "su" and "yarn" are older words for longrope
};

// The rope of layers of `layer_type` ("full_attention") whose heads are `head_dim` wide. Failures land in `config`.
RopeSpec read_rope(ConfigReader& config, const RopeRules& rules, int64_t head_dim, int64_t max_position,
                   std::string_view layer_type = "full_attention");

// A plain rope over the whole head: what GGUF readers start from.
RopeSpec plain_rope(int64_t head_dim, double theta, int64_t max_position);

// 0.1 * weight * ln(factor) + 1, and 1 where factor <= 1: yarn's and DeepSeek's magnitude.
double yarn_magnitude(double factor, double weight);

}  // namespace berth::arch
