// arch/capability.h — which mechanisms the forward pass has: the one place to change when it learns another.
//
// Start reading at: kMechanisms in capability.cc.
#pragma once

#include <string>

#include "berth/arch/model_spec.h"

namespace berth::arch {

// The kernels turn no more channels of a head.
inline constexpr int32_t kMostRotaryDim = 1024;

// What of this model the engine lacks, in words ("gated delta net attention"); empty where it can run.
std::string missing_mechanisms(const ModelSpec& spec);

}  // namespace berth::arch
