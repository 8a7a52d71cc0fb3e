// arch/families/siglip.h — the SigLIP vision tower that wrappers carry. Berth runs text only: the tower is planned, not
// run.
#pragma once

#include <string_view>

#include "berth/arch/builder.h"
#include "berth/format/config_view.h"

namespace berth::arch {

struct SiglipConfig {
  int64_t hidden = 768, intermediate = 3072, layers = 12, heads = 12, channels = 3, image_size = 224, patch_size = 16;
  bool has_head = true;  // an attention pooling head
  std::string activation = "gelu_pytorch_tanh";
};

// From `root`'s vision_config; defaults where it is absent or a key is. Numbers out of range count as absent: a tower's
// config never stops the text model.
SiglipConfig read_siglip(const format::ConfigView& root);

void siglip_tower(Builder& b, const SiglipConfig& config, std::string_view name);

}  // namespace berth::arch
