// arch/families/gemma4_towers.h — Gemma 4's vision and audio towers: planned, not run.
#pragma once

#include "berth/arch/families/family.h"

namespace berth::arch {

// vision_tower, where the config has a vision_config.
void gemma4_vision_tower(Builder& b, const Decoder& d);
// audio_tower, embed_vision, embed_audio, each where its config is there.
void gemma4_audio_and_embedders(Builder& b, const Decoder& d);

}  // namespace berth::arch
