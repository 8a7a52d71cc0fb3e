// arch/families/qwen.h — rules that the Qwen generations share, dense and sparse.
#pragma once

#include <functional>

#include "berth/arch/families/family.h"

namespace berth::arch {

// read_decoder() with one rope, theta 10000 where absent.
TextConfig read_qwen_text(ConfigReader& config, Decoder& decoder, const TextDefaults& defaults);

// Windows only where use_sliding_window is true and slides(layer, max_window_layers), unless layer_types says it.
void read_qwen_windows(ConfigReader& config, Decoder& decoder, const std::function<bool(int64_t, int64_t)>& slides);

// RMS norms on every head of q and k, before rope.
void set_head_norms(ModelSpec& spec, double eps);

}  // namespace berth::arch
