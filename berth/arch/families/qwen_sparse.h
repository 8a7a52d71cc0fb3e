// arch/families/qwen_sparse.h — what Qwen's sparse generations share beyond qwen.h.
#pragma once

#include <string>

#include "berth/arch/decoder_parts.h"

namespace berth::arch {

struct QwenMoeDefaults {
  int64_t experts = 0, chosen = 0, intermediate = 0;
  int64_t shared = 0;  // the shared expert's width; 0: the class has none
  bool renormalizes = false, always_renormalizes = false;
};

// Which layers are sparse (decoder_sparse_step, mlp_only_layers) and their experts.
void read_qwen_experts(ConfigReader& config, Decoder& decoder, const QwenMoeDefaults& defaults);

// The dense MLP or the block of moe.h.
void qwen_mlp(Builder& b, const Decoder& d, const LayerSpec& layer, const std::string& prefix,
              const ExpertNames& names);

}  // namespace berth::arch
